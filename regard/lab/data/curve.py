"""The noisy sine of kernel regression: y = 2 sin x + x^0.8 + ε, ε ~ N(0, ½²), x even on [0, 5).

From Dive into Deep Learning, section 11.2.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

NOISE = 0.5
FROM, TO = 0.0, 5.0


class Curve(NamedTuple):
    """Points of the noisy sine, sorted by x."""

    x: Float[np.ndarray, " points"]
    y: Float[np.ndarray, " points"]


def curve(count: int, seed: int = 0) -> Curve:
    """Return `count` points, x drawn uniformly and sorted.

    >>> points = curve(3, seed=1)
    >>> points.x.round(2).tolist(), bool((points.x[1:] >= points.x[:-1]).all())
    ([0.72, 2.56, 4.75], True)
    """
    draw = np.random.default_rng(seed)
    x = np.sort(draw.uniform(FROM, TO, count))
    return Curve(x, truth(x) + draw.normal(0, NOISE, count))


def truth(x: Float[np.ndarray, " points"]) -> Float[np.ndarray, " points"]:
    """Return the curve without noise, the expectation of y.

    >>> truth(np.array([0.0, 1.0])).round(3).tolist()
    [0.0, 2.683]
    """
    return np.asarray(2 * np.sin(x) + x**0.8)
