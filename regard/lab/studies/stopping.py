"""Decide claims about methods with as few seeds as needed: different, equivalent or undecided.

A study looks at its results after n₁ < n₂ < … < n_K seeds, as `looks` declares beforehand, and ends
a claim as soon as it is decided. Whoever looks after 3, 4, … 30 seeds at the level 5 % finds a
difference of equal methods in 23 % of the studies (Armitage, McPherson & Rowe 1969). So each look
has a stricter level: a group sequential test as Pocock's (1977), whose levels grow as √n,

    a claim is decided at look k if p_k ≤ c(α) w_k,     w_k = √(n_k / n_K)
    c(α):  P(p_k ≤ c w_k for any k) = α  for paired t tests over seeds of equal methods

**No stopping rule errs more often**: the bound is on the chance that p is small at *any* look, and
whoever stops earlier, or never, looks at fewer. Student's t does not depend on the variance of
the seeds, so c is known: it is simulated once (`_smallest`), as Jennison & Turnbull (2000, chapter
11) integrate it. No normal approximation is used, which at 3 seeds would be wrong. The other
part of the variance, that of the test examples, is shared by all looks and lets their results
agree more, so that the error rate falls (`benchmarks.stopping` measures it).

`anytime_p` is the α at which the observed p would just decide, so that Holm's correction applies
to it; the interval at the level c(5 %) w_k is a repeated confidence interval (Jennison & Turnbull
1989), which contains the truth at all looks together with probability 95 %.

**Equivalent within δ** means that two one-sided tests (Schuirmann 1987) reject a difference of δ
or more, and one of −δ or less, each at 5 % over all looks: the repeated 90 % interval lies within
±δ. "No evidence of a difference" is not enough.

**Why this rule.** Seeds are few, and most claims are large differences or none, so 3 seeds must be
able to decide. Spending α as O'Brien & Fleming do uses 15 seeds where this rule uses 13 (without a
difference) and 10 where it uses 6 (2δ). A confidence sequence (Lai 1976; Wang & Ramdas 2024) needs
no last look, but uses 16 and 7. `benchmarks.stopping_rules` compares six rules.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from scipy.special import stdtr

from regard.lab.studies.statistics import Difference, as_family
from regard.lab.tasks.estimates import CONFIDENCE

PATHS = 100_000  # simulated studies; c(5 %) is known up to 1.4 % of its value


def looks(least: int, most: int) -> tuple[int, ...]:
    """Return the numbers of seeds after which a study is judged: each a quarter more, at least one.

    >>> looks(3, 30)
    (3, 4, 5, 6, 7, 8, 10, 12, 15, 18, 22, 27, 30)
    """
    numbers = [least]
    while numbers[-1] < most:
        numbers.append(min(most, numbers[-1] + max(1, numbers[-1] // 4)))
    return tuple(numbers)


def anytime_p(p: float, look: int, looks: tuple[int, ...]) -> float:
    """Return the chance that equal methods reach such a small p at this look or a like one at any.

    `p` is that of the usual test with `look` seeds. Small results, where few simulated studies are
    left, are bounded by the sum over all looks.

    >>> anytime_p(0.03, 5, (5,)), round(anytime_p(0.004, 3, (3, 4, 5)), 2)
    (0.03, 0.01)
    """
    if len(looks) == 1 or np.isnan(p):
        return p
    scaled = p / _weight(look, looks)
    smallest = _smallest(looks)
    simulated = (np.searchsorted(smallest, scaled, side="right") + 1) / (len(smallest) + 1)
    return float(min(1.0, simulated, scaled * sum(_weight(one, looks) for one in looks)))


def level(alpha: float, look: int, looks: tuple[int, ...]) -> float:
    """Return the p below which a look decides, for the error rate `alpha` over all looks.

    >>> level(0.05, 5, (5,)), [round(level(0.05, n, (3, 4, 5)), 3) for n in (3, 4, 5)]
    (0.05, [0.02, 0.023, 0.026])
    """
    if len(looks) == 1:
        return alpha
    return float(np.quantile(_smallest(looks), alpha)) * _weight(look, looks)


def decide(
    differences: Sequence[Difference], margin: float, at: Sequence[tuple[int, tuple[int, ...]]]
) -> list[Difference]:
    """Return the differences with a `Difference.verdict`, as one family.

    `margin` is δ in the unit of the means, `at` the look of each difference, a number of seeds, and
    the looks that were declared. The intervals and p hold at any look; both p are adjusted by Holm.

    >>> from regard.lab.studies.statistics import compare_runs
    >>> gains = np.array([[0.02, 0.02], [0.03, 0.03], [0.01, 0.01]])
    >>> study = compare_runs(gains, np.zeros((3, 2)), ("cnn", "mean"))
    >>> [decide([study], margin, [(3, (3,))])[0].verdict for margin in (0.03, 0.05)]
    ['undecided', 'equivalent']
    """
    decided = []
    for difference, (look, declared) in zip(differences, at, strict=True):
        estimate = difference.estimate
        assert estimate is not None  # of `compare_runs`
        end = 1.0 if difference.unit == "points" else np.inf
        ends = [
            (max(estimate.mean - half, -end), min(estimate.mean + half, end))
            for alpha in (1 - CONFIDENCE, 2 * (1 - CONFIDENCE))
            for half in [estimate.reach(level(alpha, look, declared))]
        ]
        room = margin - abs(estimate.mean)
        outside = anytime_p(estimate.p_at(room), look, declared) / 2 if room > 0 else 1.0
        decided.append(
            replace(
                difference,
                low=ends[0][0],
                high=ends[0][1],
                p=anytime_p(difference.p, look, declared),
                margin=margin,
                inner=ends[1],
                p_equivalent=outside,
            )
        )
    return as_family(decided)


def _weight(look: int, looks: tuple[int, ...]) -> float:
    return float((look / looks[-1]) ** 0.5)


@lru_cache(maxsize=8)
def _smallest(looks: tuple[int, ...]) -> Float[np.ndarray, " paths"]:
    """Simulate the smallest p_k / w_k of studies of equal methods, sorted."""
    gains = np.random.default_rng(0).standard_normal((PATHS, looks[-1]))
    smallest = np.ones(PATHS)
    for seeds in looks:
        some = gains[:, :seeds]
        t = some.mean(1) / (some.std(1, ddof=1) / seeds**0.5)
        np.minimum(smallest, 2 * stdtr(seeds - 1, -np.abs(t)) / _weight(seeds, looks), out=smallest)
    return np.sort(smallest)
