"""Learning rate schedules: a linear warmup, then a named decay over the budget."""

import math
from collections.abc import Callable

from regard.core.errors import look_up

Schedule = Callable[[float], float]


def constant(left: float) -> float:
    """Return 1: the full rate until the end."""
    return 1.0


def linear(left: float) -> float:
    """Return the remaining share: a straight line to zero."""
    return left


def cosine(left: float) -> float:
    """Return (1 + cos π(1 − left)) / 2. Loshchilov & Hutter 2017."""
    return (1 + math.cos(math.pi * (1 - left))) / 2


SCHEDULES: dict[str, Schedule] = {"linear": linear, "cosine": cosine, "constant": constant}
FLOOR = 0.01  # the first step of a warmup moves the weights too
MOST_WARMUP = 0.1  # share of the budget, if the warmup is given in steps


def factor(schedule: str, progress: float, warmup: float, step: int = 0) -> float:
    """Return the share of the learning rate at a point of the budget.

    `progress` runs from 0 to 1 over the budget, in any unit. A `warmup` below 1 is the share of the
    budget in which the rate rises linearly; from 1 on it is a number of steps, of which `step` are
    done, or a tenth of the budget if that is shorter. `schedule` names the decay after it.

    >>> [factor("linear", p, 0.2) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    >>> [factor("constant", 0.0, 100, step) for step in (0, 49, 99)]
    [0.01, 0.5, 1.0]
    """
    if warmup >= 1:
        risen = max((step + 1) / warmup, progress / MOST_WARMUP)
        warmup = 0.0
    else:
        risen = progress / warmup if progress < warmup else 1.0
    if risen < 1:
        return max(risen, FLOOR)
    left = (1 - progress) / (1 - warmup)
    return look_up(SCHEDULES, schedule, "schedule")(min(max(left, 0.0), 1.0))
