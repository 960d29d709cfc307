"""Compare the same arms over several data sets. The unit of these claims is the data set.

Scores of different data sets have different scales, so the arms of each data set are ranked, the
best arm 1, ties by their mean rank, and the ranks are compared (Demšar 2006). `friedman` tests
whether any mean ranks of k arms on N data sets differ, `critical_difference` says by how much those
of two arms must differ, and `wilcoxon_p` tests two arms by the sizes of their differences.
`signed_rank` gives probabilities instead: that the one arm is better, that the difference does not
matter, that the other arm is better (Benavoli et al. 2017).

A score is the mean of an arm over its seeds. The tests ask whether an arm is better on *another*
data set of this kind; how sure a score is on its own data set is asked by
`regard.lab.studies.statistics`.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy import stats

from regard.core.errors import RegardError
from regard.lab.studies.result import read_comparison
from regard.lab.studies.statistics import format_p, holm
from regard.lab.tasks import unit_of
from regard.lab.tasks.estimates import CONFIDENCE

LEAST = 5  # data sets; with 5 the smallest p of the signed-rank test is 0.06
DRAWS = 50_000  # a probability is known up to ± 0.005
PRIOR = 0.5  # data sets without a difference, before any data
DIGITS = 12  # scores that differ by less are ties

DataScores = Float[np.ndarray, "data arms"]


@dataclass(frozen=True)
class Friedman:
    """Friedman's χ² of mean ranks, and the F of Iman and Davenport with its p."""

    chi_square: float
    f: float
    freedom: tuple[int, int]
    p: float


@dataclass(frozen=True)
class RankedPair:
    """Two arms over all data sets: the mean difference a − b, positive if `a` is better.

    `p` is of the signed-rank test, adjusted by Holm over all pairs. `a_better`, `equivalent` and
    `b_better` are probabilities.
    """

    a: str
    b: str
    difference: float
    p: float
    a_better: float
    equivalent: float
    b_better: float


@dataclass(frozen=True)
class RankedArm:
    """An arm with its mean rank and its mean score over all data sets."""

    name: str
    mean_rank: float
    mean: float


@dataclass(frozen=True)
class Ranks:
    """The ranks of arms over data sets, the best arm first.

    With two arms there is no Friedman test and no critical difference, only the pair. `delta` is in
    the unit of the metric; `notes` name scores of arms that were not trained to the end.
    """

    metric: str
    data: tuple[str, ...]
    delta: float
    arms: tuple[RankedArm, ...]
    friedman: Friedman | None
    critical_difference: float | None
    pairs: tuple[RankedPair, ...]
    notes: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Return Friedman's test and the critical difference in words; "" for two arms."""
        if self.friedman is None or self.critical_difference is None:
            return ""
        between, within = self.friedman.freedom
        f = f"{self.friedman.f:.2f}".replace("inf", "∞")
        return (
            f"Friedman: F({between}, {within}) = {f}, {format_p(self.friedman.p)}; two mean ranks "
            f"differ at 5 % if they are {self.critical_difference:.2f} apart (Nemenyi)"
        )

    def json(self) -> dict[str, Any]:
        """Return the ranks as ``regard ranks --json`` prints them; an infinite F is null."""
        record = asdict(self)
        if self.friedman and math.isinf(self.friedman.f):
            record["friedman"]["f"] = None
        return record


def ranks_of(scores: DataScores) -> DataScores:
    """Rank the arms of each data set, the largest score 1; ties share their mean rank.

    >>> ranks_of(np.array([[0.7, 0.9, 0.7], [0.2, 0.3, 0.1]])).tolist()
    [[2.5, 1.0, 2.5], [2.0, 1.0, 3.0]]
    """
    return np.asarray(stats.rankdata(-np.round(scores, DIGITS), axis=1))


