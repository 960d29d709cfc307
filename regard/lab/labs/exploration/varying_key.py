"""Attention of one head and of two over keys, one of which varies in norm: draws and theory.

CS224N winter 2022, assignment 5, part 1, (c.2) and (d.2).

Keys k_i ~ N(μ_i, αI) with orthonormal means, but k_a ~ N(μ_a, αI + ½ μ_a μ_aᵀ): its direction
stays, its length varies (1 ± 0.7). Values are v_i = μ_i, so that c·μ_i is the share of v_i in the
output, and one picture of the plane (μ_a, μ_b) shows all. With g = k_a·μ_a and α → 0:

    one head, q = β(μ_a + μ_b):      share of a = e^(βg) / (e^(βg) + e^β + n − 2)
    two heads, q₁ = βμ_a, q₂ = βμ_b:  share of a = ½ e^(βg) / (e^(βg) + n − 1) + ½ / (e^β + n − 1)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from regard.attention import SCORES, Score, attend
from regard.core.errors import RegardError
from regard.core.settings import Settings

GRID = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 15.0, 20.0, 30.0, 45.0, 60.0)
RESAMPLES = 1_000
CHUNK = 2**21  # numbers of keys that are held at once
STEPS = 20_001  # of an integral over −9 … 9 standard deviations

Function = Callable[[Tensor], Tensor]


class ExplorationSettings(Settings):
    """The sizes of the draws: `keys` keys of `d` numbers, `draws` draws where a key's norm varies.

    `alpha`: variance of every key about its mean; `beta`: length of a query along each mean;
    `bases`: draws of two orthogonal bases, in up to `d` dimensions.
    """

    d: int = Field(64, ge=3, le=1024)
    keys: int = Field(16, ge=3)
    alpha: float = Field(1e-6, ge=0, le=0.1, allow_inf_nan=False)
    beta: float = Field(20.0, gt=0, le=300, allow_inf_nan=False)
    draws: int = Field(10_000, ge=100, le=1_000_000)
    bases: int = Field(1_000, ge=1, le=100_000)
    seed: int = Field(0, ge=0, lt=2**62)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.keys > self.d:
            raise RegardError(
                f"{self.keys} keys with orthogonal means need d={self.keys} or more, not "
                f"d={self.d}: raise d or lower keys"
            )
        return self


@dataclass(frozen=True)
class Interval:
    """A number and the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Arm:
    """The result of one query: shares (draws, 2) of v_a and v_b, over all draws.

    `variance` is that of the share of v_a; `mean` its mean.
    """

    name: str
    shares: NDArray[np.float64]
    mean: Interval
    variance: Interval
    theory: float

    @property
    def holds(self) -> bool:
        """Return whether theory lies within two intervals of the measurement."""
        return 2 * self.variance.low <= self.theory + self.variance.value and (
            self.theory + self.variance.value <= 2 * self.variance.high
        )


@dataclass(frozen=True)
class Measured:
    """All arms at the lab's β, the ratio of variances, and the two arms over β."""

    even: Arm
    single: Arm
    pair: Arm
    cosine: Arm
    ratio: Interval
    missed: float
    missed_theory: float
    curves: tuple[list[Interval], list[Interval]]


