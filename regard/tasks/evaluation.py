"""What comparisons, reports and the command line know of an evaluation, whatever the task."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.examples import Example
from regard.shown import shown
from regard.tasks import unit_of

LOG_LOSS = "log loss"
LIKELIHOOD = "likelihood"  # exp(−loss) of the tokens asked: what pretraining is validated by


def validated(metric: str, value: float) -> str:
    """A score on the validation split in words, under the name of its metric.

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
    """A score as people write it: a share in per cent, log loss in nats.

    >>> written("accuracy", 0.914, 1), written("log loss", 0.25, 1)
    ('91.4%', '0.250 nats')
    """
    if metric == LOG_LOSS:
        return f"{value:.{digits + 2}f} nats"
    return f"{value:.{digits}%}"


def half_width(per_example: NDArray[np.float64], least: int) -> float:
    """Return half of a 95 % interval about a mean, 1.96 s/√n; infinity of fewer than ``least``.

    >>> round(half_width(np.array([0.0, 1.0, 0.0, 1.0]), 2), 3)
    0.566
    """
    n = len(per_example)
    if n < least:
        return math.inf
    return NormalDist().inv_cdf(0.975) * float(per_example.std(ddof=1)) / math.sqrt(n)


class Evaluation(ABC):
    """Answers beside what was wanted, example by example, and what they are worth together.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples: it says what other
    examples would give, not another seed.
    """

    #: What `value` measures, by its name in tables.
    metric: str

    @property
    def compared(self) -> str:
        """What two runs are compared by, example by example: mostly the metric."""
        return self.metric

    @property
    @abstractmethod
    def n(self) -> int:
        """How many examples, or tokens: `unit`."""

    @property
    def unit(self) -> str:
        """What `n` counts: "texts", "tokens"."""
        return "texts"

    @property
    @abstractmethod
    def examples(self) -> Sequence[Example]:
        """What was asked and what was wanted."""

    @property
    def said(self) -> Sequence[str]:
        """What was answered to each example; nothing of what is judged token by token."""
        return []

    @property
    @abstractmethod
    def correct(self) -> NDArray[Any]:
        """Whether each example, or token, was answered rightly."""

    @property
    def per_example(self) -> NDArray[np.float64]:
        """A number for each example, the larger the better, whose mean is what is compared.

        Right or wrong; minus a loss, whose mean is then minus the metric; or the jackknife's
        pseudo-values of a score that is no mean over examples.
        """
        return np.asarray(self.correct, dtype=np.float64)

    @property
    def says_one_thing(self) -> bool:
        """Whether every example got one answer where several were wanted: nothing was learned."""
        return False

    @property
    def corpus(self) -> Any:
        """The statistic of all answers together that is no mean over examples; None if none."""
        return None

    @property
    def also(self) -> Mapping[str, float]:
        """What else a comparison tells of a run: numbers by name."""
        return {}

    @property
    def trivial(self) -> Mapping[str, float]:
        """What the metric would be without reading a text, by the name of the guess."""
        return {}

    @abstractmethod
    def json(self) -> dict[str, Any]:
        """The summary as plain values."""

    @abstractmethod
    def line(self) -> str:
        """The summary on one line."""

    @abstractmethod
    def words(self) -> list[tuple[str, str]]:
        """The summary for people: what is told, and how much it is."""

    def tables(self) -> list[list[list[str]]]:
        """Tables for people, each with its heading as the first row."""
        return []

    @property
    def note(self) -> str:
        """Where to find what `tables` leave out; "" if they hold all."""
        return ""

    @abstractmethod
    def rows(self) -> bytes:
        """The answers as JSON lines, one an example."""

    def plain(self) -> bytes:
        """The answers alone, as a file of theirs has them; nothing where there is no such file."""
        return b""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.line()}>"

    _repr_html_ = shown
