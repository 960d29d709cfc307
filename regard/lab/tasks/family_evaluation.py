"""The interface of evaluations that are not yet records."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.core.shown import shown
from regard.lab.data.examples import Example
from regard.lab.tasks import unit_of
from regard.lab.tasks.evaluation import learned


class FamilyEvaluation(ABC):
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

    @property
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

    summary: Mapping[str, Any] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.line()}>"

    _repr_html_ = shown
