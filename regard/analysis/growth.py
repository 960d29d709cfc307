"""Growth rates of measurements with size, and the size where one falls below another."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import linear_regression

import numpy as np


def exponent(sizes: Sequence[float], amounts: Sequence[float]) -> float:
    """Return p of amount ≈ c · size^p: the slope of a line through the logarithms.

    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return linear_regression(list(map(math.log, sizes)), list(map(math.log, amounts))).slope


def shares(terms: Sequence[Sequence[float]], amounts: Sequence[float]) -> list[float]:
    """Return the c of amount ≈ c₁ term₁ + c₂ term₂ + …, by least squares of relative errors.

    >>> sizes = [1, 2, 3, 4]
    >>> [round(c, 6) for c in shares([sizes, [s**2 for s in sizes]], [5 * s + s**2 for s in sizes])]
    [5.0, 1.0]
    """
    table = np.array(terms, dtype=np.float64).T / np.array(amounts, dtype=np.float64)[:, None]
    coefficients, *_ = np.linalg.lstsq(table, np.ones(len(amounts)), rcond=None)
    return [float(c) for c in coefficients]


def crossing(sizes: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float:
    """Return the size above which ``first`` stays below ``second``.

    The size is interpolated on a line through the logarithms. It is 0 if ``first`` is below at all
    sizes, and infinite if it is not below at the largest.

    >>> round(crossing([100, 200, 400], [200, 200, 200], [100, 200, 400]))
    200
    >>> crossing([1, 2], [1, 1], [2, 2]), crossing([1, 2], [1, 3], [2, 2])
    (0.0, inf)
    """
    lead = [math.log(a / b) for a, b in zip(first, second, strict=True)]
    if lead[-1] >= 0:
        return math.inf
    points = list(zip(sizes, lead, strict=True))
    for (size, above), (next_size, under) in reversed(list(pairwise(points))):
        if above >= 0:
            share = above / (above - under)
            return float(size * (next_size / size) ** share)
    return 0.0
