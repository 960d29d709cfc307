"""How the learning rate moves: up during the warmup, then along a named curve, over the budget."""

import math
from collections.abc import Callable

from regard.errors import look_up

Schedule = Callable[[float], float]


def constant(left: float) -> float:
    """The full rate to the end."""
    return 1.0


def linear(left: float) -> float:
    """Straight down to zero."""
    return left


def cosine(left: float) -> float:
    """(1 + cos π(1 − left)) / 2: slow, steep, slow, to zero. Loshchilov & Hutter 2017."""
    return (1 + math.cos(math.pi * (1 - left))) / 2


SCHEDULES: dict[str, Schedule] = {"linear": linear, "cosine": cosine, "constant": constant}
FLOOR = 0.01  # the first step of a warmup moves the weights too


def factor(schedule: str, progress: float, warmup: float) -> float:
    """The share of the learning rate at a point of the budget.

    `progress` runs from 0 to 1 over the budget, whatever it is counted in; `warmup` is the share
    of the budget in which the rate rises in a straight line; what follows is named by `schedule`.

    >>> [factor("linear", p, 0.2) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if progress < warmup:
        return max(progress / warmup, FLOOR)
    left = (1 - progress) / (1 - warmup) if warmup < 1 else 0.0
    return look_up(SCHEDULES, schedule, "schedule")(min(max(left, 0.0), 1.0))