def friedman(scores: DataScores) -> Friedman:
    """Test whether the mean ranks R of k ≥ 3 arms on N data sets differ. Friedman 1937.

        χ² = 12 N / (k (k + 1)) · (Σ R² − k (k + 1)² / 4) / (1 − Σ (t³ − t) / (N k (k² − 1)))
        F  = (N − 1) χ² / (N (k − 1) − χ²)        with k − 1 and (k − 1)(N − 1) degrees of freedom

    t are the sizes of ties. χ² is too conservative, so the p is that of F (Iman & Davenport 1980).
    If all data sets agree, F is infinite; no p is below (1/k!)^(N − 1), the probability of that.
    Simulated with 3 to 8 equal arms, p < 5 % in 4.0 to 6.5 % of the studies with 5 data sets and in
    4.5 to 5.4 % with 10; p < 0.5 % in up to 2.5 and 0.7 %.

    >>> friedman(np.array([[3, 2, 1], [3, 2, 1], [3, 1, 2], [3, 2, 1], [2, 3, 1.0]])).p
    0.0167...
    """
    data, arms = scores.shape
    freedom = (arms - 1, (arms - 1) * (data - 1))
    ranks = ranks_of(scores)
    if (ranks == ranks[:, :1]).all():
        return Friedman(0.0, 0.0, freedom, 1.0)
    chi_square = float(stats.friedmanchisquare(*ranks.T).statistic)
    rest = data * (arms - 1) - chi_square
    f = (data - 1) * chi_square / rest if rest > 1e-9 else math.inf
    p = max(float(stats.f.sf(f, *freedom)), math.factorial(arms) ** (1.0 - data))
    return Friedman(chi_square, f, freedom, p)


