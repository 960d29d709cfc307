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

**Groups.** Where examples belong together (reviews of one film, sentences of one author), the
groups are what was drawn, not the examples. With the sums u[s, g] of x − mean over the n_g
examples of group g, V_examples and V_both are of these sums, each square divided by 1 − n_g/N
(Bell & McCaffrey 2002, "CR2"); with groups of one example they are the formulas above. Their
degrees of freedom are those of the effective number of groups, N²/Σ n_g² − 1 (Kish 1965): the
number of groups less one where all are of one size. With 60 groups of very unequal sizes (worth
21 equal ones) and strongly alike examples this finds 6.1 % false differences; the number of groups
less one finds 7.3 %.

**p and the interval** need the distribution of the mean over its estimated standard error, which
is not Student's: `regard.studies.null_distribution`. One seed leaves Student's t over the
examples (or groups), and a verdict about two models instead of two methods. Two seeds give p
values that hold, but wide intervals and little power.

`benchmarks.false_differences` measures families of comparisons through this code.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Integer, Shaped

from regard.errors import RegardError
from regard.studies import null_distribution

CONFIDENCE = 0.95
SHARES = {"points", "BLEU"}  # units that people write times 100

Scores = Shaped[np.ndarray, "seeds examples"]
Groups = Integer[np.ndarray, " examples"]


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds and examples, and the two parts of its variance.

    Each part has its degrees of freedom; one seed has none, and no variance of seeds.
    """

    mean: float
    from_seeds: float
    from_examples: float
    seeds_freedom: float
    examples_freedom: float

    @property
    def variance(self) -> float:
        """The variance of the mean."""
        return self.from_seeds + self.from_examples

    @cached_property
    def half(self) -> float:
        """Half the width of the 95 % interval."""
        return float(null_distribution.reach(1 - CONFIDENCE, *self._parts))

    @cached_property
    def p(self) -> float:
        """The two-sided probability of such a mean if the true one were zero."""
        return float(null_distribution.p_values(self.mean, *self._parts))

    def smallest(self, family: int = 1) -> float:
        """The smallest true difference that is found 4 times in 5 among so many comparisons.

        The level is Holm's strictest, 5 % / `family`: `regard.studies.null_distribution.smallest`.
        """
        return null_distribution.smallest((1 - CONFIDENCE) / family, *self._parts)

    @property
    def _parts(self) -> tuple[float, float, float, float]:
        return self.from_seeds, self.from_examples, self.seeds_freedom, self.examples_freedom


def estimate(scores: Scores, groups: Groups | None = None) -> Estimate:
    """Estimate the mean of a table and its variance: the formulas at the top of this file.

    `groups` numbers the group of each example; without it each example is its own.

    Errors: no seed; fewer than two examples or groups; another number of groups than examples.

    >>> found = estimate(np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]))
    >>> found.mean, round(found.variance, 4), found.seeds_freedom, found.examples_freedom
    (0.5, 0.0833, 2.0, 1.0)
    """
    seeds, examples = scores.shape
    if seeds < 1 or examples < 2:
        raise RegardError(
            f"statistics need a seed and two test examples, not {seeds} and {examples}"
        )
    sizes = group_sizes(groups, examples)
    mean, from_seeds, from_examples = components(scores, groups)
    return Estimate(
        float(mean), float(from_seeds), float(from_examples), seeds - 1.0, effective(sizes) - 1
    )


def components(
    scores: Shaped[np.ndarray, "*studies seeds examples"], groups: Groups | None = None
) -> tuple[
    Float[np.ndarray, "*studies"], Float[np.ndarray, "*studies"], Float[np.ndarray, "*studies"]
]:
    """Compute mean, V_seeds and max(0, V_examples − V_both) of one table, or of many at once."""
    seeds, examples = scores.shape[-2:]
    sizes = group_sizes(groups, examples)
    mean = scores.mean((-2, -1), dtype=np.float64)
    sums = np.subtract(scores, mean[..., None, None], dtype=np.float64)
    by_seed = sums.mean(-1)
    if groups is not None:
        order = np.argsort(groups, kind="stable")
        starts = np.cumsum(sizes) - sizes
        sums = np.add.reduceat(sums[..., order], starts, axis=-1)
    by_group = sums.mean(-2)
    scale = 1 / (1 - sizes / examples) / examples**2
    from_examples = by_group**2 @ scale
    if seeds == 1:
        return mean, np.zeros_like(mean), from_examples
    from_seeds = (by_seed**2).sum(-1) / (seeds - 1) / seeds
    # The squares of what is left, u[s, g] − mean over s − n_g (mean of s), multiplied out.
    left = (np.square(sums).sum(-2) - seeds * by_group**2) @ scale
    left -= 2 * (by_seed * (sums @ (scale * sizes))).sum(-1)
    left += (by_seed**2).sum(-1) * (scale @ sizes**2)
    from_both = np.maximum(0.0, left) / (seeds - 1) / seeds
    return mean, from_seeds, np.maximum(0.0, from_examples - from_both)


def group_sizes(groups: Groups | None, examples: int) -> Integer[np.ndarray, " groups"]:
    """Count the examples of each group, in the order of their numbers.

    Errors: another number of examples; fewer than two groups.

    >>> group_sizes(np.array([7, 3, 7]), 3).tolist()
    [1, 2]
    """
    if groups is None:
        return np.ones(examples, dtype=np.int64)
    if groups.shape != (examples,):
        raise RegardError(
            f"groups number every test example: {_sides(groups)} do not fit {examples} examples"
        )
    sizes = np.unique(groups, return_counts=True)[1]
    if len(sizes) < 2:
        raise RegardError(
            "all test examples are of one group, which says nothing about other groups; "
            "test on more groups, or leave group= out"
        )
    return np.asarray(sizes)


def effective(sizes: Integer[np.ndarray, " groups"]) -> float:
    """Compute how many groups of equal size groups of these sizes are worth. Kish 1965.

    >>> effective(np.array([20, 20, 20])), round(effective(np.array([40, 10, 10])), 6)
    (3.0, 2.0)
    """
    return float(sizes.sum() ** 2 / (sizes**2).sum())


def arm_interval(scores: Scores, groups: Groups | None = None) -> tuple[float, float, float]:
    """Compute mean, low and high of one arm, from both parts of its variance.

    For right and wrong (a bool table) the interval is Wilson's (1927) with the number of
    independent answers that the variance is worth, ``mean (1 − mean) / variance`` (Korn &
    Graubard 1998), so that it stays inside 0 … 1 and an arm without a mistake is not held to be
    perfect. Other scores: mean ± half width.

    >>> arm_interval(np.ones((3, 100), bool))
    (1.0, 0.96..., 1.0)
    """
    found = estimate(scores, groups)
    mean = found.mean
    if scores.dtype != np.bool_:
        return mean, mean - found.half, mean + found.half
    spread, worth = mean * (1 - mean), found.examples_freedom + 1
    plain = replace(found, from_seeds=0.0, from_examples=1.0)  # of an arm that is always right
    factor = plain.half**2
    if found.variance > 0:
        worth, factor = min(spread / found.variance, scores.size), found.half**2 / found.variance
    pull = factor / worth
    centre = (mean + pull / 2) / (1 + pull)
    half = (spread * pull + pull**2 / 4) ** 0.5 / (1 + pull)
    return mean, max(0.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


@dataclass(frozen=True)
class Difference:
    """Arm `a` minus arm `b`: mean, 95 % interval, p, and the verdict in words.

    `p` is for this difference alone until `as_family` puts Holm's adjusted value there and says
    over how many differences (`family`). The interval is never adjusted. `untrained` names the
    arms that were not trained to their end: that such an arm is worse says nothing of its method.
    `estimate` is what mean, interval and p were computed from.
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
    estimate: Estimate | None = field(default=None, repr=False)

    @property
    def claimed(self) -> bool:
        """Whether there is evidence, and the arm that is worse was trained to its end."""
        return self.found and (self.b if self.mean >= 0 else self.a) not in self.untrained

    @cached_property
    def smallest(self) -> float | None:
        """The smallest true difference that is found 4 times in 5, at the family's strictest level.

        As precise as the estimated variances: with few seeds it may be off by half.
        """
        return None if self.estimate is None else self.estimate.smallest(self.family)

    @property
    def found(self) -> bool:
        """Whether there is evidence of a difference, at 5 % over the whole family."""
        return self.p < 1 - CONFIDENCE

    @property
    def says(self) -> str:
        """The verdict as a sentence; with one seed it speaks of two models, not two methods.

        Without evidence it says how large a difference would have been found.
        """
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
            if loser in self.untrained:
                return (
                    f"{loser} was not trained to the end: no claim about the method; {winner} is "
                    f"ahead by {amount}{caveat}"
                )
            return f"{winner} beats {loser} by {amount}{caveat}"
        if self.untrained:
            caveat += f"; not trained to the end: {' and '.join(self.untrained)}"
        nothing = f"no evidence of a difference between {self.a} and {self.b}: {amount}"
        return f"{nothing}{self._could_find()}{caveat}"

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
        return [f"{100 * value + 0.0:.{digits}f}".replace("-", "−") for value in values]


