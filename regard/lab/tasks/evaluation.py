"""The record of an evaluation, for comparisons, reports and the command line."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.core.shown import shown
from regard.lab.data.examples import Example, as_json, from_json
from regard.lab.tasks import unit_of

LOG_LOSS = "log loss"
LIKELIHOOD = "likelihood"  # exp(−loss) of the predicted tokens, the metric of pretraining


def validated(metric: str, value: float) -> str:
    """Format a validation score for messages, with the name of its metric.

    >>> validated("accuracy", 0.914), validated("BLEU", 0.331)
    ('validation accuracy 91.4%', 'validation BLEU 33.1')
    >>> validated("likelihood", 0.125), validated("log loss", 0.5)
    ('validation loss 2.079 nats, perplexity 8.00', 'validation log loss 0.693 nats')
    """
    nats = -math.log(max(value, 1e-300))
    if metric == LIKELIHOOD:
        return f"validation loss {nats:.3f} nats, perplexity {math.exp(nats):.2f}"
    return f"validation {metric} {written(metric, nats if metric == LOG_LOSS else value, 1)}"


def written(metric: str, value: float, digits: int) -> str:
    """Format a score: losses in nats, fractions in per cent, others in the metric's unit.

    ``digits`` are those of per cent and BLEU.

    >>> written("accuracy", 0.914, 1), written("BLEU", 0.331, 1), written("log loss", 0.25, 1)
    ('91.4%', '33.1', '0.250 nats')
    """
    unit = unit_of(metric)
    if unit.sign == " nats":
        return f"{value:.{digits + 2}f} nats"
    if unit.times != 100:
        return unit.write(value)
    return f"{value:.{digits}%}" if unit.sign else f"{100 * value:.{digits}f}"


def wilson(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Compute the confidence interval of a proportion, ``hits`` of ``trials``. Wilson 1927.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n). It covers other examples, not other seeds.
    Without trials it is (0, 1).

    >>> low, high = wilson(8, 10)
    >>> f"{low:.3f} {high:.3f}"
    '0.490 0.943'
    """
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, share = hits / trials, z * z / trials
    middle = p + share / 2
    half = z * (p * (1 - p) / trials + share / (4 * trials)) ** 0.5
    return max(0.0, (middle - half) / (1 + share)), min(1.0, (middle + half) / (1 + share))


def interval(
    per_example: NDArray[np.float64] | NDArray[np.bool_],
    value: float,
    least: float = 0.0,
    most: float = 1.0,
    fewest: int = 2,
    groups: Sequence[str] = (),
) -> tuple[float, float]:
    """Return the 95 % interval of a mean over examples, ``value`` ± 1.96 s/√n, within bounds.

    It does not cover other seeds. Of right and wrong answers (bool) it is that of `wilson`. With
    ``groups``, the group of each example, groups are the sampled units: it is then that of
    comparisons (`regard.lab.tasks.estimates.arm_interval`). For fewer than ``fewest`` examples or
    groups, return the bounds.

    >>> low, high = interval(np.array([0.0, 1.0, 0.0, 1.0]), 0.5, least=-1.0)
    >>> round(low, 3), high
    (-0.066, 1.0)
    >>> interval(np.array([0.0, 1.0, 0.0, 1.0]), 0.5, groups=["a", "b", "a", "b"])
    (0.0, 1.0)
    """
    numbers = group_numbers(groups)
    if numbers is None and per_example.dtype == np.bool_:
        return wilson(int(per_example.sum()), len(per_example))
    n = len(per_example) if numbers is None else int(numbers.max()) + 1
    if n < fewest:
        return least, most
    if numbers is not None:
        from regard.lab.tasks.estimates import arm_interval

        mean, low, high = arm_interval(per_example[None], numbers)
        return max(least, value + low - mean), min(most, value + high - mean)
    half = NormalDist().inv_cdf(0.975) * float(per_example.std(ddof=1)) / math.sqrt(n)
    return max(least, value - half), min(most, value + half)


def group_numbers(groups: Sequence[str]) -> NDArray[np.int64] | None:
    """Number groups from 0 in the order of their first example; None if no example has a group.

    An example without a group is a group of its own.

    >>> group_numbers(["a", "a", "", "a", ""]).tolist(), group_numbers(["", ""])
    ([0, 0, 1, 0, 2], None)
    """
    if not any(groups):
        return None
    known: dict[str | int, int] = {}
    names = (group or index for index, group in enumerate(groups))
    return np.array([known.setdefault(name, len(known)) for name in names])


