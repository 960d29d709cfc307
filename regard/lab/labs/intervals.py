"""Means over seeds and their intervals."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Interval = tuple[float, float, float]  # the mean and the ends of its 95 % interval


def interval(values: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the mean over seeds and its 95 % interval by Student's t.

    The interval is infinite for fewer than two seeds, or if a value is not finite.

    >>> [round(x, 3) for x in interval([0.4, 0.6])]
    [0.5, -0.771, 1.771]
    """
    from scipy.stats import t

    mean, n = float(np.mean(values)) if len(values) else float("nan"), len(values)
    if n < 2 or not np.isfinite(values).all():
        return mean, -float("inf"), float("inf")
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half


def in_words(value: Interval, digits: int = 1, times: float = 1.0) -> str:
    """Return a mean with its interval, multiplied, or the mean alone if that is not finite.

    >>> in_words((1.44, 1.2, 1.68)), in_words(interval([2.0]))
    ('1.4 (1.2 to 1.7)', '2.0')
    >>> in_words(interval([0.9, 0.92, 0.94]), times=100)
    '92.0 (87.0 to 97.0)'
    """
    mean, low, high = (times * one for one in value)
    if not np.isfinite([low, high]).all():
        return f"{mean:.{digits}f}"
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
