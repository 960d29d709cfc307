"""Forecast the cost of a training from some steps and a validation."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from regard.core.errors import RegardError
from regard.core.memory import forget_peak, peak_mb
from regard.core.names import COMMAND
from regard.lab.runs.build import begin, prepare
from regard.lab.runs.config import Config
from regard.lab.runs.fitting import Fitting
from regard.lab.runs.room import need
from regard.lab.tasks.classification.task import Classification
from regard.nn.models.classifiers import Classifier
from regard.training.clock import follow_the_clock, warning
from regard.training.learnable import SPLITS
from regard.training.loop import (
    TYPICAL,
    Training,
    expected_steps,
    seeded,
    steps_between,
    using_threads,
)
from regard.training.precision import Precision, choose_precision
from regard.training.settings import MOST_TOKENS

Clock = Callable[[], float]

SAMPLE = 200  # number of texts to fit a baseline to
FORWARD = 3  # cost of a step in forward passes
WARM, TIMED = 2, 6  # numbers of warm-up steps and of timed steps
LONGEST = 5.0  # maximum seconds of timed steps, and of a timed validation
BUSY = 1.5  # maximum slowdown by other processes on the same cores


@dataclass(frozen=True)
class Forecast:
    """The approximate cost of a training on this machine, estimated from some steps.

    `steps` and `seconds` are typical; `most_steps` is the total without early stopping,
    `most_seconds` its time on a busy machine. `disk_mb` is for training (three checkpoints of
    weights, best weights and optimizer); a completed run keeps only its weights. `warnings`: about
    a budget in minutes with few updates, and about memory.
    """

    task: str
    model: str
    train: int
    validation: int
    test: int
    parameters: int
    steps: int
    most_steps: int
    seconds: float
    most_seconds: float
    tokens_per_second: float
    memory_mb: float
    disk_mb: float
    precision: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """Return the forecast as JSON values."""
        return asdict(self)


def forecast(
    task: str,
    model: str,
    overrides: Sequence[str] = (),
    *,
    typical: float | None = None,
    clock: Clock = time.monotonic,
) -> Forecast:
    """Forecast a training by some steps and a validation. Nothing is written.

    `typical`: the typical number of validations of a training, divided by its patience, if known.
    Raises: as `open_or_start` and the beginning of `Run.train`.
    """
    config, begun = Config.make(task, model, overrides), clock()
    prepared = prepare(config)
    forget_peak()  # measure the memory of each arm separately
    if config.model.startswith(COMMAND):
        raise RegardError(f"{config.model} is not run by --dry-run, so its time is unknown")
    if config.entry.baseline:
        return _of_baseline(config, prepared, clock)
    if config.entry.frozen:
        return _of_frozen(config, prepared, clock)
    return _of_network(config, prepared, typical or TYPICAL, clock, begun)


def _about(config: Config, task: Any) -> dict[str, Any]:
    """Return the fields that no model decides: names, sizes of the splits, memory so far."""
    sizes = {split: task.texts(split) for split in SPLITS}
    return {"task": config.task, "model": config.model, **sizes, "memory_mb": peak_mb()}


def _of_network(config: Config, task: Any, typical: float, clock: Clock, begun: float) -> Forecast:
    settings = config.training
    precision = choose_precision(settings.precision, settings.device)
    network, _ = begin(config, task)
    length = int(getattr(config.network, "length", 0))
    tight = need(network, settings, not config.entry.frozen, length).warning
    training = Training(network, task, settings, precision)
    with using_threads(settings.threads):
        follow_the_clock(training)
        plan = training.plan()
        start = clock() - begun
        pace = _pace(training, plan, clock)
        mean = int(task.lengths("train", settings.seed, 0).sum()) / len(plan)
        unit, amount = settings.budget_of(len(plan))
        most = {
            "epochs": amount * len(plan),
            "steps": amount,
            "tokens": amount / mean,
            "minutes": amount * 60 / (pace * mean),
        }[unit]
        every = steps_between(settings, len(plan))
        usual = expected_steps(settings, every, most, typical=typical)
        judging, testing = _judging(task, network, pace, precision, settings.device, clock)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    few = warning(settings, most, training.batch_tokens)

    def seconds(steps: float) -> float:
        return start + steps * pace * mean + (steps // every + 1) * judging + testing

    whole = amount * 60 + testing if unit == "minutes" else seconds(most)
    return Forecast(
        **_about(config, task),
        parameters=parameters,
        steps=round(usual),
        most_steps=round(most),
        seconds=min(seconds(usual), whole) if usual < most else whole,
        most_seconds=whole if unit == "minutes" else BUSY * whole,
        tokens_per_second=1 / pace,
        disk_mb=3 * 4 * 4 * parameters / 1e6,
        precision=f"{precision.name}: {precision.reason}",
        notes=tuple(task.notes),
        warnings=tuple(filter(None, (tight, few))),
    )


def _judging(
    task: Any, network: nn.Module, pace: float, precision: Precision, device: str, clock: Clock
) -> tuple[float, float]:
    """Return the seconds of a validation, and of the prediction of the test split.

    The time of a long validation is estimated from its tokens.
    """
    tokens = {side: int(task.lengths(side, 0, 0).sum()) for side in SPLITS}
    judged = task.decodes("validation")
    seconds = tokens["validation"] * pace / FORWARD
    if 0 < seconds < LONGEST:
        begun = clock()
        with torch.no_grad(), precision.autocast(device):
            task.judge(network, "validation", tokens=MOST_TOKENS)
        seconds = clock() - begun
    if judged:
        return seconds, seconds * task.texts("test") / judged
    return seconds, seconds * tokens["test"] / max(tokens["validation"], 1)


def _of_frozen(config: Config, task: Classification, clock: Clock) -> Forecast:
    settings = config.training
    precision = choose_precision(settings.precision, settings.device)
    network, _ = begin(config, task)
    assert isinstance(network, Classifier)
    fitting = Fitting(network, task, settings, precision)
    middle = fitting.batches[len(fitting.batches) // 2 :][:2]
    with using_threads(settings.threads), seeded(0, fitting.device):
        fitting.states(*fitting.batches[0])  # warm up: one-time costs of the process
        fitting.tokens, begun = 0, clock()
        for split, indexes in middle:
            fitting.states(split, indexes)
    pace = max(clock() - begun, 1e-9) / max(fitting.tokens, 1)
    tokens = sum(int(task.split(side).lengths.sum()) for side in SPLITS)
    parameters = sum(parameter.numel() for parameter in network.parameters())
    return Forecast(
        **_about(config, task),
        parameters=parameters,
        steps=len(fitting.batches) + 1,
        most_steps=len(fitting.batches) + 1,
        seconds=pace * tokens,
        most_seconds=BUSY * pace * tokens,
        tokens_per_second=1 / pace,
        disk_mb=4 * parameters / 1e6,
        precision=f"{precision.name}: {precision.reason}",
        notes=tuple(task.corpus.notes),
    )


def _pace(training: Training, plan: Sequence[NDArray[np.integer]], clock: Clock) -> float:
    """Return the seconds per token, without padding, of the steps on some batches.

    The first steps are not timed: they include one-time costs of the process and of shapes.
    """
    for indexes in islice(cycle(plan[:WARM]), WARM):
        training.update(indexes)
    begun, before = clock(), training.state.tokens
    for indexes in islice(cycle(plan[:: max(len(plan) // TIMED, 1)]), TIMED):
        training.update(indexes)
        if clock() - begun > LONGEST:
            break
    return max(clock() - begun, 1e-9) / max(training.state.tokens - before, 1)


def _of_baseline(config: Config, task: Any, clock: Clock) -> Forecast:
    baseline = config.entry.build(config.network, **task.sizes)
    lengths = task.lengths("train", 0, 0)
    chosen = task.sample(max(len(lengths) // SAMPLE, 1))
    begun = clock()
    task.fit(baseline, chosen)
    every = len(lengths) / len(chosen)
    seconds = max(clock() - begun, 1e-6) * every
    return Forecast(
        **_about(config, task),
        parameters=sum(array.size for array in baseline.arrays.values()),
        steps=1,
        most_steps=1,
        seconds=seconds,
        most_seconds=BUSY * seconds,
        tokens_per_second=int(lengths.sum()) / seconds,
        disk_mb=sum(array.nbytes for array in baseline.arrays.values()) / 1e6 * every,
        precision="fp32: scikit-learn's",
        notes=tuple(task.notes),
    )
