"""Forecast the cost of a training from one step on each of two batches."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regard.data.token_corpus import TokenCorpus
from regard.layers.device import to_device
from regard.memory import forget_peak, peak_mb
from regard.models.classifiers import Classifier
from regard.runs.build import begin, prepare
from regard.runs.config import Config
from regard.runs.fitting import Fitting
from regard.runs.room import need
from regard.tasks.classification.task import Classification
from regard.tasks.task import SPLITS
from regard.training.clock import follow_the_clock, warning
from regard.training.loop import Training, seeded, using_threads, validations
from regard.training.precision import choose_precision

if TYPE_CHECKING:
    pass

SAMPLE = 200  # number of texts to fit a baseline to
FORWARD = 3  # cost of a step in forward passes


@dataclass(frozen=True)
class Forecast:
    """The approximate cost of a training on this machine, estimated from a step or two.

    `disk_mb` is for training (three checkpoints of weights, best weights and optimizer); a
    completed run keeps only its weights. `at_most`: patience may stop it earlier. `warnings`: about
    a budget in minutes with few updates, and about memory.
    """

    task: str
    model: str
    train: int
    validation: int
    test: int
    parameters: int
    steps: int
    seconds: float
    tokens_per_second: float
    memory_mb: float
    disk_mb: float
    precision: str
    notes: tuple[str, ...]
    at_most: bool = False
    warnings: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        return asdict(self)


def forecast(task: str, model: str, overrides: Sequence[str] = ()) -> Forecast:
    """Forecast a training by the faster of two steps. Nothing is written.

    Errors: those of `open_or_start` and of the beginning of `Run.train`.
    """
    config = Config.make(task, model, overrides)
    prepared = prepare(config)
    forget_peak()  # measure the memory of each arm separately
    if config.entry.baseline:
        return _of_baseline(config, prepared)
    if config.entry.frozen:
        return _of_frozen(config, prepared)
    return _of_network(config, prepared)


def _of_network(config: Config, task: Any) -> Forecast:
    settings = config.training
    precision = choose_precision(settings.precision, settings.device)
    network, _ = begin(config, task)
    length = int(getattr(config.network, "length", 0))
    tight = need(network, settings, not config.entry.frozen, length).warning
    training = Training(network, task, settings, precision)
    with using_threads(settings.threads):
        follow_the_clock(training)
    plan = training.plan()
    with using_threads(settings.threads):
        # Warm up: one-time costs of the process.
        with seeded(0, training.device), precision.autocast(settings.device):
            task.loss(network, to_device(network, task.batch("train", plan[0]))).backward()
        pace = min(_pace(training, indexes) for indexes in plan[:2])
    tokens = {side: int(task.lengths(side, settings.seed, 0).sum()) for side in SPLITS}
    mean = tokens["train"] / len(plan)
    unit, amount = settings.budget_of(len(plan))
    steps = {
        "epochs": amount * len(plan),
        "steps": amount,
        "tokens": amount / mean,
        "minutes": amount * 60 / (pace * mean),
    }[unit]
    parts, epochs = validations(settings, len(plan))
    between = settings.evaluate_every or max(len(plan) * epochs / parts, 1)
    judged = (1 + steps / between) * tokens["validation"] + tokens["test"]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    few = warning(settings, steps, training.batch_tokens)
    return Forecast(
        task=config.task,
        model=config.model,
        train=_texts(task, "train"),
        validation=_texts(task, "validation"),
        test=_texts(task, "test"),
        parameters=parameters,
        steps=round(steps),
        seconds=amount * 60 if unit == "minutes" else pace * (steps * mean + judged / FORWARD),
        tokens_per_second=1 / pace,
        memory_mb=peak_mb(),
        disk_mb=3 * 4 * 4 * parameters / 1e6,
        precision=f"{precision.name}: {precision.reason}",
        notes=tuple(task.notes),
        at_most=settings.patience > 0,
        warnings=tuple(filter(None, (tight, few))),
    )


def _texts(task: Any, split: str) -> int:
    """Return the number of texts of a split."""
    if isinstance(task.corpus, TokenCorpus):
        return task.corpus.index.total("documents", split)
    return len(task.split(split))


def _of_frozen(config: Config, task: Classification) -> Forecast:
    settings = config.training
    precision = choose_precision(settings.precision, settings.device)
    network, _ = begin(config, task)
    assert isinstance(network, Classifier)
    fitting = Fitting(network, task, settings, precision)
    middle = fitting.batches[len(fitting.batches) // 2 :][:2]
    with using_threads(settings.threads), seeded(0, fitting.device):
        fitting.states(*fitting.batches[0])  # warm up: one-time costs of the process
        fitting.tokens, begun = 0, time.monotonic()
        for split, indexes in middle:
            fitting.states(split, indexes)
    pace = (time.monotonic() - begun) / max(fitting.tokens, 1)
    tokens = sum(int(task.split(side).lengths.sum()) for side in SPLITS)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Forecast(
        task=config.task,
        model=config.model,
        train=len(task.train),
        validation=len(task.validation),
        test=len(task.test),
        parameters=parameters,
        steps=len(fitting.batches) + 1,
        seconds=pace * tokens,
        tokens_per_second=1 / pace,
        memory_mb=peak_mb(),
        disk_mb=4 * parameters / 1e6,
        precision=f"{precision.name}: {precision.reason}",
        notes=tuple(task.corpus.notes),
    )


def _pace(training: Training, indexes: NDArray[np.integer]) -> float:
    """Return the seconds per token, without padding, of one step on a batch."""
    begun, before = time.monotonic(), training.state.tokens
    training.update(indexes)
    return (time.monotonic() - begun) / max(training.state.tokens - before, 1)


def _of_baseline(config: Config, task: Any) -> Forecast:
    baseline = config.entry.build(config.network, **task.sizes)
    sizes = {side: task.lengths(side, 0, 0) for side in SPLITS}
    train = len(sizes["train"])
    chosen = task.sample(max(train // SAMPLE, 1))
    begun = time.monotonic()
    task.fit(baseline, chosen)
    every = train / len(chosen)
    seconds = max(time.monotonic() - begun, 1e-6) * every
    return Forecast(
        task=config.task,
        model=config.model,
        train=train,
        validation=len(sizes["validation"]),
        test=len(sizes["test"]),
        parameters=sum(array.size for array in baseline.arrays.values()),
        steps=1,
        seconds=seconds,
        tokens_per_second=int(sizes["train"].sum()) / seconds,
        memory_mb=peak_mb(),
        disk_mb=sum(array.nbytes for array in baseline.arrays.values()) / 1e6 * every,
        precision="fp32: scikit-learn's",
        notes=tuple(task.notes),
    )
