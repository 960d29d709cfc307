"""One run: a task, a model, a folder. Train it, judge it, ask it, look inside."""

import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, cast, overload

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import nn

from regard import durable
from regard.analysis.record import record, table
from regard.attention.kernels.choose import Constants, constants_from, using
from regard.data.batches import pad
from regard.data.files import read_examples
from regard.errors import RegardError
from regard.runs.build import build_network, facts, pretrained
from regard.runs.config import CONFIG, Config
from regard.runs.environment import environment
from regard.runs.evaluation import Evaluation, Prediction, predictions
from regard.runs.folder import Folder
from regard.runs.metrics_log import MetricsLog
from regard.tasks import TASKS
from regard.tasks.classification import Classification, truncate
from regard.tasks.metrics import accuracy, log_loss
from regard.tasks.settings import ClassificationSettings
from regard.training.checkpoints import load_weights, weights
from regard.training.loop import Progress, train, using_threads
from regard.training.memory import peak_mb
from regard.training.precision import Precision

if TYPE_CHECKING:
    from regard.models.baselines import Baseline


class Looked(NamedTuple):
    """What one attention layer did with one text: weights (heads, queries, keys) over tokens.

    One query: a pool that makes one vector of the text. Else each token asks in its turn.
    """

    layer: str
    tokens: list[str]
    weights: NDArray[np.float32]


