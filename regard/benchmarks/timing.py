"""Two ways of doing one thing, timed in turns, so that a busy machine is busy for both."""

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

FEWEST, MOST = 3, 40


def in_turns(
    ours: Callable[[], object],
    theirs: Callable[[], object],
    rounds: int = 0,
    *,
    budget: float = 6.0,
) -> tuple[float, float]:
    """Median seconds of each: both once to warm up, then A B, B A, A B, …

    Without ``rounds``, as many as take about ``budget`` seconds, 3 to 40.
    """
    first = seconds(ours) + seconds(theirs)
    if not rounds:
        # The first call may compile; only where it alone would fill the budget is it the measure.
        once = first if first > budget else seconds(ours) + seconds(theirs)
        rounds = min(MOST, max(FEWEST, int(budget / max(once, 1e-9))))
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            b, a = seconds(theirs), seconds(ours)
        else:
            a, b = seconds(ours), seconds(theirs)
        pairs.append((a, b))
    our_s, their_s = (median(side) for side in zip(*pairs, strict=True))
    return our_s, their_s


def alone(work: Callable[[], object], rounds: int = FEWEST) -> float:
    """Median seconds of one way alone, after a call to warm up."""
    work()
    return median(seconds(work) for _ in range(rounds))


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """p of amount ≈ c · size^p: the slope of a straight line through the logarithms.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(amount) for amount in amounts]
    middle, level = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True))
    return rise / sum((a - middle) ** 2 for a in x)
