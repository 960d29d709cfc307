"""Text, figures and claims on one and two heads given a key of varying norm."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.attention import attend
from regard.lab.labs.exploration.extraction import EXACT
from regard.lab.labs.exploration.varying_key import (
    GRID,
    Measured,
    Study,
    moments,
    pair_share,
    single_share,
)
from regard.lab.labs.lab import Claim, Part, claim
from regard.lab.reports.figures import Series, histogram, line_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table
from regard.lab.reports.markup import Html

EDGES = [(i - 0.5) / 20 for i in range(22)]  # a pile at 0, ½ or 1 stands in one bar


def part(study: Study, found: Measured) -> Part:
    """Return what the report says of it, and what is to be looked for."""
    arms = [found.even, found.single, found.pair, found.cosine]
    tall = max(float(bars(arm.shares[:, 0]).max()) for arm in arms[1:])
    rows: list[list[Cell]] = [
        [arm.name, arm.mean.value, arm.variance.value, arm.variance.low, arm.variance.high,
         arm.theory]
        for arm in arms
    ]  # fmt: skip
    wide, narrow = study.beta * math.sqrt(0.5 + 4 * study.alpha), study.beta * study.alpha**0.5 * 2
    section = Section(
        "(c.2, d) A key of varying norm: one head against two",
        [
            "k_i ~ N(μ_i, αI), but k_a ~ N(μ_a, αI + ½ μ_a μ_aᵀ): k_a·μ_a is 1 on average with a "
            "standard deviation of √½ = 0.71. One head asks with q = β(μ_a + μ_b); its two scores "
            f"differ by a normal number of mean 0 and deviation β√(½ + 4α) = {wide:.1f} (without "
            f"the wobble of k_a: {narrow:.3f}). That the mean of k_a − k_b is still μ_a − μ_b, as "
            "004's answer says, does not help: softmax sees each draw, not the mean, and turns "
            "such a difference into a weight near 0 or 1. So c is v_a or v_b, seldom their "
            "average.",
            "Two heads, q₁ = βμ_a and q₂ = βμ_b, c = (c₁ + c₂)/2: within head 1 no other key "
            "competes for μ_a, so the norm of k_a does not matter as long as βk_a·μ_a passes "
            "ln(n − 1). The variance that is left comes from the draws in which it does not.",
            "What two heads do not cure: when k_a is short or points backwards, head 1 finds "
            "nothing and gives an average of all the others. The trouble has another cure: the "
            "cosine score gives the length of a key no say, and one head then does as well as two; "
            "draws that point backwards stay lost for both.",
        ],
        [
            *(
                Figure(
                    histogram(
                        arm.name, bars(arm.shares[:, 0]).tolist(), EDGES, highest=tall,
                        x_label="share of v_a in c", y_label="share of draws",
                    ),
                    caption,
                    True,
                )
                for arm, caption in (
                    (found.single, "What to see: piles at 0 and 1."),
                    (found.pair, "What to see: one pile at ½, one near 0."),
                    (found.cosine, "What to see: the same as two heads."),
                )
            ),
            Figure(plane(found), "400 draws of each. What to see: one head moves along the line "
                   "from v_b to v_a and is mostly at its ends; two heads are at (½, ½), but for "
                   "the draws in which head 1 misses, with half of v_b and little of v_a."),
            Figure(over_beta(study, found), f"{study.draws:,} draws, bars are 95 % intervals, "
                   "lines the theory. What to see: one head's variance rises to that of a coin, "
                   "¼; two heads' to that of the draws that point backwards."),
        ],
        [
            Table(
                f"The share of v_a in c, over {study.draws:,} draws at β = {study.beta:g}",
                ["asked by", "mean", "variance", "low", "high", "theory"],
                rows,
                "95 % intervals by bootstrap over draws (percentiles): the shares are far from "
                "normal, so that a chi-square interval would be wrong.",
            ),
            curve_table(study, found),
        ],
    )  # fmt: skip
    return Part(section, claims_of(study, found))


def claims_of(study: Study, found: Measured) -> list[Claim]:
    """Return what is to be looked for."""
    ratio = found.ratio
    parts = [
        claim(
            f"({part}) {arm.name}: variance {arm.variance} of the share of v_a; theory "
            f"{arm.theory:.3g}",
            arm.variance.value,
            arm.holds,
        )
        for part, arm in (("c.2", found.single), ("d.2", found.pair))
    ]
    return [
        balance(study),
        *parts,
        claim(
            f"(d.2) that is {ratio.value:.1f} [{ratio.low:.1f}, {ratio.high:.1f}] times less with "
            f"two heads, over {study.draws:,} draws",
            ratio.value,
            ratio.low > 1,
        ),
        claim(
            f"(c.2) the wobble of one key does it: with Σ_a = αI as for the others, one head's "
            f"variance is {found.even.variance.value:.1e}",
            found.even.variance.value,
            found.even.variance.high < found.single.variance.low,
        ),
        claim(
            f"(d.2) not cured: in {found.missed:.1%} of the draws head 1 has less than half its "
            f"weight on a (theory {found.missed_theory:.1%}); v_a has {found.pair.mean.value:.3f} "
            "of c on average, not 0.5",
            found.missed,
            abs(found.missed - found.missed_theory)
            <= 4 * math.sqrt(found.missed_theory / study.draws),
        ),
        claim(
            f"(c.2) one head with the cosine score has variance {found.cosine.variance}: the norm "
            "was the trouble",
            found.cosine.variance.value,
            found.cosine.variance.high < found.single.variance.low,
        ),
    ]


def balance(study: Study, tries: int = 500) -> Claim:
    """Return the claim (a5.1.5): two heads weigh two keys alike where (k_a − k_b)·(q₁ + q₂) = 0.

    Two keys and two queries are drawn; q₂ is then also moved along k_a − k_b to where it holds.
    """
    generator = torch.Generator().manual_seed(study.seed + 3)
    keys, queries = torch.randn(2, tries, 2, study.d, generator=generator, dtype=torch.float64)
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
    says = (
        "(d.1) two heads give two keys equal weight where (k_a − k_b)·(q₁ + q₂) = 0 (a5.1.5), to "
        f"{off:.1e} over {tries} draws; elsewhere its sign names the heavier key, in {signs:.1%}"
    )
    return claim(says, off, off <= EXACT and signs == 1)


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


def over_beta(study: Study, found: Measured) -> Html:
    """Return the variance of both over β, and the theory's."""
    betas, fine = sorted({*GRID, study.beta}), [1 + 0.5 * i for i in range(119)]
    fine = [beta for beta in fine if beta <= betas[-1]]
    theory = [
        [moments(share(study.n, study.alpha, beta))[1] for beta in fine]
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


def curve_table(study: Study, found: Measured) -> Table:
    """Return both variances over β."""
    betas = sorted({*GRID, study.beta})
    rows = [
        [beta, one.value, moments(single_share(study.n, study.alpha, beta))[1],
         two.value, moments(pair_share(study.n, study.alpha, beta))[1],
         one.value / two.value if two.value else math.nan]
        for beta, one, two in zip(betas, *found.curves, strict=True)
    ]  # fmt: skip
    columns = ["β", "one head", "theory", "two heads", "theory", "ratio"]
    return Table("Variance of the share of v_a over β", columns, rows)


def bars(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much of the draws lies between each two edges."""
    counts, _ = np.histogram(shares, EDGES)
    return counts / len(shares)
