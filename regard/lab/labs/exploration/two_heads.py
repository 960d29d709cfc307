"""Figures and claims on one and two heads given a key of varying norm."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import attend
from regard.lab.labs.exploration.extraction import EXACT
from regard.lab.labs.exploration.varying_key import (
    GRID,
    ExplorationSettings,
    Measured,
    moments,
    pair_share,
    single_share,
)
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, histogram, line_chart
from regard.lab.reports.findings import Cell
from regard.lab.reports.markup import Html

TRIES = 500  # draws of two keys and two queries
EDGES = [(i - 0.5) / 20 for i in range(22)]  # values at 0, ½ or 1 fall into one bar


def findings(settings: ExplorationSettings, found: Measured) -> Findings:
    """Return the claims, the charts and the tables."""
    arms = [found.even, found.single, found.pair, found.cosine]
    tall = max(float(bars(arm.shares[:, 0]).max()) for arm in arms[1:])
    rows: list[list[Cell]] = [
        [arm.name, arm.mean.value, arm.variance.value, arm.variance.low, arm.variance.high,
         arm.theory]
        for arm in arms
    ]  # fmt: skip
    columns = ["asked by", "mean", "variance", "low", "high", "theory"]
    wide = settings.beta * math.sqrt(0.5 + 4 * settings.alpha)
    narrow = settings.beta * settings.alpha**0.5 * 2
    single, ratio = found.single, found.ratio
    near = 4 * math.sqrt(found.missed_theory / settings.draws)
    off, signs = balance(settings)
    return Findings(
        {
            "equal-weight": (off, off <= EXACT and signs == 1),
            "single": (single.variance.value, single.holds),
            "pair": (found.pair.variance.value, found.pair.holds),
            "ratio": (ratio.value, ratio.low > 1),
            "even": (found.even.variance.value, found.even.variance.high < single.variance.low),
            "missed": (found.missed, abs(found.missed - found.missed_theory) <= near),
            "cosine": (
                found.cosine.variance.value, found.cosine.variance.high < single.variance.low
            ),
        },
        {"single": single, "pair": found.pair, "cosine": found.cosine, "ratio": ratio,
         "missed_theory": found.missed_theory, "draws": settings.draws, "wide": wide,
         "narrow": narrow, "balance_draws": TRIES, "signs": signs},
        {
            **{
                f"share-{name}": histogram(
                    arm.name, bars(arm.shares[:, 0]).tolist(), EDGES, highest=tall,
                    x_label="share of v_a in c", y_label="share of draws",
                )
                for name, arm in
                (("single", single), ("pair", found.pair), ("cosine", found.cosine))
            },
            "plane": plane(found),
            "over-beta": over_beta(settings, found),
        },
        {"shares": (columns, rows), "variances": curve_table(settings, found)},
    )  # fmt: skip


def balance(settings: ExplorationSettings) -> tuple[float, float]:
    """Test (a5.1.5): two heads weigh two keys alike where (k_a − k_b)·(q₁ + q₂) = 0.

    Two keys and two queries are drawn; q₂ is then moved along k_a − k_b until the condition holds.
    Return the largest difference of the weights there, and for the unmoved draws the share in which
    the sign of the product predicts the heavier key.
    """
    generator = torch.Generator().manual_seed(settings.seed + 3)
    keys, queries = torch.randn(2, TRIES, 2, settings.d, generator=generator, dtype=torch.float64)
    apart = keys[:, 0] - keys[:, 1]

    def product(queries: Tensor) -> Tensor:
        return torch.einsum("td,thd->t", apart, queries)

    def lead(queries: Tensor) -> Tensor:
        weights = attend(queries, keys, keys, "scaled-dot").weights.sum(-2)
        return weights[:, 0] - weights[:, 1]

    even = queries.clone()
    even[:, 1] -= (product(queries) / apart.square().sum(-1))[:, None] * apart
    off = float(lead(even).abs().max())
    signs = float((lead(queries).sign() == product(queries).sign()).double().mean())
    return off, signs


def plane(found: Measured) -> Html:
    """Return the chart of c in the plane of μ_a and μ_b."""
    some = slice(0, 400)
    return line_chart(
        "Where c lies in the plane of v_a and v_b",
        [
            Series(arm.name, arm.shares[some, 0].tolist(), arm.shares[some, 1].tolist(),
                   look=look, dots=True)
            for look, arm in ((1, found.single), (0, found.pair))
        ],
        x_label="c·μ_a, the share of v_a", y_label="c·μ_b, the share of v_b", height=400,
    )  # fmt: skip


def over_beta(settings: ExplorationSettings, found: Measured) -> Html:
    """Return the chart of both variances over β, measured and by theory."""
    betas, fine = sorted({*GRID, settings.beta}), [1 + 0.5 * i for i in range(119)]
    fine = [beta for beta in fine if beta <= betas[-1]]
    theory = [
        [moments(share(settings.keys, settings.alpha, beta))[1] for beta in fine]
        for share in (single_share, pair_share)
    ]
    series = [Series("", fine, line, faint=True) for line in theory]
    for name, look, curve in zip(("one head", "two heads"), (1, 0), found.curves, strict=True):
        series.append(
            Series(name, betas, [v.value for v in curve], look=look, dots=True,
                   low=[v.low for v in curve], high=[v.high for v in curve])
        )  # fmt: skip
    return line_chart(
        "Variance of the share of v_a over β",
        series, x_label="β", y_label="variance", height=360,
    )  # fmt: skip


def curve_table(
    settings: ExplorationSettings, found: Measured
) -> tuple[list[str], list[list[float]]]:
    """Return both variances over β."""
    betas = sorted({*GRID, settings.beta})
    rows = [
        [beta, one.value, moments(single_share(settings.keys, settings.alpha, beta))[1],
         two.value, moments(pair_share(settings.keys, settings.alpha, beta))[1],
         one.value / two.value if two.value else math.nan]
        for beta, one, two in zip(betas, *found.curves, strict=True)
    ]  # fmt: skip
    columns = ["β", "one head", "theory", "two heads", "theory", "ratio"]
    return columns, rows


def bars(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of draws between each two edges."""
    counts, _ = np.histogram(shares, EDGES)
    return counts / len(shares)
