"""Which arm is better, and how sure that is: the seed is the unit of a claim about methods.

A table of scores, seeds × examples (1 = right, 0 = wrong, or any number), is read as a two-way
random-effects model without repetition (Searle, Casella & McCulloch 1992, chapter 4):

    x[s, i] = μ + α[s] + β[i] + γ[s, i]        Var(mean) = σα²/S + σβ²/N + σγ²/(S N)

α is the luck of a seed, β what the drawn test examples do to every seed alike, γ their
interaction. A comparison is this model for the differences of two arms, paired by seed and by
example. Three numbers of the table estimate

    V_seeds    = Var_s(mean over i) / S   ->  σα²/S + σγ²/(S N)       the paired t over seeds
    V_examples = Var_i(mean over s) / N   ->  σβ²/N + σγ²/(S N)
    V_both     = mean square of what is left / (S N)  ->  σγ²/(S N)

so the variance of the mean is ``V = V_seeds + max(0, V_examples − V_both)``: the example variance
is added to the seeds' once, the interaction not twice. (Added twice, false differences fall from
5 % to 2 % at 10 seeds and 2,000 examples, and true ones are missed.)

The interval is t with ``(S − 1) V / V_seeds`` degrees of freedom, at most N − 1: S − 1 when all
doubt comes from the seeds, more as the examples, of which there are many, take their part.
Satterthwaite's square of that ratio is right for known variances; with two estimated degrees of
freedom its true rate of false differences goes up to 7.8 % at 3 seeds, while the plain ratio
stays between 3.7 and 5.8 % at 3 seeds and 4.0 and 5.0 % at 5, whatever the shares
(`regard.benchmarks.false_differences` measures it through this code).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Shaped
from scipy.special import stdtr, stdtrit

from regard.errors import RegardError

CONFIDENCE = 0.95
SHARES = {"points", "BLEU"}  # units that people write times 100

Scores = Shaped[np.ndarray, "seeds examples"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and examples, the variance of that mean, its degrees of freedom."""

    mean: float
    variance: float
    freedom: float

    @property
    def reach(self) -> float:
        """Student's t of the two-sided interval: how many standard errors it goes each way."""
        return float(stdtrit(self.freedom, (1 + CONFIDENCE) / 2))

    @property
    def p(self) -> float:
        """The two-sided probability of such a mean if the true one were zero."""
        if self.mean == 0:
            return 1.0
        if self.variance == 0:
            return 0.0
        return float(2 * stdtr(self.freedom, -abs(self.mean) / self.variance**0.5))


def estimate(scores: Scores) -> Estimate:
    """The mean of a table and how far to trust it: the formulas at the top of this file.

    With one seed only the examples are left: variance Var_i / N, N − 1 degrees of freedom.

    >>> estimate(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    Estimate(mean=0.5, variance=0.0833..., freedom=1.0)
    """
    seeds, examples = scores.shape
    if seeds < 1 or examples < 2:
        raise RegardError(
            f"statistics need a seed and two test examples, not {seeds} and {examples}"
        )
    mean = scores.mean(dtype=np.float64)
    centred = np.subtract(scores, mean, dtype=np.float64)
    by_seed, by_example = centred.mean(axis=1), centred.mean(axis=0)
    from_examples = by_example @ by_example / (examples - 1) / examples
    if seeds == 1:
        return Estimate(float(mean), float(from_examples), examples - 1.0)
    from_seeds = by_seed @ by_seed / (seeds - 1) / seeds
    left = np.vdot(centred, centred) / centred.size
    left -= by_seed @ by_seed / seeds + by_example @ by_example / examples
    from_both = max(0.0, left) / ((seeds - 1) * (examples - 1))
    variance = from_seeds + max(0.0, from_examples - from_both)
    freedom = examples - 1.0
    if from_seeds > 0:
        freedom = min(freedom, (seeds - 1) * variance / from_seeds)
    return Estimate(float(mean), float(variance), float(freedom))


def arm_interval(scores: Scores) -> tuple[float, float, float]:
    """Mean, low and high of one arm: t over seeds, example variance added.

    For right and wrong (a bool table) the interval is Wilson's (1927) with the number of
    independent answers that the variance is worth, ``mean (1 − mean) / variance`` (Korn &
    Graubard 1998), so that it stays inside 0 … 1 and an arm without a mistake is not held to be
    perfect. Other scores: mean ± t · standard error.

    >>> arm_interval(np.ones((3, 100), bool))
    (1.0, 0.96..., 1.0)
    """
    found = estimate(scores)
    mean, reach = found.mean, found.reach
    if scores.dtype != np.bool_:
        half = reach * found.variance**0.5
        return mean, mean - half, mean + half
    seeds, examples = scores.shape
    spread = mean * (1 - mean)
    worth = min(spread / found.variance, seeds * examples) if found.variance > 0 else examples
    pull = reach**2 / worth
    centre = (mean + pull / 2) / (1 + pull)
    half = (spread * pull + pull**2 / 4) ** 0.5 / (1 + pull)
    return mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


