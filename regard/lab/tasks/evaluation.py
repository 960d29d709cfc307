"""The interface of an evaluation, for comparisons, reports and the command line."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.shown import shown
from regard.lab.data.examples import Example
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
    if metric == LOG_LOSS:
        return f"validation {metric} {nats:.3f} nats"
    unit = unit_of(metric)
    if unit.times != 100:
        return f"validation {metric} {unit.write(value)}"
    return f"validation {metric} " + (f"{100 * value:.1f}" if metric == "BLEU" else f"{value:.1%}")


def written(metric: str, value: float, digits: int) -> str:
    """Format a score: log loss in nats, other metrics in per cent.

    >>> written("accuracy", 0.914, 1), written("log loss", 0.25, 1)
    ('91.4%', '0.250 nats')
    """
    if metric == LOG_LOSS:
        return f"{value:.{digits + 2}f} nats"
    return f"{value:.{digits}%}"


def half_width(per_example: NDArray[np.float64], least: int) -> float:
    """Return half the width of a mean's 95 % interval, 1.96 s/√n.

    Return infinity for fewer than ``least`` examples.

    >>> round(half_width(np.array([0.0, 1.0, 0.0, 1.0]), 2), 3)
    0.566
    """
    n = len(per_example)
    if n < least:
        return math.inf
    return NormalDist().inv_cdf(0.975) * float(per_example.std(ddof=1)) / math.sqrt(n)


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


class Evaluation(ABC):
    """A model's answers with the references for each example, and their score.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples; the interval does
    not cover other seeds.
    """

    #: Name of the metric in tables.
    metric: str

    @property
    def compared(self) -> str:
        """Return the name of the score by which runs are compared; the metric by default."""
        return self.metric

    @property
    @abstractmethod
    def n(self) -> int:
        """Return the number of examples or tokens, as `unit` says."""

    @property
    def unit(self) -> str:
        """Return the noun for `n`, such as "texts" or "tokens"."""
        return "texts"

    @property
    @abstractmethod
    def examples(self) -> Sequence[Example]:
        """Return the inputs with their reference answers."""

    @property
    def predictions(self) -> Sequence[str]:
        """Return the answer to each example; empty for tasks evaluated token by token."""
        return []

    @property
    @abstractmethod
    def correct(self) -> NDArray[Any]:
        """Return for each example or token whether the answer is correct."""

    @property
    def per_example(self) -> NDArray[np.float64]:
        """Return one number per example, larger is better, whose mean is the compared score.

        This is 1 or 0 for correct or wrong; minus a loss, with a mean of minus the metric; or a
        jackknife pseudo-value, for a score that is not a mean over examples.
        """
        return np.asarray(self.correct, dtype=np.float64)

    @property
    def groups(self) -> Sequence[str]:
        """Return the group of each number in `per_example`, "" without one.

        Numbers of a group are dependent, so the statistics treat groups as the sampled units.
        """
        return [example.group for example in self.examples]

    @property
    def wrongness(self) -> NDArray[np.float64]:
        """Return a degree of error for each answer, as a sort key."""
        return -self.per_example

    def worst(self, count: int) -> list[tuple[Example, str]]:
        """Return wrong answers with their examples, the worst first.

        Tasks evaluated token by token have none.
        """
        examples, answers = self.examples, self.predictions
        if len(examples) != len(answers):
            return []
        wrong = np.flatnonzero(~np.asarray(self.correct, dtype=bool))
        order = wrong[np.argsort(-self.wrongness[wrong], kind="stable")]
        return [(examples[i], answers[i]) for i in order[:count]]

    @property
    def is_constant(self) -> bool:
        """Return whether all answers are equal and the references are not: nothing was learned."""
        return False

    @property
    def learned(self) -> bool:
        """Return whether the compared score clearly exceeds the best guess that ignores the input.

        Without such a guess, compare with the lowest possible score, such as 0 BLEU. See `learned`.
        """
        unit = unit_of(self.compared)
        best, least = (unit.least, unit.most) if unit.lower else (unit.most, unit.least)
        guess = max(map(unit.better, self.guessed), default=unit.better(least))
        return not math.isfinite(guess) or learned(self.per_example, guess, unit.better(best))

    @property
    def guessed(self) -> Sequence[float]:
        """Return the compared score of guesses that ignore the input; by default `trivial`."""
        return list(self.trivial.values())

    @property
    def corpus(self) -> Any:
        """Return the corpus-level statistic, such as BLEU; None if the metric is a plain mean."""
        return None

    @property
    def other_metrics(self) -> Mapping[str, float]:
        """Return additional scores for comparisons, by name."""
        return {}

    @property
    def trivial(self) -> Mapping[str, float]:
        """Return the metric of guesses that ignore the input, by the name of the guess."""
        return {}

    @abstractmethod
    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""

    @abstractmethod
    def line(self) -> str:
        """Return the summary in one line."""

    @abstractmethod
    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""

    def tables(self) -> list[list[list[str]]]:
        """Return tables for the terminal, each with column titles as its first row."""
        return []

    @property
    def note(self) -> str:
        """Return where to find the rows that `tables` omits; "" if it omits none."""
        return ""

    @abstractmethod
    def rows(self) -> bytes:
        """Return the answers as JSON lines, one per example."""

    def plain(self) -> bytes:
        """Return the answers in the task's own file format; empty if it has none."""
        return b""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.line()}>"

    _repr_html_ = shown
