"""Learning curves: the error of an arm over its number of training rows, and its forecast.

The forecast is the inverse power law of Cortes et al. 1993, error(n) = a + b n^(−c), with a prior
for its form, so that three or four noisy points suffice (Figueroa et al. 2012; Viering and Loog
2023 compare forms).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float
from scipy.stats import norm, qmc

SAMPLES = 4_096  # curves drawn from the prior
LEVEL = 0.95  # of the prediction intervals
#: Prior of the law, chosen on three data sets (docs/results/suggest.md): the part of the last error
#: that stays for ever is uniform, the exponent c lognormal with this median and deviation of ln c.
EXPONENT, SPREAD = 0.25, 0.8
#: Factor of the variance of cross-validation, which is underestimated since the folds share their
#: training rows. Bates, Hastie and Tibshirani 2023.
SHARED = 1.5
#: Relative deviation of a true curve from the law for each doubling of the rows away from the last.
MISFIT = 0.05

#: Relative deviation of one draw of n training rows from the mean of such draws, times √n.
DRAWS = 0.6


@dataclass(frozen=True)
class Forecast:
    """An error at a number of training rows and its 95 % prediction interval."""

    rows: int
    error: float
    low: float
    high: float


@dataclass(frozen=True)
class LearningCurve:
    """Measured errors at rising numbers of rows, from `measured`.

    ``covariance`` is of the errors as estimates of the population's mean error over draws of the
    training rows; ``highest`` the error of an answer that ignores the text, and ``most`` that of
    the worst possible answers.
    """

    rows: Sequence[int]
    errors: Sequence[float]
    covariance: Sequence[Sequence[float]]
    highest: float
    texts: int = 1_000
    most: float = math.inf

    @property
    def deviations(self) -> list[float]:
        """Return the standard error of each error."""
        return [float(x) for x in np.sqrt(np.diag(self.covariance))]

    def forecast(self, rows: int) -> Forecast:
        """Return the error of one training with this many rows, also between and beyond those seen.

        >>> error = [0.4, 0.3, 0.25]
        >>> curve = LearningCurve([50, 100, 200], error, np.diag([1e-4] * 3), 0.5)
        >>> [round(curve.forecast(n).error, 2) for n in (200, 800)]
        [0.25, 0.19]
        """
        middle, doublings = self.sampled(rows), np.log2(rows / self.rows[-1])
        deviation = middle * np.hypot(DRAWS / np.sqrt(rows), MISFIT * doublings) + 0.5 / self.texts
        rng = np.random.default_rng(0)
        drawn = np.clip(middle + deviation * rng.standard_normal(SAMPLES), 0, self.most)
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(drawn, [tail, 1 - tail])
        return Forecast(rows, float(np.mean(middle)), float(low), float(high))

    def sampled(self, rows: int) -> Float[np.ndarray, " samples"]:
        """Return the mean error at this many rows under each curve of the posterior."""
        last, rest, exponent = self._posterior
        law = last * (rest + (1 - rest) * (rows / self.rows[-1]) ** -exponent)
        return np.asarray(np.minimum(law, np.maximum(self.highest, last)))

    @cached_property
    def _posterior(self) -> Float[np.ndarray, "3 samples"]:
        """Return curves drawn from the posterior: the last error, the rest and the exponent.

        They are drawn from the prior (the last error evenly, around its measured value), then
        again in proportion to their likelihood (sampling, importance resampling; Rubin 1988).
        """
        rows, errors = np.asarray(self.rows, float), np.asarray(self.errors)
        doublings = np.log2(rows[-1] / rows)
        noise = np.asarray(self.covariance) + np.diag((MISFIT * doublings * errors) ** 2 + 1e-8)
        even = qmc.Sobol(3, seed=0).random(16 * SAMPLES)
        width = 4 * float(np.sqrt(noise[-1, -1]))
        last = np.clip(errors[-1] + width * (2 * even[:, 0] - 1), 0, None)
        rest = even[:, 1]
        exponent = EXPONENT * np.exp(SPREAD * norm.ppf(even[:, 2]))
        law = last * (rest + (1 - rest) * (rows[:, None] / rows[-1]) ** -exponent)
        law = np.minimum(law, np.maximum(self.highest, last))
        misses = law - errors[:, None]
        fit = -0.5 * (misses * np.linalg.solve(noise, misses)).sum(0)
        weights = np.exp(fit - fit.max())
        places = (np.arange(SAMPLES) + 0.5) / SAMPLES * weights.sum()
        chosen = np.searchsorted(np.cumsum(weights), places).clip(max=len(weights) - 1)
        chosen = np.random.default_rng(0).permutation(chosen)
        return np.stack([last, rest, exponent])[:, chosen]


def measured(
    rows: Sequence[int],
    losses: Sequence[Float[np.ndarray, "draws texts"]],
    highest: float,
    most: float = math.inf,
) -> LearningCurve:
    """Return the curve of losses by draw and text, NaN where a text was not held out of a draw.

    One array for each size. The variance of a size's mean has two parts, that of the texts (with
    their covariance between sizes, since the same texts are answered) and that of the draws.
    """
    held = np.all([~np.isnan(each).all(0) for each in losses], 0)
    texts = np.stack([np.nanmean(each[:, held], 0) for each in losses])
    errors = np.array([np.nanmean(each) for each in losses])
    draws = errors * DRAWS / np.sqrt(np.array(rows) * [len(each) for each in losses])
    covariance = SHARED * np.atleast_2d(np.cov(texts)) / texts.shape[1] + np.diag(draws**2)
    covariance += np.eye(len(errors)) / texts.shape[1] ** 2  # where no text or every text is wrong
    return LearningCurve(rows, errors.tolist(), covariance.tolist(), highest, texts.shape[1], most)