def critical_difference(arms: int, data: int) -> float:
    """Return by how much two of k mean ranks over N data sets must differ, at 5 %. Nemenyi 1963.

        q √(k (k + 1) / (6 N))        q: the 95 % quantile of the studentized range of k, over √2

    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    quantile = float(stats.studentized_range.ppf(CONFIDENCE, arms, np.inf)) / math.sqrt(2)
    return quantile * math.sqrt(arms * (arms + 1) / (6 * data))


def wilcoxon_p(gains: Float[np.ndarray, " data"]) -> float:
    """Return the two-sided p of the signed-rank test; differences of 0 count half for each arm.

    >>> wilcoxon_p(np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]))
    0.03125
    """
    gains = np.round(gains, DIGITS)
    return float(stats.wilcoxon(gains, zero_method="zsplit").pvalue) if gains.any() else 1.0


def signed_rank(gains: Float[np.ndarray, " data"], margin: float) -> tuple[float, float, float]:
    """Return the probabilities that a gain is above δ, within ±δ and below −δ.

    The Bayesian signed-rank test with a region of practical equivalence (Benavoli, Corani, Demšar &
    Zaffalon 2017): the distribution of gains is a Dirichlet process, whose prior is `PRIOR` data
    sets without a gain. A draw weights the N gains and the prior; its shares of pairs (i, j) with
    (gᵢ + gⱼ)/2 above δ, within and below −δ, are three numbers, and a probability is how often its
    number is the largest.

    >>> above, within, below = signed_rank(np.array([0.03, 0.04, 0.02, 0.05, 0.001]), 0.01)
    >>> above > 0.95 > within > below
    True
    """
    values = np.concatenate([[0.0], gains])
    means = (values[:, None] + values) / 2
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.r_[PRIOR, np.ones(len(gains))], DRAWS)
    above, below = (
        ((weights @ np.heaviside(side - margin, 0.5)) * weights).sum(1) for side in (means, -means)
    )
    largest = np.stack([above, 1 - above - below, below]).argmax(0)
    shares = np.bincount(largest, minlength=3) / DRAWS
    return float(shares[0]), float(shares[1]), float(shares[2])


def read_ranks(folders: Sequence[Path], delta: float | None = None) -> Ranks:
    """Rank the arms of comparisons, one folder for each data set.

    `delta`, in the unit of the metric, is the difference that does not matter; by default that of
    the metric.

    Raises: no comparison in a folder, one of fewer than two arms, or of other arms or another
    metric than the first; the same data twice; fewer than five data sets; no usual `delta`.
    """
    records = [read_comparison(folder) for folder in folders]
    means = [{row["name"]: row.get("mean") for row in record["arms"]} for record in records]
    names = [name for name in means[0] if means[0][name] is not None] if means else []
    metric = records[0]["metric"] if records else ""
    seen: dict[str, Path] = {}
    for folder, record, own in zip(folders, records, means, strict=True):
        have = [name for name, mean in own.items() if mean is not None]
        if len(have) < 2:
            raise RegardError(
                f"{folder} has results of {len(have)} arm{'s' * (len(have) != 1)}; "
                "ranks need two or more"
            )
        if {*have} != {*names}:
            raise RegardError(
                f"{folder} has the arms {', '.join(have)}, but {folders[0]} has "
                f"{', '.join(names)}; compare the same arms on every data set"
            )
        if record["metric"] != metric:
            raise RegardError(
                f"{folder} has the metric {record['metric']}, but {folders[0]} has {metric}; "
                "use one metric for all"
            )
        key = record.get("fingerprint") or str(folder.resolve())
        if key in seen:
            raise RegardError(
                f"{seen[key]} and {folder} compare on the same data; give one of them"
            )
        seen[key] = folder
    if len(folders) < LEAST:
        raise RegardError(
            f"ranks need comparisons on at least {LEAST} data sets, not {len(folders)}"
        )
    unit = unit_of(metric)
    delta = unit.delta if delta is None else delta
    if delta is None:
        raise RegardError(f"give --delta, the difference in {metric} that does not matter")
    if not 0 < delta < math.inf:
        raise RegardError(f"--delta {delta:g}: give a number above 0")
    data = tuple(
        record.get("data") or folder.name for folder, record in zip(folders, records, strict=True)
    )
    scores = np.array([[unit.better(own[name]) for name in names] for own in means])
    untrained = tuple(
        f"{arm['name']} on {name}: {arm.get('training') or 'not trained to the end'}"
        for name, record in zip(data, records, strict=True)
        for arm in record["arms"]
        if not arm.get("trained", True)
    )
    return rank(scores, names, metric, data, delta, untrained)


def rank(
    scores: DataScores,
    names: Sequence[str],
    metric: str,
    data: Sequence[str],
    delta: float,
    notes: tuple[str, ...] = (),
) -> Ranks:
    """Rank the arms and compare every two. In `scores` larger is better, also for a loss.

    >>> scores = np.array([[0.9, 0.7], [0.8, 0.7], [0.9, 0.5], [0.6, 0.5], [0.9, 0.8]])
    >>> ranks = rank(scores, ["cnn", "mean"], "accuracy", "ABCDE", 1.0)
    >>> [(arm.name, arm.mean_rank) for arm in ranks.arms], ranks.pairs[0].p
    ([('cnn', 1.0), ('mean', 2.0)], 0.0625)
    """
    unit, count = unit_of(metric), len(names)
    mean_ranks, means = ranks_of(scores).mean(0), scores.mean(0)
    order = sorted(range(count), key=lambda arm: (mean_ranks[arm], -means[arm]))
    pairs = [(a, b, scores[:, a] - scores[:, b]) for a, b in combinations(order, 2)]
    adjusted = holm([wilcoxon_p(gains) for _, _, gains in pairs])
    return Ranks(
        metric,
        tuple(data),
        delta,
        tuple(
            RankedArm(names[arm], float(mean_ranks[arm]), unit.better(float(means[arm])))
            for arm in order
        ),
        friedman(scores) if count > 2 else None,
        critical_difference(count, len(scores)) if count > 2 else None,
        tuple(
            RankedPair(
                names[a], names[b], float(gains.mean()), p, *signed_rank(gains, delta / unit.times)
            )
            for (a, b, gains), p in zip(pairs, adjusted, strict=True)
        ),
        notes,
    )
