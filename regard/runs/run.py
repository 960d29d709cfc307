"""One run: a task, a model, a folder. Train it, judge it, ask it: what all kinds of run share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import durable
from regard.analysis.record import Recording, table
from regard.attention import Attended
from regard.attention.kernels.choose import Constants, constants_from, using
from regard.attention.kernels.summary import Summary
from regard.errors import RegardError
from regard.parts import changed, digests
from regard.runs.build import begin, build_network, prepare, tokenizer_kind
from regard.runs.config import Config
from regard.runs.environment import environment
from regard.runs.folder import Folder
from regard.runs.metrics_log import MetricsLog
from regard.shown import shown
from regard.training.checkpoints import load_weights, must_describe, weights
from regard.training.convergence import CONVERGED, MEANINGS, outcome
from regard.training.loop import NOTHING, Progress, train, using_threads
from regard.training.precision import Precision
from regard.training.ranks import ranks
from regard.training.settings import TrainingSettings
from regard.trusted import remember

ENDED = "the training was ended by hand after {:.0%} of its budget"
READ = "judged by texts that it has read: validation=0 holds none out"
TIMED = "its budget of {:g} minutes was {:,} steps on this machine: {} repeats it elsewhere"
_most: ContextVar[float] = ContextVar("weights that one text may have", default=math.inf)


class TooManyWeightsError(RegardError):
    """A text has more weights of attention than `at_most` takes; ``weights`` tells how many."""

    def __init__(self, most: float, weights: int) -> None:
        super().__init__(f"a text may have {most:,} weights of attention here, not {weights:,}")
        self.weights = weights


@contextmanager
def at_most(weights: int) -> Iterator[None]:
    """Inside, the layers of a text with more weights together are refused, none computed."""
    token = _most.set(weights)
    try:
        yield
    finally:
        _most.reset(token)


class Looked(NamedTuple):
    """What one attention layer did with one text: weights (heads, queries, keys) over tokens.

    One query: a pool that makes one vector of the text. Else each token asks in its turn: the
    text's own, or those of ``asking``, a text that is written.
    """

    layer: str
    tokens: list[str]
    weights: NDArray[np.float32]
    asking: list[str] | None = None

    def __repr__(self) -> str:
        shape = " × ".join(map(str, self.weights.shape[1:]))
        heads = f"{len(self.weights)} head{'s' * (len(self.weights) != 1)}"
        return f"<Looked {self.layer}: {heads}, {shape} weights>"

    def _repr_html_(self) -> str:
        return shown(self)


def looked(recording: Recording, tokens: Sequence[str]) -> list[Looked]:
    """What each recorded layer did with the first text of its batch. Errors: see `at_most`."""
    must_be_few(recording)
    return [Looked(name, list(tokens), heads(table(seen))) for name, seen in recording.layers]


def must_be_few(recording: Recording) -> None:
    """Errors: the tables of a recording, which are yet to be made, are over `at_most`."""
    found = sum(_size(seen) for _, seen in recording.layers)
    if found > _most.get():
        raise TooManyWeightsError(_most.get(), found)


def _size(seen: Attended | Summary) -> int:
    """Numbers in the `table` of a layer."""
    if isinstance(seen, Summary):
        return seen.mass.numel() * seen.indices.shape[-2]
    return seen.shape.numel()


def heads(weights: Tensor) -> NDArray[np.float32]:
    """(heads, queries, keys) of the first row of a batch."""
    kept = weights.float()[0]
    return np.asarray(kept.reshape(-1, *kept.shape[-2:]).numpy(), dtype=np.float32)


class Run(ABC):
    """A run in its folder. Made by `start`, `open_or_start` and `load`."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.folder, self.config = Folder(folder), config

    def __repr__(self) -> str:
        state = "complete" if self.complete else "not complete"
        data = getattr(self.config.data, "data", self.config.task)
        what = self.config.task if data == self.config.task else f"{self.config.task} ({data})"
        return f"<Run {self.folder.path}: {self.config.model} on {what}, {state}>"

    _repr_html_ = shown

    @property
    def complete(self) -> bool:
        """Whether it has trained and answered the test split."""
        return self.folder.complete

    def train(self, *, end: bool = False) -> Iterator[Progress]:
        """Train to the end of the budget, from where an earlier process stopped.

        At the end the test split is answered, once, and the folder sealed. A complete run yields
        nothing. With `end` the end is here: the best weights of the newest checkpoint are the
        run's, which says so (`ended`). Errors: another process trains here; the data have changed
        since the run began; no space left (nothing is lost: run it again); nothing to end with.
        """
        if self.complete:
            self.folder.tidy()  # after a process that was killed just before it did
            return
        if end and not self.folder.checkpoints.steps():
            raise RegardError(NOTHING)
        if ranks().world > 1 and self.config.entry.kind != "network":
            raise RegardError(f"{self.config.model} is fitted, not trained: start one process")
        if ranks().first:
            with self.folder.locked():
                durable.remove_leftovers(self.folder.path)
                yield from self._work(prepare(self.config), end)
                self.folder.seal()
        else:
            yield from self._beside(prepare(self.config), end)
        ranks().wait()

    def try_out(self) -> Iterator[Progress]:
        """Train and validate as `train` does, and leave the test split unread.

        For a search over settings: nothing is answered and the run stays incomplete; `metrics`
        has its validation scores. It goes on where an earlier process stopped. Errors: as `train`.
        """
        with self.folder.locked():
            durable.remove_leftovers(self.folder.path)
            yield from self._validated(prepare(self.config))

    @property
    def ended(self) -> float | None:
        """The share of its budget after which it was ended by hand, if it was."""
        share = self._environment.get("ended")
        return None if share is None else float(share)

    @property
    def notes(self) -> list[str]:
        """What is to be known of its figures, as sentences."""
        found = [] if self.ended is None else [ENDED.format(self.ended)]
        if self.ended is None and self.complete and (how := self.convergence) != CONVERGED:
            found.append(f"{how}: {MEANINGS[how]}")
        if self.repeat:
            steps = self.metrics()[-1]["steps"]
            found.append(TIMED.format(self.config.training.minutes, steps, self.repeat))
        return found if self.held_out else [*found, READ]

    @property
    def repeat(self) -> str | None:
        """The budget in steps of a run whose budget was minutes, as settings; None of others.

        With the batch, ``steps=900 batch_tokens=512``, where that was chosen by the time as well.
        What a minute holds depends on the machine and on what else it does; steps do not. Of a
        training that stopped early, by ``patience`` or by hand, these are the steps foreseen.
        """
        training, rows = self.config.training, self.metrics()
        if training.budget.unit != "minutes" or self.config.entry.kind == "baseline" or not rows:
            return None
        batch = rows[-1].get("batch_tokens")
        return f"steps={rows[-1]['steps']}{f' batch_tokens={batch}' if batch else ''}"

    @abstractmethod
    def evaluate(
        self, data: Path | None = None, *, text: str | None = None, label: str | None = None
    ) -> Any:
        """How good the run is: on its test split, as answered at its end, or on a file."""

    @abstractmethod
    def predict(self, texts: Any) -> Any:
        """The run's answer to a text, or to each of many."""

    @abstractmethod
    def attention(self, text: str) -> list[Looked]:
        """What each attention layer looks at in a text."""

    @abstractmethod
    def tokens(self, text: str) -> list[str]:
        """The pieces of a text that the model sees, as its writer would recognise them."""

    @abstractmethod
    def left_out(self, texts: Sequence[str]) -> list[int]:
        """How many tokens of each text are beyond those that the run reads."""

    @property
    def keeps(self) -> str:
        """Which tokens of a longer text it reads: head, tail or ends."""
        return str(getattr(self.config.data, "truncate", "head"))

    @property
    @abstractmethod
    def validates(self) -> str:
        """The name of the metric that validation measures; `Progress` has it as a share.

        Of "likelihood" and "log loss" that share is exp(−loss).
        """

    @property
    def held_out(self) -> bool:
        """Whether the run has not read what it is judged by."""
        return True

    @abstractmethod
    def size(self, texts: Sequence[str]) -> tuple[int, int | None]:
        """Parameters, and operations of a forward pass for the text of median length.

        No operations where they are not counted.
        """

    def about(self) -> dict[str, Any]:
        """What else a list of answers tells, as plain values."""
        return {}

    @abstractmethod
    def answer_test(self, task: Any, model: nn.Module) -> bytes:
        """``predictions.jsonl``: what the trained network says to the test split."""

    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``: fields of `Progress`, some steps left out."""
        return MetricsLog(self.folder.metrics).rows()

    @property
    def convergence(self) -> str:
        """How the training had ended: a word of `regard.training.convergence`.

        What is fitted and not trained, as a baseline is, is "converged".
        """
        if self.config.entry.kind != "network":
            return CONVERGED
        return outcome(self.metrics(), self.config.training.patience)

    @cached_property
    def task(self) -> Any:
        """The task with the run's own tokenizer; the data are read only if asked for."""
        return prepare(self.config, self.folder.read_tokenizer(tokenizer_kind(self.config)))

    @cached_property
    def network(self) -> nn.Module:
        """The trained network, best weights, in evaluation mode. Errors: a baseline has none."""
        self.must_be_complete()
        if self.config.entry.kind == "baseline":
            raise RegardError(f"{self.config.model} is no network: ask .baseline")
        self._same_parts()
        width = self._environment.get("vectors", {}).get("width")
        build = partial(build_network, self.config, **self.task.sizes, width=width)
        stored = self.folder.read_weights()
        shapes = {name: tensor.shape for name, tensor in stored.items()}
        must_describe(self.config.network.model_dump(), build, shapes, self.folder.path)
        model = build()
        load_weights(model, stored)
        for name, parameter in model.named_parameters():
            if not parameter.isfinite().all():
                raise RegardError(f"{self.folder.weights}: {name} has numbers that are not finite")
        return model.eval()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inside, the network computes as it did in training: its precision, its kernels."""
        with torch.no_grad(), self._precision.autocast(), using(self._kernels):
            yield

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

    def _beside(self, task: Any, end: bool) -> Iterator[Progress]:
        """Train beside the first process, which alone writes and answers."""
        model, _ = begin(self.config, task)
        ranks().wait()  # until it has written what the training stands on
        yield from self._steps(task, model, end)
        self.__dict__.pop("_environment", None)

    def _steps(self, task: Any, model: nn.Module, end: bool) -> Iterator[Progress]:
        """Train the network, by what ``env.json`` says."""
        environment = self._environment
        settings = self.config.training.model_copy(update={"threads": environment["threads"]})
        steps = self._training(task, model, settings, end)
        while True:
            with using(self._kernels):  # not around the yield, where it would be the caller's too
                progress = next(steps, None)
            if progress is None:
                return
            yield progress

    def _training(
        self, task: Any, model: nn.Module, settings: TrainingSettings, end: bool
    ) -> Iterator[Progress]:
        """Learn, and leave the network with its best weights."""
        saved, precision = self.folder.checkpoints, self._precision
        return train(model, task, settings, saved, precision=precision, end=end)

    def _validated(self, task: Any) -> Iterator[Progress]:
        """Train and validate; the test split is not read."""
        yield from self._learn(task)

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
                "parts": digests(config.network.model_dump()),
                "parameters": sum(parameter.numel() for parameter in model.parameters()),
                **self._processes(),
            },
        )
        remember(config.network.model_dump())
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

    def _work(self, task: Any, end: bool) -> Iterator[Progress]:
        """Train the network, then write its weights and its answers on the test split."""
        config, folder = self.config, self.folder
        model, environment = yield from self._learn(task, end)
        with (
            using_threads(environment["threads"]),
            self._precision.autocast(config.training.device),
            using(self._kernels),
        ):
            answers = self.answer_test(task, model)
        durable.write_bytes(folder.weights, safetensors.torch.save(weights(model)))
        durable.write_bytes(folder.predictions, answers)
        durable.write_json(folder.environment_path, environment)
        self.__dict__.pop("_environment", None)

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
        self.__dict__.pop("_environment", None)
        return {key: value for key, value in written.items() if key != "ended"}

    def _processes(self) -> dict[str, int]:
        """How many train it, where several do or did: with another number other batches come."""
        several = ranks().world > 1 or "processes" in self._environment
        return {"processes": ranks().world} if several else {}

    def _same_parts(self) -> None:
        """Errors: a file of one's own that the run was trained with has changed since."""
        known = self._environment.get("parts", {})
        for spec in changed(self.config.network.model_dump(), known):
            raise RegardError(
                f"{spec} has changed since {self.folder.path} was trained with it; put it back, "
                "or train anew in another --out"
            )

    def must_be_complete(self) -> None:
        """Errors: a run that is not, which answers nothing."""
        if not self.complete:
            raise RegardError(
                f"the run in {self.folder.path} is not complete; the command that began it goes on "
                "from where it was, and `regard train … --end` ends it there"
            )
