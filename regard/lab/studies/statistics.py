"""Test which arm is better. The unit of a claim about methods is the seed.

Means, intervals and p values are those of `regard.lab.tasks.estimates`, of the differences of two
arms, paired by seed and by example. `benchmarks.false_differences` measures the error rates of
families of comparisons with this code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Float, Shaped

from regard.core.errors import RegardError
from regard.lab.tasks.estimates import CONFIDENCE, Estimate, Groups, Scores, estimate, sides

SHARES = {"points", "BLEU"}  # units whose values are written times 100

Verdict = Literal["different", "equivalent", "undecided"]


@dataclass(frozen=True)
class Difference:
    """The difference of arm `a` and arm `b`: mean, 95 % interval, p and a verdict.

    `p` is unadjusted until `as_family` replaces it by Holm's adjusted value and sets `family`, the
    number of differences. The interval is never adjusted. `untrained` names the arms whose
    training did not converge: with more steps such an arm may be better or worse, so a difference
    from it is one of these steps, and no evidence about the methods. `stuck` names those among
    them that never left the trivial answer, `steps` has the mean training steps by arm.
    `estimate` is the estimate from which mean, interval and p were computed.

    With a `margin`, the difference δ that does not matter, it has a `verdict`, which
    `regard.lab.studies.stopping.decide` prepares: then interval and p hold at any number of seeds,
    `p_equivalent` is the p of a difference of δ or more, and `inner` the 90 % interval, which lies
    within ±δ if that p is below 5 % (before Holm's adjustment).
    """

    a: str
    b: str
    mean: float
    low: float
    high: float
    p: float
    seeds: int
    examples: int
    family: int = 1
    unit: str = "points"
    untrained: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()
    steps: Mapping[str, int] = field(default_factory=dict)
    estimate: Estimate | None = field(default=None, repr=False)
    margin: float | None = None
    p_equivalent: float = 1.0
    inner: tuple[float, float] = (-np.inf, np.inf)

    @property
    def verdict(self) -> Verdict | None:
        """Return whether the arms are different, equivalent or undecided; None without a margin.

        With one seed it is about two models, not two methods.
        """
        if self.margin is None:
            return None
        if self.significant:
            return "different"
        return "equivalent" if self.p_equivalent < 1 - CONFIDENCE else "undecided"

    @property
    def claimed(self) -> bool:
        """Return whether the difference is significant and both trainings converged."""
        return self.significant and not self.untrained

    @cached_property
    def smallest(self) -> float | None:
        """Return the smallest true difference detected with power 80 %, at the family's level.

        It is as precise as the estimated variances: with two seeds it may be wrong by a factor of
        three, with five by a third.
        """
        return None if self.estimate is None else self.estimate.smallest(self.family)

    @property
    def significant(self) -> bool:
        """Return whether p is below 5 %, with the family's adjustment."""
        return self.p < 1 - CONFIDENCE

    @property
    def sentence(self) -> str:
        """Return the verdict as a sentence; with one seed it is about two models, not two methods.

        A difference that is not significant is followed by the smallest detectable difference.
        """
        forward = self.mean >= 0 or not self.significant
        ends = (self.low, self.high) if forward else (-self.high, -self.low)
        size, low, high = self._written(self.mean if forward else -self.mean, *ends)
        holm = f", Holm over {self.family}" if self.family > 1 else ""
        unit = f" {self.unit}" if self.unit else ""
        alone = self.low > 0 or self.high < 0
        note = "; the interval stands alone" if alone and not self.significant else ""
        count = f", {self.seeds} seeds" if self.margin is not None and self.seeds > 1 else ""
        amount = f"{size}{unit} ({low} to {high}, {format_p(self.p)}{holm}{count}{note})"
        caveat = "; one seed: two models, not two methods" if self.seeds == 1 else ""
        if self.significant:
            winner, loser = (self.a, self.b) if forward else (self.b, self.a)
            if self.untrained:
                ahead, behind = (name + self._after(name) for name in (winner, loser))
                return (
                    f"{ahead} is ahead of {behind} by {amount}; {self._unfinished()}: no claim "
                    f"about the methods{caveat}"
                )
            return f"{winner} beats {loser} by {amount}{caveat}"
        if self.untrained:
            marks = (f"{x} (never left the trivial answer)" if x in self.stuck else x
                     for x in self.untrained)  # fmt: skip
            caveat += f"; not trained to the end: {' and '.join(marks)}"
        if self.margin is not None:
            within = written_margin(self.margin, self.unit)
            if self.verdict == "undecided":
                return (
                    f"{self.a} and {self.b} are undecided: {amount}, not within ±{within}{caveat}"
                )
            caveat += ": no claim about the methods" if self.untrained else ""
            low, high = self._written(*self.inner)
            amount = f"{size}{unit} (90 %: {low} to {high}, {format_p(self.p_equivalent)}{holm}"
            return f"{self.a} and {self.b} are equivalent within {within}: {amount}{count}){caveat}"
        nothing = f"no evidence of a difference between {self.a} and {self.b}: {amount}"
        return f"{nothing}{self._could_find()}{caveat}"

    def _after(self, name: str) -> str:
        return f" after {self.steps[name]:,} steps" if name in self.steps else ""

    def _unfinished(self) -> str:
        """Describe which arms were not trained to the end, and which learned nothing."""
        others = [name for name in self.untrained if name not in self.stuck]
        parts = [f"{' and '.join(self.stuck)} never left the trivial answer"] if self.stuck else []
        if len(others) == 2:
            parts.append("neither was trained to the end")
        elif others:
            parts.append(f"{others[0]} was not trained to the end")
        return ", ".join(parts)

    def _could_find(self) -> str:
        size = self.smallest
        if not size:
            return ""
        unit = f" {self.unit}" if self.unit else ""
        if self.unit in SHARES and size >= 1:
            return f"; even 100{unit} would not have been found 4 times in 5"
        return (
            f"; a difference of {self._written(size)[0]}{unit} would have been found 4 times in 5"
        )

    def _written(self, *values: float) -> list[str]:
        if self.unit not in SHARES:
            return [f"{value:.3g}".replace("-", "−") for value in values]
        digits = 1 if self.high - self.low > 0.004 else 2
        return [
            f"{round(100 * value, digits) + 0.0:.{digits}f}".replace("-", "−") for value in values
        ]


def written_margin(margin: float, unit: str) -> str:
    """Format δ in its unit.

    >>> written_margin(0.01, "points"), written_margin(0.02, "BLEU"), written_margin(0.05, "")
    ('1 point', '2 BLEU', '0.05')
    """
    value = f"{100 * margin if unit in SHARES else margin:g}"
    return f"{value} {'point' if (value, unit) == ('1', 'points') else unit}".rstrip()


def verdict_heading(margin: float | None, unit: str) -> str:
    """Return the heading of a column of verdicts, with δ if it was declared."""
    return "verdict" if margin is None else f"verdict (δ = {written_margin(margin, unit)})"


def format_p(p: float) -> str:
    """Format a p value.

    >>> format_p(0.00004), format_p(0.0042), format_p(0.42), format_p(1.0)
    ('p < 0.001', 'p = 0.004', 'p = 0.42', 'p = 1')
    """
    if np.isnan(p):
        return "p unknown"
    if p < 0.001:
        return "p < 0.001"
    digits = 3 if p < 0.0995 else 2
    return "p = " + f"{p:.{digits}f}".replace("1.00", "1")


def compare_runs(
    a: Scores,
    b: Scores,
    names: tuple[str, str] = ("a", "b"),
    *,
    unit: str = "",
    groups: Groups | None = None,
) -> Difference:
    """Compute the difference a − b of two arms with the same seeds on the same test examples.

    Row s of both tables is seed s, column i the same example, in group ``groups[i]``. An arm that
    is the same for every seed is given as its one row, repeated. Tables that are equal up to
    rounding have the difference 0 and p = 1. For bool tables (right and wrong) the variances are
    bounded by `at_least` and the unit is points; `unit` is the unit of other scores. The standard
    error is at least |mean| / (n + 2) of n examples or groups, since a few may differ alike by
    chance, as where one arm is always right and the other always wrong.

    Raises: tables of different shapes; as `estimate`.

    >>> right = np.array([[1, 1, 1, 1, 1, 1, 1, 0]] * 3, bool)
    >>> wrong = np.array([[1, 0, 1, 0, 0, 0, 0, 0]] * 3, bool)
    >>> compare_runs(right, wrong, ("cnn", "mean")).sentence
    'cnn beats mean by 62.5 points (19.2 to 100.0, p = 0.011)'
    """
    if a.shape != b.shape or a.ndim != 2:
        raise RegardError(
            f"a comparison pairs seeds and test examples: {names[0]} has {sides(a)}, "
            f"{names[1]} has {sides(b)}"
        )
    gains = np.subtract(a, b, dtype=np.float64)
    rounding = 8 * np.finfo(np.float64).eps * max(np.abs(x).max(initial=0) for x in (a, b))
    gains[np.abs(gains) <= rounding] = 0
    result = estimate(gains, groups)
    seeds, examples = a.shape
    binary = a.dtype == b.dtype == np.bool_
    if binary:
        parts = at_least(gains, np.array(result.from_seeds), np.array(result.from_examples))
        result = replace(result, from_seeds=float(parts[0]), from_examples=float(parts[1]))
    least = (result.mean / (result.examples_freedom + 3)) ** 2 - result.from_seeds
    result = replace(result, from_examples=max(result.from_examples, least))
    end = 1.0 if binary else np.inf
    return Difference(
        *names,
        mean=result.mean,
        low=max(result.mean - result.half, -end),
        high=min(result.mean + result.half, end),
        p=result.p,
        seeds=seeds,
        examples=examples,
        unit="points" if binary else unit,
        estimate=result,
    )


def at_least(
    gains: Shaped[np.ndarray, "*studies seeds examples"],
    from_seeds: Float[np.ndarray, "*studies"],
    from_examples: Float[np.ndarray, "*studies"],
) -> tuple[Float[np.ndarray, "*studies"], Float[np.ndarray, "*studies"]]:
    """Bound the variances of differences of right and wrong from below.

    The mean of a seed is a multiple of 1/N, so seeds with different answers can have equal means by
    chance (2 seeds of 1,000 examples in 3 % of the studies). V_seeds is therefore at least
    1 / (4 S N²), half a step. The standard error is at least 1 / (N + 2), that of two arms that
    agree everywhere after one example is added for each (Agresti & Min 2005), so that no interval
    has width 0.
    """
    seeds, examples = gains.shape[-2:]
    differ = (gains != gains[..., :1, :]).any((-2, -1))
    from_seeds = np.maximum(from_seeds, differ / (4 * seeds * examples**2))
    return from_seeds, np.maximum(from_examples, (examples + 2) ** -2.0 - from_seeds)


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust p values by Holm (1979), to bound the chance of any false difference in the family.

    The k-th smallest of n is multiplied by n − k + 1; results do not decrease and are at most 1.
    NaN stays NaN and counts as the largest p: a declared comparison counts even if it cannot be
    computed.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    >>> holm([0.01, float("nan"), 0.03])
    [0.03, nan, 0.06]
    """
    adjusted = [float("nan")] * len(ps)
    so_far = 0.0
    known = (index for index, p in enumerate(ps) if not np.isnan(p))
    for rank, index in enumerate(sorted(known, key=lambda i: ps[i])):
        so_far = max(so_far, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = so_far
    return adjusted


def judge(arms: Mapping[str, Scores], pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """Compare declared pairs (a, b) of arms with the same seeds, as one family."""
    return as_family([compare_runs(arms[a], arms[b], (a, b)) for a, b in pairs])


def as_family(differences: Sequence[Difference]) -> list[Difference]:
    """Replace every p by Holm's adjusted value over all the differences.

    False differences and false equivalences are two kinds of error, with a family each.
    """
    adjusted = holm([difference.p for difference in differences])
    equivalent = holm([difference.p_equivalent for difference in differences])
    return [
        replace(difference, p=p, p_equivalent=equal, family=len(differences))
        for difference, p, equal in zip(differences, adjusted, equivalent, strict=True)
    ]
