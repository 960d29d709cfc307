"""Two ways of doing one thing, timed in turns, so that a busy machine is busy for both."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any


def in_turns(
    name: str, against: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> dict[str, Any]:
    """A case: both once to warm up, then A B, B A, A B, …; medians in seconds.

    ``time_ratio`` is theirs / ours, of the medians.
    """
    ours()
    theirs()
    pairs = []
    for turn in range(rounds):
        if turn % 2:
            b, a = seconds(theirs), seconds(ours)
        else:
            a, b = seconds(ours), seconds(theirs)
        pairs.append((a, b))
    our_s, their_s = (median(side) for side in zip(*pairs, strict=True))
    return {
        "name": name,
        "against": against,
        "ours_s": our_s,
        "theirs_s": their_s,
        "time_ratio": their_s / our_s,
        "ours_mb": None,
        "theirs_mb": None,
    }


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun
