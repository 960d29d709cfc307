"""Judge by its validation scores whether a training has converged.

A training that patience stopped has converged. One that a budget stopped is judged by the trend of
its scores y over steps x in the last half of its validations, at least 3 of them:

    slope b = Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²        s = √(Σ residuals² / (n − 2) / Σ (x − x̄)²)

The score is still rising if b > 1.5 s and if continuing at that slope for as many steps would gain
more than 0.2 points. For curves a − b exp(−t/τ) with noise of 0.3 points and at least 10
validations, 5 to 10 % of the flat ones count as rising, and 75 to 98 % of those with one point left
to gain (`tests/training/test_convergence.py`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

CONVERGED: Final = "converged"
RISING: Final = "still rising"
UNKNOWN: Final = "too short to tell"
ONE_LABEL: Final = "one label only"
#: A description of each outcome.
MEANINGS: Final = {
    CONVERGED: "validation had stopped improving",
    RISING: "validation was still rising when the budget ended",
    UNKNOWN: "the budget ended before validation could tell",
    ONE_LABEL: "the model predicts the same for every text",
}
LEAST = 3  # validations needed for a trend, and for patience to count
SURE = 1.5  # standard errors of the slope
POINTS = 0.002  # as a share: the gain of as many steps again at this slope


def outcome(rows: Sequence[Mapping[str, Any]], patience: int = 0) -> str:
    """Return how a training ended, from the rows of its ``metrics.jsonl``.

    >>> rows = [{"step": s, "validation": v, "ended": ""} for s, v in enumerate([.5, .6, .7, .8])]
    >>> outcome([*rows, {"step": 4, "validation": 0.9, "ended": "budget"}])
    'still rising'
    """
    if rows and rows[-1].get("ended") == "patience" and patience >= LEAST:
        return CONVERGED
    scores = {
        row["step"]: float(row["validation"]) for row in rows if row["validation"] is not None
    }
    rising = still_rising(list(scores), list(scores.values()))
    return UNKNOWN if rising is None else RISING if rising else CONVERGED


def still_rising(steps: Sequence[float], scores: Sequence[float]) -> bool | None:
    """Return whether scores (larger is better) were rising at the end; None if there are too few.

    >>> still_rising([1, 2, 3, 4, 5, 6], [0.5, 0.7, 0.8, 0.81, 0.809, 0.81])
    False
    """
    trend = _trend(steps, scores)
    if trend is None:
        return None
    slope, error, again = trend
    return slope > SURE * error and again > POINTS


def further_gain(steps: Sequence[float], scores: Sequence[float]) -> float | None:
    """Return the gain of as many steps again as the last half, at its slope; None if too few.

    >>> round(further_gain([1, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), 6)
    0.2
    """
    trend = _trend(steps, scores)
    return None if trend is None else trend[2]


def _trend(steps: Sequence[float], scores: Sequence[float]) -> tuple[float, float, float] | None:
    """Return slope, its standard error, and the gain of as many steps again."""
    last = max(LEAST, math.ceil(len(scores) / 2))
    if len(scores) <= LEAST:
        return None
    x, y = (np.asarray(values[-last:], dtype=np.float64) for values in (steps, scores))
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    error = math.sqrt(float(left @ left) / max(last - 2, 1) / float(x @ x))
    return slope, error, slope * (float(x[-1] - x[0]))
