"""Softmax of n independent normal scores: entropy, largest weight and gradient, exactly.

With w = softmax(s), s_j ~ N(0, σ²) and Z = Σ e^(s_j), every mean that is wanted is an integral in
one variable, by 1/Z^k = ∫ t^(k−1) e^(−tZ) dt / (k−1)! and t = e^u:

    ψ_k(u) = E h_k(u + s),  h_k(x) = e^(kx − e^x)
    E Σ w^k = n / (k−1)! ∫ ψ_k ψ_0^(n−1) du
    E Σ_{i≠j} w_i² w_j² = n(n−1)/6 ∫ ψ_2² ψ_0^(n−2) du
    E ln Z = ∫ (e^(−e^u) − ψ_0^n) du,   E Σ w s = σ²(1 − E Σ w²)  (integration by parts)

This is Derrida's random energy model (1981) at finite n. For many keys it freezes at σ² = 2 ln n:
below, the entropy is ln n − σ²/2; above, a few keys have all the weight.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from scipy.signal import fftconvolve
from scipy.stats import chi2, norm

from regard.core.errors import RegardError

Array = NDArray[np.float64]

STEP = 0.1  # of the integrals over u: their integrands are analytic, the error is below 1e-12
TAIL = 9.5  # standard deviations
QUANTILES = 512


@dataclass(frozen=True)
class Saturation:
    """Expectations over the random scores of one query.

    `entropy` in nats; `largest`: the largest weight; `concentration`: Σ w²; `jacobian`:
    ‖diag(w) − wwᵀ‖², the squared Frobenius norm of the softmax's Jacobian.
    """

    entropy: float
    largest: float
    concentration: float
    jacobian: float


def saturation(keys: int, spread: float) -> Saturation:
    """Return the expectations for `keys` scores with standard deviation `spread`.

    >>> calm, frozen = saturation(64, 1.0), saturation(64, 30.0)
    >>> round(calm.entropy, 2), round(calm.largest, 2)
    (3.68, 0.11)
    >>> round(frozen.entropy, 2), round(frozen.largest, 2)
    (0.13, 0.95)

    Raises: fewer than two keys, a spread that is not above zero and finite.
    """
    if keys < 2 or not 0 < spread < math.inf:
        raise RegardError(f"keys must be 2 or more and spread above 0, not {keys} and {spread}")
    step = min(STEP, spread / 4)
    reach = step * math.ceil(TAIL * spread / step)
    low, high = -reach - math.log(keys) - 14, reach + 9
    u = low + step * np.arange(math.ceil((high - low) / step) + 1)
    around = step * np.arange(-round(reach / step), round(reach / step) + 1)
    density = norm.pdf(around, scale=spread) * step
    wide = np.concatenate([u[0] + around[around < 0], u, u[-1] + around[around > 0]])
    x = np.minimum(wide, 8)  # from there on e^(−e^x) is 0
    psi = [fftconvolve(np.exp(k * x - np.exp(x)), density, "valid") for k in range(5)]
    psi = [np.clip(part, 0, 1 if k == 0 else None) for k, part in enumerate(psi)]
    rest = psi[0] ** (keys - 1)
    second, third, fourth = (
        float((psi[k] * rest).sum() * step * keys / math.factorial(k - 1)) for k in (2, 3, 4)
    )
    pairs = float((psi[2] ** 2 * psi[0] ** (keys - 2)).sum() * step * keys * (keys - 1) / 6)
    log_sum = float((np.exp(-np.exp(np.minimum(u, 8))) - psi[0] * rest).sum() * step)
    return Saturation(
        entropy=log_sum - spread**2 * (1 - second),
        largest=largest_weight(keys, spread),
        concentration=second,
        jacobian=second - 2 * third + fourth + pairs,
    )


def largest_weight(keys: int, spread: float) -> float:
    """Return E max w = n ∫ N(s) ∫ e^(−v) (E e^(−v e^(s'−s)); s' < s)^(n−1) dv ds.

    >>> round(largest_weight(2, 1e-3), 3)
    0.5
    """
    s = spread * np.linspace(-8.5, 8.5, 401)
    x = np.arange(-34, 4.5, 0.1)  # ln v
    far = min(45.0, 18 * spread)
    y = np.linspace(0, far, 601)  # s − s'
    simpson = np.full(601, 2.0)
    simpson[1::2], simpson[[0, -1]] = 4.0, 1.0
    below = norm.pdf(s[:, None] - y, scale=spread) * (simpson * far / 1800)
    gone = below @ -np.expm1(-np.exp(x - y[:, None]))
    inner = np.clip(norm.cdf(s, scale=spread)[:, None] - gone, 0, 1) ** (keys - 1)
    over_v = inner @ np.exp(x - np.exp(x)) * 0.1
    return float(keys * (norm.pdf(s, scale=spread) * over_v).sum() * (s[1] - s[0]))


class Theory:
    """An interpolated table of `saturation`: accurate to 1e-4 over three powers of ten."""

    def __init__(self, keys: int, low: float, high: float, points: int = 40) -> None:
        spreads = np.geomspace(low, high, points)
        measured = [saturation(keys, float(spread)) for spread in spreads]
        self.keys, self.low, self.high = keys, low, high
        rows = [[f.entropy, f.largest, f.concentration, f.jacobian] for f in measured]
        self._curves = CubicSpline(np.log(spreads), np.array(rows))

    def at(self, spread: float) -> Saturation:
        """Return the values at one spread.

        Raises: a spread outside the range.
        """
        if not self.low * 0.999 <= spread <= self.high * 1.001:
            raise RegardError(
                f"spread must be between {self.low:g} and {self.high:g}, not {spread:g}"
            )
        return Saturation(*map(float, self._curves(math.log(spread))))

    def of_products(self, width: int, scale: float = 1.0) -> Saturation:
        """Return the values for scores scale · q·k of normal vectors of this width.

        Given q, they are independent and normal with variance scale²‖q‖², and ‖q‖² is
        chi-square with `width` degrees of freedom: the mean over that.
        """
        shares = (np.arange(QUANTILES) + 0.5) / QUANTILES
        spreads = scale * np.sqrt(chi2.ppf(shares, width))
        inside = np.clip(spreads, self.low, self.high)
        return Saturation(*map(float, self._curves(np.log(inside)).mean(0)))
