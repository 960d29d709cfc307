"""Train a run's network or fit its baseline, then predict the test split once."""

import time
from collections.abc import Generator, Iterator
from copy import copy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import safetensors.torch
from torch import nn

from regard.attention.kernels.choose import Constants, constants_from, using
from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.core.memory import peak_mb
from regard.core.names import COMMAND
from regard.core.plugins import digests
from regard.core.trusted import remember
from regard.lab.runs.build import begin, prepare
from regard.lab.runs.command import run_command
from regard.lab.runs.config import Config, weights_of
from regard.lab.runs.environment import environment
from regard.lab.runs.fitting import Fitting
from regard.lab.runs.folder import Folder
from regard.lab.runs.metrics_log import MetricsLog
from regard.lab.runs.track import tracking
from regard.lab.tasks.task import Task
from regard.nn.models.classifiers import Classifier
from regard.training.checkpoints import weights
from regard.training.loop import Progress, seeded, train, using_threads
from regard.training.precision import Precision
from regard.training.ranks import ranks
from regard.training.settings import TrainingSettings

#: With so many more correct validation texts, the frozen encoder is kept. Fewer are more likely
#: chance than harm, since fine-tuning gains some points on average: docs/results/few-labels.md.
CLEAR = 4


def precision_of(folder: Folder) -> Precision:
    """Return the precision of a run, from its ``env.json``."""
    return Precision(**folder.environment()["precision"])


def kernels_of(folder: Folder) -> Constants:
    """Return the constants by which a run chose its attention kernels, from its ``env.json``."""
    return constants_from(folder.environment().get("kernels", {}), str(folder.path))


def decided(task: Any, decision: dict[str, Any]) -> Any:
    """Return the task with what it chose for a model; tasks are shared by runs."""
    if decision:
        task = copy(task)
        task.known = {**task.known, **decision}
    return task


