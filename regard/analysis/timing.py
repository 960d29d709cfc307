"""Interleaved timing of alternatives, so that other load on the machine affects all equally."""

import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

FEWEST, MOST = 3, 40
#: The range of this many samples contains the median with probability 1 − 2 / 2^6 = 97 %.
ROUNDS = 6
#: Minimum seconds of a sample, which may consist of several calls.
SHORTEST = 1e-3
#: Bytes written before each call on a GPU, to flush its L2 cache.
FLUSHED = 2**28

K = TypeVar("K", bound=Hashable)


class Interval(NamedTuple):
    """A median and its 95 % confidence interval."""

    median: float
    low: float
    high: float


def in_turns(
    one: Callable[[], object],
    other: Callable[[], object],
    rounds: int = 0,
    *,
    budget: float = 6.0,
    device: str = "cpu",
) -> tuple[float, float]:
    """Return the median seconds of each function: after a warm-up call, A B, B A, A B, …

    Without ``rounds``, 3 to 40 rounds are timed, in about ``budget`` seconds.
    """
    seconds = clock(device)
    first = seconds(one) + seconds(other)
    if not rounds:
        # The first call may compile, so it is only used if it alone exceeds the budget.
        once = first if first > budget else seconds(one) + seconds(other)
        rounds = min(MOST, max(FEWEST, int(budget / max(once, 1e-9))))
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            b, a = seconds(other), seconds(one)
        else:
            a, b = seconds(one), seconds(other)
        pairs.append((a, b))
    one_s, other_s = (median(side) for side in zip(*pairs, strict=True))
    return one_s, other_s


def in_rounds(
    works: Mapping[K, Callable[[], object]],
    budget: float,
    show: Callable[[float, str], None] = lambda done, what: None,
) -> dict[K, list[float]]:
    """Return timings of each function: after a warm-up call, in rounds through all functions.

    The i-th samples of all functions are from the i-th round, so that ratios can be taken within a
    round. Every other round runs backwards. Each function is timed at least `ROUNDS` times, and at
    most `MOST` times until its equal share of the ``budget`` (in seconds) is used. A short function
    is called several times per sample. ``show`` is called with the used share of the budget.
    """
    begun = time.perf_counter()
    calls, samples = {}, {key: list[float]() for key in works}
    for place, (key, work) in enumerate(works.items()):
        work()
        calls[key] = max(1, math.ceil(SHORTEST / max(seconds(work), 1e-9)))
        show((place + 1) / len(works) / (ROUNDS + 1), "warming up")
    share = budget / max(len(works), 1)
    for turn in range(MOST):
        gone = time.perf_counter() - begun
        due = [
            key
            for key in works
            if turn < ROUNDS or (gone < budget and sum(samples[key]) * calls[key] < share)
        ]
        for key in reversed(due) if turn % 2 else due:
            several = calls[key]
            samples[key].append(seconds(works[key], several))
        if not due:
            break
        least = (turn + 2) / (ROUNDS + 1)
        spent = (time.perf_counter() - begun) / budget
        show(min(1.0, max(spent, least) if turn >= ROUNDS else least), f"round {turn + 1}")
    return samples


def interval(samples: Sequence[float]) -> Interval:
    """Return the median, and the narrowest pair of ranks that contains it with probability 95 %.

    Each sample is below the true median with probability 1/2, so the probability that the median
    lies outside two ranks is binomial (David and Nagaraja 2003, section 7.1). With 5 samples or
    fewer, return their range.

    >>> interval([3.0, 1.0, 2.0])
    Interval(median=2.0, low=1.0, high=3.0)
    """
    ordered, n = sorted(samples), len(samples)
    rank, outside = 0, 2 * 0.5**n
    while rank + 1 < n - rank - 2 and outside + 2 * math.comb(n, rank + 1) * 0.5**n <= 0.05:
        rank += 1
        outside += 2 * math.comb(n, rank) * 0.5**n
    return Interval(median(ordered), ordered[rank], ordered[n - 1 - rank])


def alone(work: Callable[[], object], rounds: int = FEWEST, *, device: str = "cpu") -> float:
    """Return the median seconds of one function, after a warm-up call."""
    seconds = clock(device)
    work()
    return median(seconds(work) for _ in range(rounds))


def clock(device: str) -> Callable[[Callable[[], object]], float]:
    """Return the function that times one call on a type of device."""
    return gpu_seconds if device == "cuda" else seconds


def gpu_seconds(work: Callable[[], object]) -> float:
    """Return the seconds of one call on the GPU, by its events, after flushing its cache."""
    import torch

    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.empty(FLUSHED, dtype=torch.int8, device="cuda").zero_()
    torch.cuda.synchronize()
    begun.record()
    work()
    ended.record()
    torch.cuda.synchronize()
    return float(begun.elapsed_time(ended)) / 1e3


def seconds(work: Callable[[], object], calls: int = 1) -> float:
    """Return the seconds of one call, as the mean of several."""
    begun = time.perf_counter()
    for _ in range(calls):
        work()
    return (time.perf_counter() - begun) / calls
