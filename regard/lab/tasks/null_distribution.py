"""The reference distribution of a mean whose variance is the sum of two estimates.

The mean m of a table of seeds × examples has the variance A + B. A is the variance of the seeds,
estimated with few degrees of freedom, a (the number of seeds less one). B is the variance of the
examples, estimated with many, b. If both were estimated equally well, m/√(A+B) would follow
Student's t. It does not: with 3 seeds the estimate of A is often too small by chance, and then the
ratio is too large.

**The careful p** samples the true variances given their estimates, A a/χ²_a and B b/χ²_b, and
averages the normal tail over the samples (Behrens 1929; Fisher 1935; as a generalised p value Tsui
& Weerahandi 1989). With χ²_a = U χ² and χ²_b = (1 − U) χ², U ~ Beta(a/2, b/2) and χ² with a + b
degrees of freedom, it is an average of Student tails, computed by quadrature:

    careful = E_U[2 T_{a+b}(−|m| / s(U))],    s²(U) = (A a/U + B b/(1 − U)) / (a + b)

It is Student's t with a degrees of freedom if B = 0 and with b if A = 0. Its error rate never
exceeds the level, but is too low if A and B are of similar size: 2.4 % instead of 5 % at 3 seeds.

**The simple p** treats the whole variance as estimated with b degrees of freedom:
2 T_b(−|m| / √(A+B)). Its error rate is too high, and more so for small p.

**The p in use** is a weighted mean; the smaller the careful p, the less weight has the simple p:

    p = w careful + (1 − w) simple,    w = A / (A + 4 (a − 1) careful B)

Its rate of false differences, as a multiple of the level (normal scores, b = ∞, A between 2 and
97 % of the variance; ``tests/lab/studies/test_null_distribution.py`` integrates it):

    =====  ==============  ==============  ==============  ==============
    seeds  at 0.05         at 0.005        at 0.001        at 0.0005
    =====  ==============  ==============  ==============  ==============
    2      0.23 to 0.90    0.04 to 0.85    0.01 to 0.82    0.01 to 0.80
    3      0.77 to 1.03    0.29 to 1.00    0.11 to 0.99    0.07 to 0.98
    5      0.96 to 1.06    0.57 to 0.98    0.33 to 0.97    0.26 to 0.96
    10     1.00 to 1.09    0.86 to 1.00    0.69 to 0.99    0.63 to 0.98
    =====  ==============  ==============  ==============  ==============

With 2 seeds w = 1, so p is the careful p.

**With fewer groups than seeds** (b < a) the examples' variance is the uncertain one, and A and B
change places: the simple p has a degrees of freedom and w = B / (B + 4 max(b − 1, 0) careful A).

Other choices fail. At 3 seeds, the largest multiples at
these levels are 1.57, 5.4, 16 and 26 for t with a (A+B)²/A² degrees of freedom (Welch 1938;
Satterthwaite 1946), 1.14, 2.8, 7.0 and 11 for t with a (A+B)/A, and 1.28, 2.5, 4.5 and 6.0 for the
second-order matching prior of Ghosh & Kim (2001). t with a degrees of freedom has an error rate of
0.05 % at the level 5 % if A is half of the variance. Errors at small p matter: Holm's first step
over 11 comparisons is at p = 0.0045.
"""

from functools import lru_cache
from operator import itemgetter

import numpy as np
from jaxtyping import Float
from scipy.special import betaincinv, gammaincinv, stdtr

NODES = 64  # nodes of the quadrature over U
POWER = 0.8

Array = Float[np.ndarray, "*studies"]


def p_values(
    mean: Array | float,
    from_seeds: Array | float,
    from_examples: Array | float,
    seeds_freedom: float,
    examples_freedom: float,
) -> Array:
    """Compute the two-sided p of means m with variances A + B: the formulas above.

    `seeds_freedom` is 0 for one seed, which has no A. If the variance is 0, p is 0, or 1 for a mean
    of 0. If the mean is NaN, p is NaN.

    >>> round(float(p_values(0.03, 1e-4, 0.0, 2, 1999)), 3)  # t = 3 with 2 degrees of freedom
    0.095
    """
    mean, seeds, examples = np.broadcast_arrays(
        *(np.asarray(values, dtype=np.float64) for values in (mean, from_seeds, from_examples))
    )
    size, total = np.abs(mean), seeds + examples
    safe = np.where(total > 0, total, 1.0)
    p = 2 * stdtr(max(seeds_freedom, examples_freedom), -size / np.sqrt(safe))
    if seeds_freedom:
        share, weights = _shares(seeds_freedom, examples_freedom)
        both = seeds_freedom + examples_freedom
        drawn = seeds[..., None] * (seeds_freedom / share[0])
        drawn = drawn + examples[..., None] * (examples_freedom / share[1])
        drawn = np.where(total[..., None] > 0, drawn, 1.0) / both
        careful = 2 * stdtr(both, -size[..., None] / np.sqrt(drawn)) @ weights
        fewer, few, many = min(
            (seeds_freedom, seeds, examples), (examples_freedom, examples, seeds), key=itemgetter(0)
        )
        rest = few + 4 * max(fewer - 1, 0) * careful * many
        weight = np.where(rest > 0, few / np.where(rest > 0, rest, 1.0), 1.0)
        p = weight * careful + (1 - weight) * p
    p = np.where(total == 0, np.where(size > 0, 0.0, 1.0), p)
    return np.where(np.isnan(mean + total), np.nan, np.minimum(p, 1.0))


