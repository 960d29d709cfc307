"""How a run learns: a network is trained, a baseline fitted, and the test split answered once."""

import time
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import safetensors.torch
from torch import nn

from regard import durable
from regard.attention.kernels.choose import Constants, constants_from, using
from regard.errors import RegardError
from regard.memory import peak_mb
from regard.models.tuned import Tuned
from regard.parts import digests
from regard.runs.build import begin, prepare
from regard.runs.config import Config
from regard.runs.environment import environment
from regard.runs.fitting import Fitting
from regard.runs.folder import Folder
from regard.runs.metrics_log import MetricsLog
from regard.tasks.task import Task
from regard.training.checkpoints import weights
from regard.training.loop import Progress, train, using_threads
from regard.training.precision import Precision
from regard.training.ranks import ranks
from regard.training.settings import TrainingSettings
from regard.trusted import remember


def precision_of(folder: Folder) -> Precision:
    """The precision that a run computes in, from its ``env.json``."""
    return Precision(**folder.environment()["precision"])


def kernels_of(folder: Folder) -> Constants:
    """What a run chose its attention kernels by when it began, from its ``env.json``."""
    return constants_from(folder.environment().get("kernels", {}), str(folder.path))


class Learner:
    """Trains a run's network, or fits its baseline, and writes what comes of it.

    What an earlier process wrote is gone on with. The folder is locked by the caller.
    """

    def __init__(self, folder: Folder, config: Config) -> None:
        self.folder, self.config = folder, config

    @property
    def precision(self) -> Precision:
        """The precision that it is trained in."""
        return precision_of(self.folder)

    def work_beside(self, end: bool) -> Iterator[Progress]:
        """Train beside the first process, which alone writes and answers."""
        task = prepare(self.config)
        model, _ = begin(self.config, task)
        ranks().wait()  # until it has written what the training stands on
        yield from self._steps(task, model, end)

    def _steps(self, task: Any, model: nn.Module, end: bool) -> Iterator[Progress]:
        """Train the network, by what ``env.json`` says."""
        environment = self.folder.environment()
        settings = self.config.training.model_copy(update={"threads": environment["threads"]})
        steps, kernels = self._training(task, model, settings, end), kernels_of(self.folder)
        while True:
            with using(kernels):  # not around the yield, where it would be the caller's too
                progress = next(steps, None)
            if progress is None:
                return
            yield progress

    def _training(
        self, task: Any, model: nn.Module, settings: TrainingSettings, end: bool
    ) -> Iterator[Progress]:
        """Learn, and leave the network with its best weights."""
        if self.config.entry.frozen:
            return Fitting(cast(Tuned, model), task, settings, self.precision).run()
        saved = self.folder.checkpoints
        return train(model, task, settings, saved, precision=self.precision, end=end)

    def validate(self) -> Iterator[Progress]:
        """Train and validate; the test split is not read."""
        task = prepare(self.config)
        if self.config.entry.baseline:
            self._begin(task)
            yield self._fitted(task)[1]
        else:
            yield from self._learn(task)

    def _fitted(self, task: Task[Any]) -> tuple[Any, Progress]:
        """Fit the baseline to the train split and judge it on the validation split."""
        baseline = self.config.entry.build(self.config.network, **task.sizes)
        tokens = int(task.lengths("train", 0, 0).sum())
        begun = time.monotonic()  # as a network's: reading, tokens and judging are not training
        task.fit(baseline)
        seconds = max(time.monotonic() - begun, 1e-9)
        validation, loss = task.judge(baseline, "validation")
        progress = Progress(
            step=1,
            steps=1,
            epoch=1.0,
            loss=task.judge(baseline, "train")[1],
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
        MetricsLog(self.folder.metrics).add(progress)
        return baseline, progress

    def _fit(self, task: Task[Any]) -> Progress:
        """Fit the baseline, then write it and its answers on the test split."""
        baseline, progress = self._fitted(task)
        with TemporaryDirectory() as aside:
            baseline.save(Path(aside))
            files = {path.name: path.read_bytes() for path in Path(aside).iterdir()}
        durable.remove_folder(self.folder.baseline)  # of a process killed after this
        durable.write_folder(self.folder.baseline, files)
        durable.write_bytes(self.folder.predictions, task.answer(baseline).rows())
        return progress

    def _learn(
        self, task: Any, end: bool = False
    ) -> Generator[Progress, None, tuple[nn.Module, dict[str, Any]]]:
        """Train the network, and return it with what ``env.json`` is to say in the end."""
        config, folder = self.config, self.folder
        model, begun = begin(config, task)
        environment = self._begin(
            task,
            {
                "tokenizer": {"tokens": len(task.tokenizer), "sha256": task.tokenizer.sha256},
                **begun,
                "parts": digests(config.named),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                **self._processes(),
            },
        )
        remember(config.named)
        durable.write_bytes(folder.tokenizer_path, task.tokenizer.to_bytes())
        ranks().wait()
        lengths = task.lengths("train", config.training.seed, 0)
        environment["trained_on"] = {"examples": len(lengths), "tokens": int(lengths.sum())}
        log = MetricsLog(folder.metrics)
        for progress in self._steps(task, model, end):
            log.add(progress)
            if end and progress.seconds_left:
                environment["ended"] = progress.step / progress.steps
            yield progress
        return model, environment

    def work(self, end: bool) -> Iterator[Progress]:
        """Train the network, then write its weights and its answers on the test split."""
        config, folder, task = self.config, self.folder, prepare(self.config)
        if config.entry.baseline:
            self._begin(task)
            yield self._fit(task)
            return
        model, environment = yield from self._learn(task, end)
        with (
            using_threads(environment["threads"]),
            self.precision.autocast(config.training.device),
            using(kernels_of(self.folder)),
        ):
            answers = task.answer(model).rows()
        durable.write_bytes(folder.weights, safetensors.torch.save(weights(model)))
        durable.write_bytes(folder.predictions, answers)
        durable.write_json(folder.environment_path, environment)

    def _begin(self, task: Any, facts: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write ``env.json``, or on a resume see that what it tells of the data still holds."""
        data = task.facts()
        written = self.folder.environment()
        if not written:
            written = {**environment(self.config.training), "data": data, **(facts or {})}
            durable.write_json(self.folder.environment_path, written)
        for what, here in (("data", data), *(facts or {}).items()):
            if written.get(what, {}) != here:
                raise RegardError(
                    f"the {what} of {self.folder.path} are not what they were when it began; "
                    "give another --out"
                )
        return {key: value for key, value in written.items() if key != "ended"}

    def _processes(self) -> dict[str, int]:
        """How many train it, where several do or did: with another number other batches come."""
        several = ranks().world > 1 or "processes" in self.folder.environment()
        return {"processes": ranks().world} if several else {}