class Run:
    """A run in its folder. Made by `start`, `open_or_start` and `load`."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = Folder(folder), config

    def __repr__(self) -> str:
        state = "complete" if self.complete else "not complete"
        return f"<Run {self.folder.path}: {self.config.model} on {self.config.task}, {state}>"

    @property
    def complete(self) -> bool:
        """Whether it has trained and answered the test split."""
        return self.folder.complete

    def train(self) -> Iterator[Progress]:
        """Train to the end of the budget, from where an earlier process stopped.

        At the end the test split is answered, once, and the folder sealed. A complete run yields
        nothing. Errors: another process trains here; the data have changed since the run began;
        no space left (nothing is lost: run it again).
        """
        if self.complete:
            self.folder.tidy()  # after a process that was killed just before it did
            return
        with self.folder.locked():
            durable.remove_leftovers(self.folder.path)
            task = TASKS[self.config.task].prepare(self.config.data)
            if self.config.entry.kind == "baseline":
                self._begin(task)
                yield self._fit(task)
            else:
                yield from self._train(task)
            self.folder.seal()

    def evaluate(
        self, data: Path | None = None, *, text: str | None = None, label: str | None = None
    ) -> Evaluation:
        """How right the run is: on its test split, as answered at its end, or on a labelled file.

        `text` and `label` name the file's columns where they have no usual name. Errors: the run
        is not complete; a bad row or an unknown label, by file:line.
        """
        self._must_be_complete()
        if data is None:
            return self.folder.read_predictions(self.labels)
        settings = self._data_settings
        examples = read_examples(
            data, text=text or settings.text or None, label=label or settings.label or None
        )
        said = self.probabilities([example.text for example in examples])
        return Evaluation.judge(self.labels, examples, said)

    @overload
    def predict(self, texts: str) -> Prediction: ...
    @overload
    def predict(self, texts: list[str]) -> list[Prediction]: ...
    def predict(self, texts: str | list[str]) -> Prediction | list[Prediction]:
        """The label of a text, or of each of many. The data of the training are not needed."""
        if isinstance(texts, str):
            return self.predict([texts])[0]
        return predictions(self.labels, self.probabilities(texts))

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.floating]:
        """(texts, labels), the labels in the order of `labels`."""
        self._must_be_complete()
        if self.config.entry.kind == "baseline":
            return self.baseline.probabilities(list(texts))
        with self._precision.autocast(), using(self._kernels):
            return self.task.predict(self.network, list(texts))

    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at in a text; nothing of a model without such layers.

        Errors: a baseline, which has no layers; a text without words.
        """
        self._must_be_complete()
        if self.config.entry.kind == "baseline":
            raise RegardError(f"{self.config.model} counts words; it has no attention to look at")
        tokens = self.tokens(text)
        if not tokens:
            raise RegardError("there is no word to look at in this text")
        padded, lengths = pad(self.task.encode([text]))
        with (
            torch.no_grad(),
            self._precision.autocast(),
            using(self._kernels),
            record(self.network) as recording,
        ):
            self.network(padded, lengths)
            found = [(name, table(seen).float().numpy()[0]) for name, seen in recording.layers]
        return [
            Looked(
                name,
                tokens if kept.shape[-1] == len(tokens) else ["[CLS]", *tokens],
                kept.reshape(-1, *kept.shape[-2:]),
            )
            for name, kept in found
        ]

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``: fields of `Progress`, some steps left out."""
        return MetricsLog(self.folder.metrics).rows()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the run tells apart."""
        return tuple(self._environment["data"]["labels"])

    @cached_property
    def task(self) -> Classification:
        """The task with the run's own tokenizer and labels; the data are read only if asked for."""
        return Classification(self._data_settings, self.folder.read_tokenizer(), self.labels)

    @cached_property
    def network(self) -> nn.Module:
        """The trained network, best weights, in evaluation mode."""
        self._must_be_complete()
        width = self._environment["vectors"].get("width")
        model = build_network(self.config, len(self.task.tokenizer), len(self.labels), width=width)
        load_weights(model, self.folder.read_weights())
        return model.eval()

    @cached_property
    def baseline(self) -> "Baseline":
        """The fitted baseline."""
        from regard.models import baselines  # scikit-learn, half a second that networks need not

        self._must_be_complete()
        durable.read_folder(self.folder.baseline)
        return baselines.load(self.folder.baseline)

    @cached_property
    def _environment(self) -> dict[str, Any]:
        return self.folder.environment()

    @property
    def _precision(self) -> Precision:
        return Precision(**self._environment["precision"])

    @property
    def _kernels(self) -> Constants:
        """What the run chose its attention kernels by when it began."""
        return constants_from(self._environment.get("kernels", {}), str(self.folder.path))

    @property
    def _data_settings(self) -> ClassificationSettings:
        return cast(ClassificationSettings, self.config.data)

    def _begin(self, task: Classification, facts: dict[str, Any] | None = None) -> dict[str, Any]:
        """Write ``env.json``, or on a resume see that what it tells of the data still holds."""
        data = {
            "name": task.corpus.name,
            "fingerprint": task.corpus.fingerprint,
            "labels": list(task.labels),
            "notes": list(task.corpus.notes),
        }
        written = self.folder.environment()
        if not written:
            written = {**environment(self.config.training), "data": data, **(facts or {})}
            durable.write_json(self.folder.environment_path, written)
        for what, here in (("data", data), *(facts or {}).items()):
            if written[what] != here:
                raise RegardError(
                    f"the {what} of {self.folder.path} are not what they were when it began; "
                    "give another --out"
                )
        self.__dict__.pop("_environment", None)
        return written

    def _train(self, task: Classification) -> Iterator[Progress]:
        """Train the network, then write its weights and its answers on the test split."""
        config, folder = self.config, self.folder
        vectors = pretrained(config, task.tokenizer.vocabulary)
        model = build_network(config, len(task.tokenizer), len(task.labels), vectors=vectors)
        environment = self._begin(
            task,
            {
                "tokenizer": {"tokens": len(task.tokenizer), "sha256": task.tokenizer.sha256},
                "vectors": facts(vectors),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
            },
        )
        durable.write_bytes(folder.tokenizer_path, task.tokenizer.to_bytes())
        settings = config.training.model_copy(update={"threads": environment["threads"]})
        log, precision = MetricsLog(folder.metrics), Precision(**environment["precision"])
        steps = train(model, task, settings, folder.checkpoints, precision=precision)
        while True:
            with using(self._kernels):  # not around the yield, where it would be the caller's too
                progress = next(steps, None)
            if progress is None:
                break
            log.add(progress)
            yield progress
        with using_threads(settings.threads), precision.autocast(), using(self._kernels):
            said = task.predict(model, "test")
        durable.write_bytes(folder.weights, safetensors.torch.save(weights(model)))
        judged = Evaluation.judge(task.labels, task.test.examples, said)
        durable.write_bytes(folder.predictions, judged.rows())

    def _fit(self, task: Classification) -> Progress:
        """Fit the baseline, then write it and its answers on the test split."""
        begun, config, folder = time.monotonic(), self.config, self.folder
        baseline: "Baseline" = config.entry.build(
            config.network, vocabulary=0, labels=len(task.labels)
        )
        texts = {
            name: [example.text for example in task.split(name).examples]
            for name in ("train", "validation", "test")
        }
        baseline.fit(texts["train"], task.answers("train"))
        known = log_loss(baseline.probabilities(texts["train"]), task.answers("train"))
        held = baseline.probabilities(texts["validation"])
        answers = task.answers("validation")
        with TemporaryDirectory() as aside:
            baseline.save(Path(aside))
            files = {path.name: path.read_bytes() for path in Path(aside).iterdir()}
        durable.remove_folder(folder.baseline)  # of a process killed after this
        durable.write_folder(folder.baseline, files)
        said = baseline.probabilities(texts["test"])
        judged = Evaluation.judge(task.labels, task.test.examples, said)
        durable.write_bytes(folder.predictions, judged.rows())
        seconds, tokens = time.monotonic() - begun, int(task.train.lengths.sum())
        validation = accuracy(held, answers)
        progress = Progress(
            step=1,
            steps=1,
            epoch=1.0,
            loss=known,
            learning_rate=0.0,
            tokens=tokens,
            tokens_per_second=tokens / seconds,
            seconds=seconds,
            seconds_left=0.0,
            validation=validation,
            validation_loss=log_loss(held, answers),
            best=validation,
            peak_mb=peak_mb(),
        )
        MetricsLog(folder.metrics).add(progress)
        return progress

    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model sees, as its writer would recognise them."""
        pieces, settings = self.task.tokenizer.split(text), self._data_settings
        kept = truncate(range(len(pieces)), settings.length, settings.truncate)
        return [pieces[place] for place in kept]

    def _must_be_complete(self) -> None:
        if not self.complete:
            raise RegardError(
                f"the run in {self.folder.path} is not complete; the command that began it goes on "
                "from where it was"
            )


def start(
    folder: Path | str,
    task: str = "sentiment",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """A new run in a folder of its own. Errors: there is something already."""
    path = Path(folder)
    if (path / CONFIG).exists():
        raise RegardError(f"{path} holds a run already; open_or_start would go on with it")
    return open_or_start(path, task, model, overrides)


def open_or_start(
    folder: Path | str,
    task: str = "sentiment",
    model: str = "transformer",
    overrides: Sequence[str] = (),
) -> Run:
    """The run in a folder if its settings are these, or a new one in a new folder.

    `overrides` are ``key=value`` settings of task, model and training. Errors: a folder of
    something else; a run of other settings, each named.
    """
    config, place = Config.make(task, model, overrides), Folder(Path(folder))
    path = place.path
    if place.holds_something_else():
        raise RegardError(f"{path} holds something else than a run; give another --out")
    if not place.begun:  # or one that came to nothing, of a mistake in its settings or data
        with durable.told(path, 0):
            path.mkdir(parents=True, exist_ok=True)
        with place.locked():
            if not place.begun and not _same(config, path):
                durable.write_bytes(path / CONFIG, config.toml())
    if differences := config.differences(Config.read(path)):
        raise RegardError(
            f"{path} holds another run: {', '.join(differences)}; "
            "give another --out, or the same settings to go on"
        )
    return Run(path, config)


def _same(config: Config, path: Path) -> bool:
    return (path / CONFIG).exists() and (path / CONFIG).read_bytes() == config.toml()


def load(folder: Path | str) -> Run:
    """The run in a folder, to judge it, ask it, or go on with it.

    Errors: no such folder, no run in it.
    """
    path = Path(folder)
    return Run(path, Config.read(path))