def measure(settings: ExplorationSettings, show: Callable[[float], None]) -> Measured:
    """Draw all keys once, compute attention for every query, and summarise."""
    generator = torch.Generator().manual_seed(settings.seed + 3)
    betas = sorted({*GRID, settings.beta})
    samples: dict[tuple[str, float], list[Tensor]] = {}
    first: list[Tensor] = []
    drawn, step = 0, max(1, CHUNK // (settings.keys * settings.d))
    means = orthonormal(generator, settings.d, settings.keys)
    while drawn < settings.draws:
        count = min(step, settings.draws - drawn)
        even, varied = draw(generator, means, settings.alpha, count)
        for beta in betas:
            samples.setdefault(("single", beta), []).append(one_head(varied, means, beta))
            heads = head_shares(varied, means, beta)
            samples.setdefault(("pair", beta), []).append(heads.mean(1)[:, :2])
            if beta == settings.beta:
                first.append(heads[:, 0, 0])
        samples.setdefault(("even", settings.beta), []).append(one_head(even, means, settings.beta))
        cosine = cosine_of(settings.beta)
        answered = one_head(varied, means, settings.beta, cosine)
        samples.setdefault(("cosine", settings.beta), []).append(answered)
        drawn += count
        show(drawn / settings.draws * 0.7)
    shares = {key: torch.cat(parts).numpy() for key, parts in samples.items()}
    names = [(name, beta) for beta in betas for name in ("single", "pair")]
    names += [("even", settings.beta), ("cosine", settings.beta)]
    a = np.stack([shares[name][:, 0] for name in names], 1)
    means_of, variances_of = resample(a, settings.seed, lambda done: show(0.7 + 0.3 * done))
    where = {name: i for i, name in enumerate(names)}

    def arm(kind: str, title: str, theory: tuple[float, float]) -> Arm:
        i = where[kind, settings.beta]
        mean, variance = float(a[:, i].mean()), float(a[:, i].var(ddof=1))
        return Arm(
            title, shares[kind, settings.beta],
            interval(mean, means_of[:, i]), interval(variance, variances_of[:, i]),
            theory[1],
        )  # fmt: skip

    def curve(kind: str) -> list[Interval]:
        at = [where[kind, beta] for beta in betas]
        return [interval(float(a[:, i].var(ddof=1)), variances_of[:, i]) for i in at]

    sizes = settings.keys, settings.alpha, settings.beta
    single = arm("single", "one head", moments(single_share(*sizes)))
    pair = arm("pair", "two heads", moments(pair_share(*sizes)))
    quotient = variances_of[:, where["single", settings.beta]] / np.maximum(
        variances_of[:, where["pair", settings.beta]], 1e-300
    )
    missed = float((torch.cat(first) < 0.5).double().mean())
    return Measured(
        even=arm("even", "one head, no key varies",
                 moments(single_share(*sizes, wobble=0.0))),
        single=single,
        pair=pair,
        cosine=arm("cosine", "one head, cosine score",
                   moments(cosine_share(settings.keys, settings.d, settings.alpha, settings.beta))),
        ratio=interval(single.variance.value / max(pair.variance.value, 1e-300), quotient),
        missed=missed,
        missed_theory=miss(*sizes),
        curves=(curve("single"), curve("pair")),
    )  # fmt: skip


def draw(
    generator: torch.Generator, means: Float[Tensor, "n d"], alpha: float, count: int
) -> tuple[Float[Tensor, "count n d"], Float[Tensor, "count n d"]]:
    """Return keys about their means, without and with the wobble of the first."""
    noise = torch.randn(count, *means.shape, generator=generator, dtype=torch.float64)
    even = noise.mul_(math.sqrt(alpha)).add_(means)
    wobble = torch.randn(count, 1, generator=generator, dtype=torch.float64)
    varied = even.clone()
    varied[:, 0] += math.sqrt(0.5) * wobble * means[0]
    return even, varied


def one_head(
    keys: Float[Tensor, "count n d"],
    means: Float[Tensor, "n d"],
    beta: float,
    score: Score | None = None,
) -> Float[Tensor, "count 2"]:
    """Return the shares of v_a and v_b in c, for q = β(μ_a + μ_b)."""
    query = beta * (means[:1] + means[1:2])
    output = attend(query, keys, means, score or SCORES["dot"]()).output
    return (output @ means[:2].mT).squeeze(-2)


def head_shares(
    keys: Float[Tensor, "count n d"], means: Float[Tensor, "n d"], beta: float
) -> Float[Tensor, "count 2 n"]:
    """Return the shares of all values in c₁ and c₂, for q₁ = βμ_a and q₂ = βμ_b."""
    queries = beta * means[:2, None]
    output = attend(queries, keys[:, None], means[None], SCORES["dot"](), heads=2).output
    return (output @ means.mT).squeeze(-2)


def cosine_of(beta: float) -> Score:
    """Return the cosine score at the temperature at which a key of length 1 has its usual score."""
    score = SCORES["cosine-temperature"]().double().requires_grad_(False)
    score.get_parameter("temperature").fill_(math.log(beta * math.sqrt(2)))
    return score


def orthonormal(generator: torch.Generator, d: int, n: int) -> Float[Tensor, "n d"]:
    """Return n random orthonormal rows of d numbers."""
    drawn = torch.randn(d, n, generator=generator, dtype=torch.float64)
    rows: Tensor = torch.linalg.qr(drawn).Q.mT.contiguous()
    return rows


def single_share(n: int, alpha: float, beta: float, wobble: float = 0.5) -> Function:
    """Return the share of v_a under one head as a function of a standard normal number.

    `wobble`: the variance of the norm of k_a.
    """
    spread = beta * math.sqrt(wobble + 4 * alpha)
    return lambda z: 1 / (1 + torch.exp(-spread * z) * (1 + (n - 2) * math.exp(-beta)))


def pair_share(n: int, alpha: float, beta: float) -> Function:
    """Return the share of v_a under two heads."""
    spread, rest = math.sqrt(0.5 + alpha), 0.5 / (math.exp(min(beta, 700)) + n - 1)
    return lambda z: 0.5 * torch.sigmoid(beta * (1 + spread * z) - math.log(n - 1)) + rest


def cosine_share(n: int, d: int, alpha: float, beta: float) -> Function:
    """Return the share of v_a under one head when only the direction of k_a counts.

    That is the sign of g = k_a·μ_a, but for the shortest keys: the other d − 1 numbers of k_a are
    noise of squared length α(d − 1), and its cosine with μ_a is g / √(g² + α(d − 1)).
    """

    def share(z: Tensor) -> Tensor:
        g = 1 + math.sqrt(0.5) * z
        own = beta * g / (g.square() + alpha * (d - 1)).sqrt().clamp(min=1e-300)
        return 1 / (1 + torch.exp(beta - own) + (n - 2) * torch.exp(-own))

    return share


def miss(n: int, alpha: float, beta: float) -> float:
    """Return how often head 1 gives a less than half: Φ((ln(n − 1)/β − 1) / √(½ + α)).

    >>> round(miss(16, 0.0, 1e9), 4)
    0.0786
    """
    edge = (math.log(n - 1) / beta - 1) / math.sqrt(0.5 + alpha)
    return 0.5 * math.erfc(-edge / math.sqrt(2))


def expected(function: Function) -> float:
    """Return E f(z) for a standard normal z, by the trapezoid rule.

    >>> round(expected(lambda z: z**2), 9)
    1.0
    """
    z = torch.linspace(-9, 9, STEPS, dtype=torch.float64)
    density = torch.exp(-(z**2) / 2)
    return float((density * function(z)).sum() / density.sum())


def moments(function: Function) -> tuple[float, float]:
    """Return the mean and variance of f(z) for a standard normal z."""
    mean = expected(function)
    return mean, expected(lambda z: (function(z) - mean) ** 2)


def resample(
    values: NDArray[np.float64], seed: int, show: Callable[[float], None]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means and variances (resamples, columns) of rows drawn again with replacement."""
    draws, random = len(values), np.random.default_rng(seed)
    count = max(200, min(RESAMPLES, 20_000_000 // draws))
    centre = values.mean(0)
    away = values - centre  # of the size of the deviations, so that squares keep their digits
    both = np.concatenate([away, away**2], 1)
    sums = np.empty((count, both.shape[1]))
    for i in range(count):
        times = np.bincount(random.integers(draws, size=draws), minlength=draws)
        sums[i] = times @ both
        if i % 50 == 0:
            show(i / count)
    first, second = np.split(sums / draws, 2, axis=1)
    return first + centre, (second - first**2) * draws / (draws - 1)


def interval(value: float, again: Sequence[float] | NDArray[np.float64]) -> Interval:
    """Return the 95 % interval by percentiles of the resamples."""
    low, high = np.quantile(np.asarray(again), [0.025, 0.975])
    return Interval(value, float(low), float(high))
