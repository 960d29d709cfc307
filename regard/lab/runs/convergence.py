"""Judge by its validation scores whether a training has converged.

A training that patience stopped has converged. One that a budget stopped is judged by the trend of
its scores over its steps in the last half of its validations, at least 3 of them. The weights of
one validation are near those of the next, so the noise of their scores is correlated (0.7 is usual)
and a plateau drifts for some validations. The scores are therefore modelled as

    y = a + b x + e,    e an AR(1) process:  corr(e[i], e[j]) = ρ^|i − j|

With constant priors of a, b and log σ, b given ρ follows Student's t around its generalised least
squares estimate, and the posterior of ρ is known up to a constant (Zellner & Tiao 1964):

    p(ρ | y) ∝ p(ρ) |R|^(−1/2) |X' R⁻¹ X|^(−1/2) S(ρ)^(−(n − 2)/2)

with S(ρ) = r' R⁻¹ r of the residuals r and p(ρ) ∝ 0.2 + ρ on 0 … 0.95. The score is still rising if
the probability of b ≤ 0, averaged over ρ, is below 5 % and if continuing at the least squares slope
for as many steps would gain more than 0.2 points. At most 10 % of flat curves with 4 to 50
validations and correlations of 0 to 0.8 count as rising. Few validations miss slow rises: a plateau
does not prove convergence (`benchmarks.calibration` measures both;
`docs/results/statistics.md`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

CONVERGED: Final = "converged"
RISING: Final = "still rising"
UNKNOWN: Final = "too short to tell"
ONE_LABEL: Final = "one label only"
TRIVIAL: Final = "never left the trivial answer"
#: A description of each outcome.
MEANINGS: Final = {
    CONVERGED: "validation had stopped improving",
    RISING: "validation was still rising when the budget ended",
    UNKNOWN: "the budget ended after too few validations",
    ONE_LABEL: "the model predicts the same for every text",
    TRIVIAL: "the test score is hardly better than a guess that ignores the input",
}
LEAST = 3  # minimum validations for a trend, and for patience
CHANCE = 0.05  # maximum probability that the trend is not positive
CORRELATIONS: Final = np.arange(0, 0.96, 0.05)  # of successive scores
PRIOR: Final = 0.2 + CORRELATIONS
POINTS = 0.002  # minimum gain (a share) of as many more steps at this slope


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
    last = _last_half(steps, scores)
    if last is None:
        return None
    return _gain(*last) > POINTS and _no_rise(*last) < CHANCE


def further_gain(steps: Sequence[float], scores: Sequence[float]) -> float | None:
    """Return the gain of repeating the last half's steps at its slope; None if there are too few.

    >>> round(further_gain([1, 2, 3, 4, 5, 6], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]), 6)
    0.3
    """
    last = _last_half(steps, scores)
    return None if last is None else _gain(*last)


def _last_half(
    steps: Sequence[float], scores: Sequence[float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Return steps, centred, and scores of the last half, with the validation at its start."""
    if len(scores) <= LEAST:
        return None
    last = max(LEAST, len(scores) // 2 + 1)
    x, y = (np.asarray(values[-last:], dtype=np.float64) for values in (steps, scores))
    return x - x.mean(), y


def _gain(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the gain of as many more steps at the least squares slope."""
    return float(x @ y / (x @ x) * (x[-1] - x[0]))


def _no_rise(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the posterior probability that the scores y do not rise with the steps x."""
    from scipy.special import stdtr

    n, line = len(x), np.stack([np.ones(len(x)), x / x[-1]], 1)
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    inverse = np.linalg.inv(CORRELATIONS[:, None, None] ** apart)
    weighed = line.T @ inverse
    spread = np.linalg.inv(weighed @ line)
    fitted = spread @ (weighed @ y)[..., None]
    left = y - (line @ fitted)[..., 0]
    squares = np.einsum("ri,rij,rj->r", left, inverse, left)
    squares = np.maximum(squares, 1e-24 * max(float(y @ y), 1e-300))  # rounding, on a line
    chance = np.log(PRIOR) - (n - 2) / 2 * np.log(squares)
    chance += (np.linalg.slogdet(inverse)[1] + np.linalg.slogdet(spread)[1]) / 2
    weights = np.exp(chance - chance.max())
    errors = np.sqrt(squares / (n - 2) * spread[:, 1, 1])
    return float(stdtr(n - 2, -fitted[:, 1, 0] / errors) @ weights / weights.sum())
