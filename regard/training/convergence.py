"""Whether a training had come to its end: a look at its validation scores.

A training that patience stopped had gone through that many validations without a gain. One that a
budget stopped is judged by the trend of its scores y over steps x in the last half of its
validations, at least 3 of them:

    slope b = Σ (x − x̄)(y − ȳ) / Σ (x − x̄)²        s = √(Σ residuals² / (n − 2) / Σ (x − x̄)²)

The score was still rising if b > 1.5 s and if going on at that slope for as many steps again
would bring more than 0.2 points. Of curves a − b exp(−t/τ) with noise of 0.3 points it takes
5 to 10 % of those that are flat for rising, and 75 to 98 % of those that have a point still to
gain, by 10 validations or more (`tests/training/test_convergence.py`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

CONVERGED: Final = "converged"
RISING: Final = "still rising"
UNKNOWN: Final = "too short to tell"
ONE_LABEL: Final = "one label only"
#: What each outcome means, for people.
MEANINGS: Final = {
    CONVERGED: "validation had stopped improving",
    RISING: "validation was still rising when the budget ended",
    UNKNOWN: "the budget ended before validation could tell",
    ONE_LABEL: "it says the same to every text",
}
LEAST = 3  # validations that a trend is drawn through, and that patience must wait for
SURE = 1.5  # standard errors of the slope
POINTS = 0.002  # as a share: what as many steps again would bring at this slope


def outcome(rows: Sequence[Mapping[str, Any]], patience: int = 0) -> str:
    """Return how a training ended, by the rows of its ``metrics.jsonl``.

    >>> rows = [{"step": s, "validation": v, "ended": ""} for s, v in enumerate([.5, .6, .7, .8])]
    >>> outcome([*rows, {"step": 4, "validation": 0.9, "ended": "budget"}])
    'still rising'
    """
    if rows and rows[-1].get("ended") == "patience" and patience >= LEAST:
        return CONVERGED
    seen = {row["step"]: float(row["validation"]) for row in rows if row["validation"] is not None}
    rising = still_rising(list(seen), list(seen.values()))
    return UNKNOWN if rising is None else RISING if rising else CONVERGED


def still_rising(steps: Sequence[float], scores: Sequence[float]) -> bool | None:
    """Return whether scores, the larger the better, still rose at the end; None if too few tell.

    >>> still_rising([1, 2, 3, 4, 5, 6], [0.5, 0.7, 0.8, 0.81, 0.809, 0.81])
    False
    """
    last = max(LEAST, math.ceil(len(scores) / 2))
    if len(scores) <= LEAST:
        return None
    x, y = (np.asarray(values[-last:], dtype=np.float64) for values in (steps, scores))
    x = x - x.mean()
    slope = float(x @ y / (x @ x))
    left = y - y.mean() - slope * x
    error = math.sqrt(float(left @ left) / max(last - 2, 1) / float(x @ x))
    again = slope * (float(x[-1] - x[0]))
    return slope > SURE * error and again > POINTS