class Learner:
    """Trains a run's network, or fits its baseline, and writes the results.

    It resumes the work of an earlier process. The caller locks the folder. A ``corpus`` in memory
    replaces the data of the settings.
    """

    def __init__(self, folder: Folder, config: Config, corpus: Any = None) -> None:
        self.folder, self.config, self.corpus = folder, config, corpus
        self._fitting: Fitting | None = None

    @property
    def precision(self) -> Precision:
        """Return the precision of the training."""
        return precision_of(self.folder)

    def _task(self) -> Any:
        """Return the task, which reads its data unless they are in memory."""
        task = prepare(self.config)
        if self.corpus is not None:
            task = copy(task)  # equal settings share their task
            task.corpus = self.corpus
        return task

    def work_with_others(self, end: bool) -> Iterator[Progress]:
        """Train and predict in a process other than the first, which alone writes results."""
        task = self._task()
        model, _ = begin(self.config, task)
        ranks().wait()  # until it has written ``env.json``
        yield from self._steps(task, model, end)
        self._answers(task, model)

    def _answers(self, task: Any, model: nn.Module) -> tuple[bytes, dict[str, Any]]:
        """Return the predictions for the test split, divided among the processes.

        Also return what the task chose on the validation split before.
        """
        with (
            using_threads(self.folder.environment()["threads"]),
            self.precision.autocast(self.config.training.device),
            using(kernels_of(self.folder)),
            ranks().sharing(),
        ):
            decision = task.decide(model) if self._fitting is None else self._fitting.decision
            answers: bytes = decided(task, decision).answer(model).rows()
        return answers, decision

    def _steps(self, task: Any, model: nn.Module, end: bool) -> Iterator[Progress]:
        """Train the network with the environment in ``env.json``."""
        environment = self.folder.environment()
        settings = self.config.training.model_copy(update={"threads": environment["threads"]})
        steps, kernels = self._training(task, model, settings, end), kernels_of(self.folder)
        while True:
            with using(kernels):  # not around the yield, where it would affect the caller
                progress = next(steps, None)
            if progress is None:
                return
            yield progress

    def _training(
        self, task: Any, model: nn.Module, settings: TrainingSettings, end: bool
    ) -> Iterator[Progress]:
        """Train the network, which ends with its best weights."""
        if self.config.entry.frozen:
            self._fitting = Fitting(cast(Classifier, model), task, settings, self.precision)
            return self._fitting.run()
        saved = self.folder.checkpoints
        if self._begins_with_head(task) and not saved.steps():
            Fitting(cast(Classifier, model), task, settings, self.precision).begin()
        return train(model, task, settings, saved, precision=self.precision, end=end)

    def _begins_with_head(self, task: Any) -> bool:
        """Return whether a fine-tuning begins with a head fitted to the frozen encoder."""
        return bool(task.fits_head and weights_of(self.config.network))

    def _better(self, task: Any, tuned: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
        """Return the fine-tuned network, or the frozen encoder if it is clearly better.

        The facts are both validation scores, and whether the frozen one is kept.
        """
        settings = self.config.training.model_copy(
            update={"threads": self.folder.environment()["threads"]}
        )
        with using(kernels_of(self.folder)):
            network, _ = begin(self.config, task)
            fitting = Fitting(cast(Classifier, network), task, settings, self.precision)
            *_, fitted = fitting.run()
        best = MetricsLog(self.folder.metrics).rows()[-1]["best"]
        assert fitted.validation is not None
        kept = (fitted.validation - best) * len(task.lengths("validation", 0, 0)) >= CLEAR
        facts = {"frozen": fitted.validation, "tuned": best, "kept": kept}
        if kept:
            self._fitting = fitting  # its decision was made before validation was fitted, too
        return network if kept else tuned, facts

    def validate(self) -> Iterator[Progress]:
        """Train and validate without reading the test split."""
        task = prepare(self.config)
        if self.config.entry.baseline:
            self._write_environment(task)
            yield self._fitted(task)[-1]
        else:
            yield from self._learn(task)

    def _fitted(self, task: Task[Any]) -> tuple[Any, dict[str, Any], Progress]:
        """Fit the baseline on the train split and evaluate it on the validation split.

        A head on pretrained vectors is then fitted again, to both splits. Also return what the task
        chose on the validation split.
        """
        with seeded(self.config.training.seed):
            baseline = self.config.entry.build(self.config.network, **task.sizes)
        tokens = int(task.lengths("train", 0, 0).sum())
        begun = time.monotonic()  # as for a network: without reading, tokenizing and evaluating
        task.fit(baseline)
        seconds = max(time.monotonic() - begun, 1e-9)
        validation, loss = task.judge(baseline, "validation")
        train_loss, decision = task.judge(baseline, "train")[1], task.decide(baseline)
        if self.config.entry.pretrained:
            task.fit_all(baseline)
        progress = Progress(
            step=1,
            steps=1,
            epoch=1.0,
            loss=train_loss,
            learning_rate=0.0,
            tokens=tokens,
            tokens_per_second=tokens / seconds,
            seconds=seconds,
            seconds_left=0.0,
            validation=validation,
            validation_loss=loss,
            best=validation,
            peak_mb=peak_mb(),
        )
        self._log(progress)
        return baseline, decision, progress

    def _log(self, progress: Progress) -> None:
        """Log the only step of a fitted model."""
        MetricsLog(self.folder.metrics).add(progress)
        with tracking(self.folder.path, self.config) as track:
            track(progress)

    def _fit(self, task: Task[Any]) -> Progress:
        """Fit the baseline, then write it, if it is kept, and its test predictions."""
        if self.config.model.startswith(COMMAND):
            evaluation, progress = run_command(self.folder.path, self.config, task)
            self._log(progress)
            atomic_io.write_bytes(self.folder.predictions, evaluation.rows())
            return progress
        baseline, decision, progress = self._fitted(task)
        if self.config.entry.kept:
            with TemporaryDirectory() as aside:
                baseline.save(Path(aside))
                files = {path.name: path.read_bytes() for path in Path(aside).iterdir()}
            atomic_io.remove_folder(
                self.folder.baseline
            )  # left by a process that was killed after this
            atomic_io.write_folder(self.folder.baseline, files)
        answers = decided(task, decision).answer(baseline).rows()
        atomic_io.write_bytes(self.folder.predictions, answers)
        if decision:
            environment = {**self.folder.environment(), "decision": decision}
            atomic_io.write_json(self.folder.environment_path, environment)
        return progress

    def _learn(
        self, task: Any, end: bool = False
    ) -> Generator[Progress, None, tuple[nn.Module, dict[str, Any]]]:
        """Train the network and return it with the final content of ``env.json``."""
        config, folder = self.config, self.folder
        model, begun = begin(config, task)
        environment = self._write_environment(
            task,
            {
                "tokenizer": {"tokens": len(task.tokenizer), "sha256": task.tokenizer.sha256},
                **begun,
                "parts": digests(config.named),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
            },
        )
        remember(config.named)
        atomic_io.write_bytes(folder.tokenizer_path, task.tokenizer.to_bytes())
        ranks().wait()
        lengths = task.lengths("train", config.training.seed, 0)
        if ranks().world > 1:
            environment["processes"] = ranks().world
            environment["strategy"] = config.training.strategy
        environment["trained_on"] = {"examples": len(lengths), "tokens": int(lengths.sum())}
        log = MetricsLog(folder.metrics)
        with tracking(folder.path, config) as track:
            for progress in self._steps(task, model, end):
                log.add(progress)
                track(progress)
                if end and progress.seconds_left:
                    environment["ended"] = progress.step / progress.steps
                yield progress
        return model, environment

    def work(self, end: bool) -> Iterator[Progress]:
        """Train the network, then write its weights and its test predictions."""
        config, folder, task = self.config, self.folder, self._task()
        if config.entry.baseline:
            self._write_environment(task)
            remember(config.named)
            yield self._fit(task)
            return
        model, environment = yield from self._learn(task, end)
        if self._begins_with_head(task) and not config.entry.frozen and ranks().world == 1:
            model, environment["head"] = self._better(task, model)
        answers, decision = self._answers(task, model)
        environment |= {"decision": decision} if decision else {}
        atomic_io.write_bytes(folder.weights, safetensors.torch.save(weights(model)))
        atomic_io.write_bytes(folder.predictions, answers)
        atomic_io.write_json(folder.environment_path, environment)

    def _write_environment(self, task: Any, facts: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write ``env.json``, or on a resume check that it still matches the data."""
        data = task.facts()
        written = self.folder.environment()
        if not written:
            written = {**environment(self.config.training), "data": data, **(facts or {})}
            atomic_io.write_json(self.folder.environment_path, written)
        for what, here in (("data", data), *(facts or {}).items()):
            if written.get(what, {}) != here:
                raise RegardError(
                    f"the {what} of {self.folder.path} changed since the training began; "
                    "give another --out"
                )
        return {key: value for key, value in written.items() if key != "ended"}
