"""Budgets in minutes: how many updates fit, and a batch size with which enough fit."""

import math
import time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.training.settings import TrainingSettings

if TYPE_CHECKING:
    from regard.training.loop import Training

FEW = 500  # updates; a network learns little with fewer
WANTED = 1_000  # target number of updates when a batch size is chosen
FEWEST_TOKENS = 256  # per batch: smaller ones take nearly as long
MEASURED = 5  # the update after which the speed is measured


def batch_for(settings: TrainingSettings, seconds: float, tokens: int, usual: int) -> int:
    """Return the tokens per batch so that about `WANTED` updates fit into a budget in minutes.

    `seconds`: duration of an update on a batch of ``tokens``. The result is a power of two times
    ``tokens``, so that runs on one machine agree, and at most ``usual``.

    >>> batch_for(TrainingSettings(minutes=3), 0.15, 256, 8192)
    256
    >>> batch_for(TrainingSettings(minutes=30), 0.15, 256, 8192)
    2048
    >>> batch_for(TrainingSettings(minutes=300), 0.15, 256, 8192)
    8192
    """
    times = settings.minutes * 60 / max(seconds, 1e-9) / WANTED
    return min(usual, tokens << math.floor(math.log2(max(times, 1))))


def warning(settings: TrainingSettings, updates: float, batch_tokens: int) -> str:
    """Return a sentence if fewer than `FEW` updates fit into a budget in minutes, else "".

    >>> warning(TrainingSettings(minutes=3), 39.2, 8192)
    'about 39 updates fit into 3 minutes, too few; batch_tokens=642 would make about 500'
    >>> warning(TrainingSettings(minutes=3, batch_size=64), 250, 8192)
    'about 250 updates fit into 3 minutes, too few; batch_size=32 would make about 500'
    >>> warning(TrainingSettings(minutes=3), 11, 8192)
    'about 11 updates fit into 3 minutes, too few; batch_tokens=256 would make about 352'
    >>> warning(TrainingSettings(minutes=3), 900, 8192), warning(TrainingSettings(steps=9), 9, 8192)
    ('', '')
    """
    if settings.budget.unit != "minutes" or updates >= FEW:
        return ""
    message = f"about {updates:.0f} updates fit into {settings.minutes:g} minutes, too few; "
    name, batch, least = "batch_tokens", batch_tokens, FEWEST_TOKENS
    if settings.batch_size:
        name, batch, least = "batch_size", settings.batch_size, 1
    smaller = max(int(batch * updates / FEW), least)
    if smaller >= batch:
        return f"{message}take a smaller network or more time"
    return f"{message}{name}={smaller} would make about {min(updates * batch / smaller, FEW):.0f}"


def follow_the_clock(training: "Training") -> None:
    """Choose the batch size for a budget in minutes, unless one is given.

    It times forward and backward passes on small batches, without updating weights.
    """
    settings, usual = training.settings, training.batch_tokens
    small = max(FEWEST_TOKENS, training.task.most_tokens("train"))
    fixed = settings.batch_size or settings.batch_tokens
    if settings.budget.unit != "minutes" or fixed or small >= usual:
        return
    training.batch_tokens = small
    plan = training.plan()
    # The first one includes one-time costs.
    seconds = min(passes(training, indexes) for indexes in (plan[0], *plan[:2]))
    (seconds,) = training.ranks.broadcast(seconds)
    training.batch_tokens = batch_for(settings, seconds, small, usual)
    training.state.batch_tokens = training.batch_tokens
    training.parallel.shapes.clear()  # of the small batches


def passes(training: "Training", indexes: NDArray[np.integer]) -> float:
    """Return the seconds of a forward and a backward pass on a batch, without an update."""
    from regard.training.loop import seeded

    begun = time.monotonic()
    training.trained.train()
    parts, _ = training.parts(indexes)
    with seeded(0, training.device):
        training.parallel.backward(parts).item()  # waits for a GPU
    training.optimizer.zero()
    return time.monotonic() - begun


class FewUpdates:
    """A warning, given once, if few updates fit into a budget in minutes."""

    def __init__(self) -> None:
        self.first = 0.0  # seconds of the training at its first update

    def says(self, training: "Training") -> str:
        """Return the warning after update `MEASURED`, or after an earlier last update."""
        state, settings = training.state, training.settings
        if state.step == 1:
            self.first = state.seconds
        due = state.step == MEASURED or (state.step < MEASURED and training.finished())
        if settings.budget.unit != "minutes" or not due or not self.first:
            return ""
        pace = (state.seconds - self.first) / max(state.step - 1, 1)
        left = max(settings.minutes * 60 - state.seconds, 0)
        return warning(settings, state.step + left / max(pace, 1e-9), training.batch_tokens)