def p_says(p: float) -> str:
    """p as people write it.

    >>> p_says(0.00004), p_says(0.0042), p_says(0.42), p_says(1.0)
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

    Row s of both is seed s, column i the same example, of the group ``groups[i]``. An arm without
    seeds (the same predictions each time) is its one row repeated. Equal tables differ by 0 with
    p = 1. The variances of right and wrong are never below those of `at_least`. Other scores have
    the `unit` that they are given.

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
    gains = np.subtract(a, b, dtype=np.float64)
    found = estimate(gains, groups)
    seeds, examples = a.shape
    binary = a.dtype == b.dtype == np.bool_
    if binary:
        parts = at_least(gains, np.array(found.from_seeds), np.array(found.from_examples))
        found = replace(found, from_seeds=float(parts[0]), from_examples=float(parts[1]))
    end = 1.0 if binary else np.inf
    return Difference(
        *names,
        mean=found.mean,
        low=max(found.mean - found.half, -end),
        high=min(found.mean + found.half, end),
        p=found.p,
        seeds=seeds,
        examples=examples,
        unit="points" if binary else unit,
        estimate=found,
    )


def at_least(
    gains: Shaped[np.ndarray, "*studies seeds examples"],
    from_seeds: Float[np.ndarray, "*studies"],
    from_examples: Float[np.ndarray, "*studies"],
) -> tuple[Float[np.ndarray, "*studies"], Float[np.ndarray, "*studies"]]:
    """Bound the variances of differences of right and wrong from below, as they come in steps.

    The mean of a seed is a multiple of 1/N, so seeds that answer differently can have equal means
    by chance (2 seeds of 1,000 examples in 3 % of the studies): V_seeds is at least 1 / (4 S N²),
    half a step. The standard error is at least 1 / (N + 2), what one more example either way would
    make of two arms that agree everywhere (Agresti & Min 2005), so that no interval has width 0.
    """
    seeds, examples = gains.shape[-2:]
    differ = (gains != gains[..., :1, :]).any((-2, -1))
    from_seeds = np.maximum(from_seeds, differ / (4 * seeds * examples**2))
    return from_seeds, np.maximum(from_examples, (examples + 2) ** -2.0 - from_seeds)


def _sides(scores: Shaped[np.ndarray, "..."]) -> str:
    return " × ".join(map(str, scores.shape)) or "one number"


def holm(ps: Sequence[float]) -> list[float]:
    """Adjust p values by Holm (1979): the chance of one false difference in the family is kept.

    Sorted, the k-th smallest is multiplied by how many are not smaller; never falling, at most 1.
    A p that is no number stays so and counts as the largest: it was declared a comparison, so it
    must not make the others easier.

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


def judge(
    arms: Mapping[str, Scores],
    pairs: Sequence[tuple[str, str]],
    *,
    groups: Groups | None = None,
) -> list[Difference]:
    """Compare declared pairs (a, b) of arms with the same seeds, as one family."""
    return as_family([compare_runs(arms[a], arms[b], (a, b), groups=groups) for a, b in pairs])


def as_family(differences: Sequence[Difference]) -> list[Difference]:
    """Comparisons declared together: every p becomes Holm's adjusted one over all of them."""
    adjusted = holm([difference.p for difference in differences])
    return [
        replace(difference, p=p, family=len(differences))
        for difference, p in zip(differences, adjusted, strict=True)
    ]