@dataclass(frozen=True)
class Difference:
    """Arm `a` minus arm `b`: mean, 95 % interval, p, and the verdict in words.

    `p` is for this difference alone until `as_family` puts Holm's adjusted value there and says
    over how many differences (`family`). The interval is never adjusted.
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

    @property
    def found(self) -> bool:
        """Whether there is evidence of a difference, at 5 % over the whole family."""
        return self.p < 1 - CONFIDENCE

    @property
    def says(self) -> str:
        """The verdict as a sentence; with one seed it speaks of two models, not two methods."""
        forward = self.mean >= 0 or not self.found
        ends = (self.low, self.high) if forward else (-self.high, -self.low)
        size, low, high = self._written(self.mean if forward else -self.mean, *ends)
        holm = f", Holm over {self.family}" if self.family > 1 else ""
        unit = f" {self.unit}" if self.unit else ""
        alone = self.low > 0 or self.high < 0
        note = "; the interval stands alone" if alone and not self.found else ""
        amount = f"{size}{unit} ({low} to {high}, {p_says(self.p)}{holm}{note})"
        caveat = "; one seed: two models, not two methods" if self.seeds == 1 else ""
        if self.found:
            winner, loser = (self.a, self.b) if forward else (self.b, self.a)
            return f"{winner} beats {loser} by {amount}{caveat}"
        return f"no evidence of a difference between {self.a} and {self.b}: {amount}{caveat}"

    def _written(self, *values: float) -> list[str]:
        if self.unit not in SHARES:
            return [f"{value:.3g}".replace("-", "−") for value in values]
        digits = 1 if self.high - self.low > 0.004 else 2
        return [f"{100 * value + 0.0:.{digits}f}".replace("-", "−") for value in values]


def p_says(p: float) -> str:
    """p as people write it.

    >>> p_says(0.00004), p_says(0.0042), p_says(0.42), p_says(1.0)
    ('p < 0.001', 'p = 0.004', 'p = 0.42', 'p = 1')
    """
    if p < 0.001:
        return "p < 0.001"
    digits = 3 if p < 0.0995 else 2
    return "p = " + f"{p:.{digits}f}".replace("1.00", "1")


def compare_runs(
    a: Scores, b: Scores, names: tuple[str, str] = ("a", "b"), *, unit: str = ""
) -> Difference:
    """The difference a − b of two arms with the same seeds on the same test examples.

    Row s of both is seed s, column i the same example. An arm without seeds (the same predictions
    each time) is its one row repeated. Equal tables differ by 0 with p = 1. For right and wrong
    the standard error is never below 1 / (N + 2), what one more example either way would make of
    two arms that agree everywhere (Agresti & Min 2005), so that no interval has width zero. Other
    scores have the `unit` that they are given.

    >>> right = np.array([[1, 1, 1, 1, 1, 1, 1, 0]] * 3, bool)
    >>> wrong = np.array([[1, 0, 1, 0, 0, 0, 0, 0]] * 3, bool)
    >>> compare_runs(right, wrong, ("cnn", "mean")).says
    'cnn beats mean by 62.5 points (19.2 to 100.0, p = 0.011)'
    """
    if a.shape != b.shape or a.ndim != 2:
        raise RegardError(
            f"a comparison pairs seeds and test examples: {names[0]} has {_sides(a)}, "
            f"{names[1]} has {_sides(b)}"
        )
    found = estimate(np.subtract(a, b, dtype=np.float64))
    seeds, examples = a.shape
    binary = a.dtype == b.dtype == np.bool_
    if binary and found.variance < (examples + 2) ** -2:
        found = Estimate(found.mean, (examples + 2) ** -2.0, examples - 1.0)
    half = found.reach * found.variance**0.5
    end = 1.0 if binary else np.inf
    return Difference(
        *names,
        mean=found.mean,
        low=max(found.mean - half, -end),
        high=min(found.mean + half, end),
        p=found.p,
        seeds=seeds,
        examples=examples,
        unit="points" if binary else unit,
    )


def _sides(scores: Shaped[np.ndarray, "..."]) -> str:
    return " × ".join(map(str, scores.shape)) or "one number"


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p values: the chance of one false difference in the family is kept.

    Sorted, the k-th smallest is multiplied by how many are not smaller; never falling, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(ps)
    so_far = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        so_far = max(so_far, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = so_far
    return adjusted


def judge(arms: Mapping[str, Scores], pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """Compare declared pairs (a, b) of arms with the same seeds, as one family."""
    return as_family([compare_runs(arms[a], arms[b], (a, b)) for a, b in pairs])


def as_family(differences: Sequence[Difference]) -> list[Difference]:
    """Comparisons declared together: every p becomes Holm's adjusted one over all of them."""
    adjusted = holm([difference.p for difference in differences])
    return [
        replace(difference, p=p, family=len(differences))
        for difference, p in zip(differences, adjusted, strict=True)
    ]