def groups_of(examples: Sequence[Example]) -> list[str]:
    """Return the group of each example, "" without one."""
    return [example.group for example in examples]


def learned(scores: NDArray[np.floating], guess: float, best: float) -> bool:
    """Return whether the mean of scores (larger is better) clearly exceeds that of a guess.

    The gain must be more than 2 % of the way from the guess to the best possible score, and more
    than chance: 1.64 standard errors over examples, but never more than 10 % of the way.

    >>> learned(np.repeat([1.0, 0.0], [63, 937]), 0.051, 1.0)
    False
    """
    room, n = best - guess, len(scores)
    if not room > 0:
        return True  # no score exceeds the guess
    error = 1.64 * float(scores.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return bool(scores.mean() - guess > max(0.02 * room, min(error, 0.1 * room)))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Evaluation:
    """A model's answers with the references for each example, and their score.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples; the interval does
    not cover other seeds. All three are None without references. A task makes an evaluation by
    `Task.evaluation`; what its table or its JSON has in addition is data here.
    """

    metric: str
    value: float | None
    low: float | None
    high: float | None
    #: The inputs with their reference answers, and the answer to each.
    examples: Sequence[Example]
    answers: Sequence[Any] | NDArray[Any]
    #: Return what a row of the predictions' file has of an answer.
    row: Callable[[Any], Mapping[str, Any]]
    #: Whether each example's answer, or each token, is correct.
    correct: NDArray[np.bool_]
    #: One number per example or token, larger is better, whose mean is the compared score: 1 or 0
    #: for correct or wrong; minus a loss, with a mean of minus the metric; or a jackknife
    #: pseudo-value, for a score that is not a mean over examples.
    per_example: NDArray[np.float64]
    #: The noun for `n`, such as "texts" or "tokens".
    unit: str = "texts"
    #: The score by which runs are compared, if it is not the metric.
    compared_by: str = ""
    #: The answers as texts; empty for tasks whose answers are not right or wrong.
    predictions: Sequence[str] = ()
    #: The number of tokens of each example, for tasks that are scored by token.
    sizes: Sequence[int] = ()
    #: A degree of error for each answer, as a sort key; by default minus `per_example`.
    wrongness: NDArray[np.float64] | None = None
    #: Whether all answers are equal and the references are not: nothing was learned.
    is_constant: bool = False
    #: Additional scores for comparisons, by name.
    other_metrics: Mapping[str, float] = field(default_factory=dict)
    #: The metric of guesses that ignore the input, by the name of the guess.
    trivial: Mapping[str, float] = field(default_factory=dict)
    #: The compared score of a guess better than those of `trivial`, if there is one.
    best_guess: float | None = None
    #: Whether the answers exceed every guess, where `per_example` does not tell.
    exceeds: bool | None = None
    #: The corpus-level statistic, such as BLEU; None if the metric is a plain mean.
    corpus: Any = None
    #: Further values for JSON.
    summary: Mapping[str, Any] = field(default_factory=dict)
    #: The end of the line, remarks on scores by name, and more names with formatted values.
    remark: str = ""
    remarks: Mapping[str, str] = field(default_factory=dict)
    facts: Sequence[tuple[str, str]] = ()
    #: Tables for the terminal, each with column titles as its first row, and where to find the
    #: rows that they omit.
    tables: Sequence[Sequence[Sequence[str]]] = ()
    note: str = ""

    @property
    def compared(self) -> str:
        """Return the name of the score by which runs are compared."""
        return self.compared_by or self.metric

    @property
    def n(self) -> int:
        """Return the number of examples or tokens, as `unit` says."""
        return len(self.correct)

    @property
    def groups(self) -> Sequence[str]:
        """Return the group of each number in `per_example`, "" without one.

        Numbers of a group are dependent, so the statistics treat groups as the sampled units. The
        tokens of an example are a group, unless it is the only one: the variance between examples
        is then unknown.
        """
        if not self.sizes:
            return groups_of(self.examples)
        if np.count_nonzero(self.sizes) < 2:
            return [""] * self.n
        pairs = zip(self.examples, self.sizes, strict=True)
        return [example.source for example, size in pairs for _ in range(size)]

    def worst(self, count: int) -> list[dict[str, str]]:
        """Return wrong answers as plain values, the worst first, if there are `predictions`."""
        wrong = np.flatnonzero(~self.correct) if self.predictions else np.zeros(0, np.int64)
        wrongness = -self.per_example if self.wrongness is None else self.wrongness
        order = wrong[np.argsort(-wrongness[wrong], kind="stable")]
        pairs = [(self.examples[i], self.predictions[i]) for i in order[:count]]
        return [
            {"source": x.source, "text": x.text, "true": x.label, "predicted": answer}
            for x, answer in pairs
        ]

    @property
    def learned(self) -> bool:
        """Return whether the compared score clearly exceeds the best guess that ignores the input.

        Without such a guess, compare with the lowest possible score, such as 0 BLEU. See `learned`.
        """
        if self.exceeds is not None:
            return self.exceeds
        unit = unit_of(self.compared)
        best, least = (unit.least, unit.most) if unit.lower else (unit.most, unit.least)
        guesses = [*self.trivial.values(), *([] if self.best_guess is None else [self.best_guess])]
        guess = max(map(unit.better, guesses), default=unit.better(least))
        return not math.isfinite(guess) or learned(self.per_example, guess, unit.better(best))

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values; an unlimited interval ends in None."""
        ends = {"low": self.low, "high": self.high}
        return {
            "metric": self.metric,
            "value": self.value,
            **{key: end if math.isfinite(end or 0) else None for key, end in ends.items()},
            "n": self.n,
            "also": dict(self.other_metrics),
            "trivial": dict(self.trivial),
            **self.summary,
        }

    def line(self) -> str:
        """Return the summary in one line."""
        if self.value is None:
            return f"{self.n:,} {self.unit} without reference answers, so there is no score"
        name, value, interval = self._headline(1)
        others = self.other_metrics.items()
        parts = [f"{name} {value} ({interval}, {self.n:,} {self.unit})"]
        parts += [f"{other} {written(other, x, 1)}" for other, x in others if other != name]
        return ", ".join(parts) + self.remark

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        if self.value is None:
            return [(self.metric, f"unknown: the {self.unit} have no reference answers")]
        name, value, interval = self._headline(2)
        rows = [(name, f"{value}  ({interval}, of {self.unit}, not seeds)")]
        scores = [(guess, self.metric, x) for guess, x in self.trivial.items()]
        scores += [(other, other, x) for other, x in self.other_metrics.items() if other != name]
        for title, metric, x in scores:
            remark = f"  ({self.remarks[title]})" if title in self.remarks else ""
            rows.append((title, written(metric, x, 2) + remark))
        return [*rows, *self.facts]

    def _headline(self, digits: int) -> tuple[str, str, str]:
        """Return the metric, its value and its interval in words; a likelihood as a loss."""
        name, values = self.metric, [self.value or 0.0, self.low or 0.0, self.high or 0.0]
        if name == LIKELIHOOD:
            name, values = "loss", [-math.log(max(values[i], 1e-300)) for i in (0, 2, 1)]
        value, low, high = (written(name, x, digits) for x in values)
        return name, value, f"95 % interval {low} to {high}"

    def rows(self) -> bytes:
        """Return the examples and answers as JSON lines, which `read_rows` reads."""
        pairs = zip(self.examples, self.answers, strict=True)
        lines = (json.dumps({**_row(x), **self.row(a)}, ensure_ascii=False) for x, a in pairs)
        return "".join(f"{line}\n" for line in lines).encode(errors="replace")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.line()}>"

    _repr_html_ = shown


def _row(example: Example) -> dict[str, str]:
    values = {"label": example.label, "group": example.group}
    given = {key: value for key, value in values.items() if value}
    return {"source": example.source, **as_json(example.text), **given}


def read_rows(
    rows: bytes, name: str, read_row: Callable[[Mapping[str, Any]], Any]
) -> tuple[list[Example], list[Any]]:
    """Return the examples and answers of `Evaluation.rows`.

    ``read_row`` reads an answer; ``name`` is the file, for errors. Raises: malformed rows.
    """
    examples, answers = [], []
    for row in parse_rows(rows, name):
        try:
            label, group = str(row.get("label", "")), str(row.get("group", ""))
            examples.append(Example(from_json(row), label, str(row["source"]), group))
            answers.append(read_row(row))
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
    return examples, answers


def must_have_examples(examples: Sequence[Example], noun: str = "examples") -> None:
    """Raise an error if there is nothing to evaluate."""
    if not examples:
        raise RegardError(f"there are no {noun} to evaluate; give at least one")
