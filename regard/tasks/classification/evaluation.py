"""What a run answers: predictions of single texts, and what they are worth together."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.data.files import Example
from regard.data.labels import meant
from regard.data.titles import listed
from regard.errors import RegardError
from regard.reading import parse_rows
from regard.shown import shown
from regard.tasks.classification import metrics
from regard.tasks.evaluation import Evaluation, written


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, and the probability of each."""

    label: str
    probabilities: Mapping[str, float]

    def __repr__(self) -> str:
        told = [f"{label!r} {share:.1%}" for label, share in self.top(TOLD)]
        more = len(self.probabilities) - len(told)
        return f"<Prediction {', '.join([*told, *([f'{more} more'] if more else [])])}>"

    _repr_html_ = shown

    def line(self, top: int = 1) -> str:
        """The likeliest labels on one line, whatever they hold: label, tab, its probability, …"""
        cells = ((" ".join(label.split()), f"{chance:.3f}") for label, chance in self.top(top))
        return "\t".join(cell for pair in cells for cell in pair)

    def top(self, count: int | None = None) -> list[tuple[str, float]]:
        """The labels with their probabilities, the likeliest first; `count` at most, or all."""
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        return ranked[:count]

    def told(self) -> str:
        """The answer in words."""
        return f"{self.label}, {self.probabilities[self.label]:.1%} sure"

    def json(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {"label": self.label, "probabilities": dict(self.probabilities)}


TOLD = 4  # labels that a prediction's repr tells
MATRIX = 12  # labels; of more the terminal has no room for the confusion
WIDTH = 80  # columns of a terminal
SHOWN = 20  # labels in a table of the terminal
PAIRS = 10  # confused pairs there
FURTHER = "all labels and pairs: --json, or regard report RUN"


class Confused(NamedTuple):
    """How often one label was said where another was true."""

    texts: int
    said: str
    true: str

    def told(self) -> str:
        """The mistake in words."""
        return f"{self.texts:,} × said {self.said} where {self.true} was true"


def confused(labels: Sequence[str], counts: ArrayLike) -> list[Confused]:
    """Return the mistakes of a confusion counts[true][said], the most frequent first.

    >>> confused(["a", "b"], [[5, 2], [3, 9]])
    [Confused(texts=3, said='a', true='b'), Confused(texts=2, said='b', true='a')]
    """
    wrong = np.array(counts)
    np.fill_diagonal(wrong, 0)
    rows, columns = wrong.nonzero()
    order = np.argsort(-wrong[rows, columns], kind="stable").tolist()
    return [
        Confused(int(wrong[rows[i], columns[i]]), labels[columns[i]], labels[rows[i]])
        for i in order
    ]


class Judging(TypedDict):
    """What an evaluation is told: the setting ``metric=``, training texts of each label."""

    metric: str
    trained: Sequence[int]


@dataclass(frozen=True, repr=False)
class LabelEvaluation(Evaluation):
    """Predictions beside the truth, example by example, and their summary.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples (it says what other
    texts would give, not another seed); `scores` are all metrics by name, log loss in nats, and
    `guesses` what the metric would be without reading a text (`metrics.trivial`; empty where the
    training labels are not known). `calibration_error` is the mean distance of stated confidence
    from accuracy; `confusion` counts[true][predicted].
    """

    metric: str
    labels: tuple[str, ...]
    asked: tuple[Example, ...] = field(repr=False)
    truth: NDArray[np.integer] = field(repr=False)
    probabilities: NDArray[np.floating] = field(repr=False)
    value: float
    low: float
    high: float
    scores: Mapping[str, float]
    guesses: Mapping[str, float]
    calibration_error: float
    confusion: NDArray[np.int64]

    @classmethod
    def judge(
        cls,
        labels: Sequence[str],
        examples: Sequence[Example],
        probabilities: NDArray[np.floating],
        *,
        metric: str = "accuracy",
        trained: Sequence[int] = (),
    ) -> "LabelEvaluation":
        """Judge probabilities (examples, labels) by the examples' own labels.

        `metric` is a name in `metrics.METRICS`, `trained` counts the training texts
        of each label. Errors: no examples; a label that is none of `labels`, by file:line.
        """
        if not examples:
            raise RegardError("there is nothing to evaluate: no examples")
        numbers = {label: number for number, label in enumerate(labels)}
        for example in examples:
            if example.label not in numbers:
                raise RegardError(
                    f"{example.source}: the label {example.label!r:.80} is none of those that the "
                    f"model learned: {listed(labels, 10)}{meant(example.label, labels)}"
                )
        truth = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        low, high = metrics.interval(metric, probabilities, truth)
        scores = metrics.scores(probabilities, truth)
        return cls(
            metric=metrics.METRICS[metric],
            labels=tuple(labels),
            asked=tuple(examples),
            truth=truth,
            probabilities=probabilities,
            value=scores[metrics.METRICS[metric]],
            low=low,
            high=high,
            scores=scores,
            guesses=metrics.trivial(metric, trained, truth) if len(trained) else {},
            calibration_error=metrics.calibration(probabilities, truth).error,
            confusion=metrics.confusion(probabilities.argmax(1), truth, len(labels)),
        )

    @property
    def n(self) -> int:
        """How many examples."""
        return len(self.truth)

    @property
    def examples(self) -> Sequence[Example]:
        """The texts and their labels."""
        return self.asked

    @property
    def trivial(self) -> Mapping[str, float]:
        """What the metric would be without reading a text."""
        return self.guesses

    @property
    def note(self) -> str:
        """Where to find what `tables` leave out."""
        return FURTHER if len(self.labels) > SHOWN else ""

    @property
    def said(self) -> list[str]:
        """The label that was said to each text."""
        return [self.labels[int(i)] for i in self.predicted]

    @property
    def per_example(self) -> NDArray[np.float64]:
        """What each text adds to the metric."""
        nats = metrics.losses(self.probabilities, self.truth)
        setting = next(name for name, title in metrics.METRICS.items() if title == self.metric)
        return metrics.per_example(setting, self.predicted, self.truth, len(self.labels), nats)

    @property
    def says_one_thing(self) -> bool:
        """Whether all texts got one label and have several."""
        return len(np.unique(self.predicted)) == 1 < len(np.unique(self.truth))

    @property
    def compared(self) -> str:
        """What two runs are compared by."""
        return self.metric

    @property
    def also(self) -> dict[str, float]:
        """What else a comparison tells of a run: the other metrics."""
        return {name: value for name, value in self.scores.items() if name != self.metric}

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The number of each example's most probable label."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def by_class(self) -> metrics.ByClass:
        """Precision, recall and F1 of each label."""
        return metrics.by_class(self.predicted, self.truth, len(self.labels))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Whether each example's most probable label is the true one."""
        return metrics.correct(self.probabilities, self.truth)

    def json(self) -> dict[str, Any]:
        """The summary as plain values."""
        return {
            "metric": self.metric,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "n": self.n,
            "scores": dict(self.scores),
            "trivial": dict(self.trivial),
            "calibration_error": self.calibration_error,
            "labels": list(self.labels),
            "by_class": [
                {"label": label, "precision": p, "recall": r, "f1": f, "support": s}
                for label, p, r, f, s in self._rows_by_class()
            ],
            "confusion": self.confusion.tolist(),
            "confused": [
                {"true": pair.true, "predicted": pair.said, "count": pair.texts}
                for pair in self.confused
            ],
        }

    def _rows_by_class(self) -> list[tuple[str, float, float, float, int]]:
        found = self.by_class
        columns = (found.precision, found.recall, found.f1, found.support)
        return list(zip(self.labels, *(column.tolist() for column in columns), strict=True))

    def line(self) -> str:
        """The summary on one line."""
        value, low, high = (written(self.metric, x, 1) for x in (self.value, self.low, self.high))
        parts = [f"{self.metric} {value} (95 % interval {low} to {high}, {self.n:,} texts)"]
        parts += [f"{name} {written(name, x, 1)}" for name, x in self.also.items()]
        says = ", ".join(parts)
        if self.trivial:
            told = (f"{name} {written(self.metric, x, 1)}" for name, x in self.trivial.items())
            says += f"; without reading: {', '.join(told)}"
        return says

    def words(self) -> list[tuple[str, str]]:
        """The summary for people: what is told, and how much it is."""
        value, low, high = (written(self.metric, x, 2) for x in (self.value, self.low, self.high))
        return [
            (
                self.metric,
                f"{value}  (95 % interval {low} to {high}, of texts, not seeds)",
            ),
            *((name, written(self.metric, x, 2)) for name, x in self.trivial.items()),
            *((name, written(name, x, 2)) for name, x in self.also.items()),
            ("calibration error", f"{self.calibration_error:.2%}  (stated against true accuracy)"),
        ]

    def tables(self) -> list[list[list[str]]]:
        """Precision, recall and F1 by label, then what was confused: as much as a terminal holds.

        Labels stand by the number of their texts, `SHOWN` at most. Of few labels with short names
        there is the whole confusion, the truth in rows; else its largest numbers. A table's first
        row names its columns.
        """
        by_class = self.by_label()
        if (left := len(self.labels) - SHOWN) > 0:
            by_class = [*by_class[: 1 + SHOWN], [f"… and {left:,} more", "", "", "", ""]]
        rows = zip(self.labels, self.confusion.tolist(), strict=True)
        confusion = [
            ["in truth", *(f"said {label}" for label in self.labels)],
            *([label, *(f"{count:,}" for count in counts)] for label, counts in rows),
        ]
        widths = (2 + max(map(len, column)) for column in zip(*confusion, strict=True))
        if len(self.labels) <= MATRIX and sum(widths) <= WIDTH:
            return [by_class, confusion]
        pairs = [["most confused"], *([pair.told()] for pair in self.confused)]
        if (left := len(self.confused) - PAIRS) > 0:
            pairs = [*pairs[: 1 + PAIRS], [f"… and {left:,} more pairs"]]
        return [by_class, pairs] if self.confused else [by_class]

    def by_label(self) -> list[list[str]]:
        """Precision, recall, F1 and texts of every label, the largest first, under a heading."""
        rows = sorted(self._rows_by_class(), key=lambda row: -row[-1])
        return [
            ["label", "precision", "recall", "F1", "texts"],
            *(
                [label, *(f"{share:.1%}" for share in shares), f"{support:,}"]
                for label, *shares, support in rows
            ),
        ]

    @cached_property
    def confused(self) -> list[Confused]:
        """The pairs of labels of which one was said for the other, the most frequent first."""
        return confused(self.labels, self.confusion)

    def rows(self) -> bytes:
        """The predictions as JSON lines: source, text, label, predicted, probabilities.

        A text with a group has that too.
        """
        lines = (
            json.dumps(
                {
                    "source": example.source,
                    "text": example.text,
                    "label": example.label,
                    **({"group": example.group} if example.group else {}),
                    "predicted": self.labels[int(chances.argmax())],
                    "probabilities": {
                        label: float(chance)
                        for label, chance in zip(self.labels, chances, strict=True)
                    },
                },
                ensure_ascii=False,
            )
            for example, chances in zip(self.examples, self.probabilities, strict=True)
        )
        return "".join(f"{line}\n" for line in lines).encode()

    @classmethod
    def parse(
        cls,
        rows: bytes,
        labels: Sequence[str],
        name: str,
        *,
        metric: str = "accuracy",
        trained: Sequence[int] = (),
    ) -> "LabelEvaluation":
        """What `rows` wrote, under a name for errors: lines that are no such rows."""
        found = list(parse_rows(rows, name))
        try:
            said = np.array(
                [[row["probabilities"][label] for label in labels] for row in found],
                dtype=np.float64,
            )
            if not ((said >= 0) & (said <= 1)).all():
                raise ValueError("a probability is not between 0 and 1")
            examples = [
                Example(
                    str(row["text"]),
                    str(row["label"]),
                    str(row["source"]),
                    str(row.get("group", "")),
                )
                for row in found
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(labels, examples, said, metric=metric, trained=trained)


def predictions(
    labels: Sequence[str], probabilities: Iterable[NDArray[np.floating]]
) -> list[Prediction]:
    """Rows of probabilities as predictions.

    >>> predictions(["no", "yes"], np.array([[0.25, 0.75]]))[0].label
    'yes'
    """
    return [
        Prediction(
            labels[int(row.argmax())],
            {label: float(chance) for label, chance in zip(labels, row, strict=True)},
        )
        for row in probabilities
    ]