def reach(
    level: float,
    from_seeds: Array | float,
    from_examples: Array | float,
    seeds_freedom: float,
    examples_freedom: float,
) -> Array:
    """Compute the distance of a mean from 0 at which p = `level`: half the width of an interval.

    >>> round(float(reach(0.05, 1e-4, 0.0, 2, 1999)), 4)  # 4.30 standard errors
    0.043
    """
    seeds, examples = np.broadcast_arrays(
        *(np.asarray(values, dtype=np.float64) for values in (from_seeds, from_examples))
    )
    error = np.sqrt(seeds + examples)
    low, high = np.zeros(error.shape), np.full(error.shape, np.log(1e12))  # of 1 + errors
    for _ in range(36):
        middle = (low + high) / 2
        p = p_values(error * np.expm1(middle), seeds, examples, seeds_freedom, examples_freedom)
        low, high = np.where(p > level, middle, low), np.where(p > level, high, middle)
    return np.asarray(error * np.expm1(high))


def smallest(
    level: float,
    from_seeds: float,
    from_examples: float,
    seeds_freedom: float,
    examples_freedom: float,
) -> float:
    """Compute the smallest true difference δ that is detected with 80 % probability.

    This is the minimum detectable effect (Bloom 1995). The estimated variances are treated as the
    true ones. A repetition then estimates the seeds' variance as A Q/a with Q ~ χ²_a, and detects a
    difference if its mean is farther from 0 than ``reach(level)`` for that estimate. δ solves

        E_Q[T_b((δ − reach(level, A Q/a, B)) / √(A+B))] = 0.8

    With one seed this is Bloom's (t_{1−level/2} + t_{0.8}) · standard error. His formula treats the
    standard error as known; at 3 seeds its power is below 80 %.
    """
    error = float(np.sqrt(from_seeds + from_examples))
    if not error > 0:
        return error
    quantiles, weights = _stretched(32, 2)
    drawn: Array = np.ones(32)
    if seeds_freedom:
        drawn = 2 * gammaincinv(seeds_freedom / 2, quantiles) / seeds_freedom
    reaches = reach(level, from_seeds * drawn, from_examples, seeds_freedom, examples_freedom)
    low, high = 0.0, float(reaches.max()) + 1e3 * error
    for _ in range(60):
        middle = (low + high) / 2
        if stdtr(examples_freedom, (middle - reaches) / error) @ weights < POWER:
            low = middle
        else:
            high = middle
    return high


def median_ratio(freedom: float) -> float:
    """Return the median of χ²_f / f, of an estimated variance over the true one; 1 for f = 0.

    >>> round(median_ratio(1), 3), round(median_ratio(4), 3)
    (0.455, 0.839)
    """
    least = max(freedom, 1.0)  # with less than one degree the median says nothing
    return float(2 * gammaincinv(least / 2, 0.5) / least) if freedom else 1.0


def _stretched(count: int, stretch: int) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Gauss-Legendre nodes and weights on 0 … 1, dense near 0."""
    points, weights = np.polynomial.legendre.leggauss(count)
    points = (points + 1) / 2
    return points**stretch, weights / 2 * stretch * points ** (stretch - 1)


@lru_cache(maxsize=64)
def _shares(
    seeds_freedom: float, examples_freedom: float
) -> tuple[Float[np.ndarray, "2 n"], Float[np.ndarray, " n"]]:
    """Return U and 1 − U of U ~ Beta(a/2, b/2) at the nodes, and the weights of the nodes.

    Half of the nodes are dense near 0, the others near 1.
    """
    quantiles, weights = _stretched(NODES // 2, 4)
    low = betaincinv(seeds_freedom / 2, examples_freedom / 2, quantiles / 2)
    high = betaincinv(examples_freedom / 2, seeds_freedom / 2, quantiles / 2)
    shares = np.stack([np.append(low, 1 - high), np.append(1 - low, high)])
    return np.maximum(shares, 1e-300), np.append(weights, weights) / 2
