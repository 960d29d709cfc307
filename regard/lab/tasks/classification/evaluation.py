"""Predictions of labels and their evaluation."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.core.errors import RegardError
from regard.core.reading import parse_rows
from regard.core.shown import shown
from regard.lab.data.examples import Example
from regard.lab.data.labels import meant
from regard.lab.data.titles import listed
from regard.lab.tasks.classification import metrics
from regard.lab.tasks.evaluation import Evaluation, written


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, with the probability of each label."""

    label: str
    probabilities: Mapping[str, float]
    unknown: tuple[str, ...] = ()  # words of the text that the model does not know

    def __repr__(self) -> str:
        labels = [f"{label!r} {share:.1%}" for label, share in self.top(MOST_LIKELY)]
        more = len(self.probabilities) - len(labels)
        rest = [f"{more} more"] if more else []
        unknown = f"; unknown: {' '.join(self.unknown)}" if self.unknown else ""
        return f"<Prediction {', '.join([*labels, *rest])}{unknown}>"

    _repr_html_ = shown

    def line(self, top: int = 1) -> str:
        """Return the ``top`` labels in one line: label, tab, probability, tab, …

        Whitespace in a label becomes one space.
        """
        cells = ((" ".join(label.split()), f"{chance:.3f}") for label, chance in self.top(top))
        return "\t".join(cell for pair in cells for cell in pair)

    def top(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return labels with probabilities, most probable first; at most ``count``, or all."""
        ranked = sorted(self.probabilities.items(), key=lambda pair: -pair[1])
        return ranked[:count]

    def phrase(self) -> str:
        """Return the answer as a phrase."""
        return f"{self.label}, {self.probabilities[self.label]:.1%} sure"

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        named = {"unknown": list(self.unknown)} if self.unknown else {}
        return {"label": self.label, "probabilities": dict(self.probabilities), **named}


MOST_LIKELY = 4  # labels in the repr of a prediction
MATRIX = 12  # maximum labels for which the terminal shows the whole confusion matrix
WIDTH = 80  # characters per line of the terminal
SHOWN = 20  # labels in a table in the terminal
PAIRS = 10  # confused pairs in a table in the terminal
FURTHER = "all labels and pairs: --json, or regard report RUN"


class Confused(NamedTuple):
    """The number of texts with true label ``true`` and predicted label ``predicted``."""

    texts: int
    predicted: str
    true: str

    def phrase(self) -> str:
        """Return the mistake as a phrase."""
        return f"{self.texts:,} × predicted {self.predicted}, true {self.true}"


def confused(labels: Sequence[str], counts: ArrayLike) -> list[Confused]:
    """Return the mistakes in a confusion matrix counts[true][predicted], most frequent first.

    >>> confused(["a", "b"], [[5, 2], [3, 9]])
    [Confused(texts=3, predicted='a', true='b'), Confused(texts=2, predicted='b', true='a')]
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
    """Arguments of `LabelEvaluation.judge`: ``metric`` and training texts of each label."""

    metric: str
    trained: Sequence[int]


@dataclass(frozen=True, repr=False)
class LabelEvaluation(Evaluation):
    """Predicted probabilities with the true labels, and their scores.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples, which does not cover
    other seeds. `scores` has all metrics by name, log loss in nats, and `guesses` the metric of
    guesses that ignore the text (`metrics.trivial`; empty if the training labels are unknown).
    `calibration_error` is the expected calibration error; `confusion` is counts[true][predicted].
    """

    metric: str
    labels: tuple[str, ...]
    references: tuple[Example, ...] = field(repr=False)
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
        """Evaluate probabilities (examples, labels) against the labels of the examples.

        `metric` is a name in `metrics.METRICS`, `trained` the number of training texts of each
        label. Raises: no examples; a label that is not in `labels`, by file:line.
        """
        if not examples:
            raise RegardError("there are no examples to evaluate; give at least one")
        numbers = {label: number for number, label in enumerate(labels)}
        for example in examples:
            if example.label not in numbers:
                raise RegardError(
                    f"{example.source}: unknown label {example.label!r:.80}; the model learned "
                    f"{listed(labels, 10)}{meant(example.label, labels)}"
                )
        truth = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        low, high = metrics.interval(metric, probabilities, truth)
        scores = metrics.scores(probabilities, truth)
        return cls(
            metric=metrics.METRICS[metric],
            labels=tuple(labels),
            references=tuple(examples),
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
        """Return the number of examples."""
        return len(self.truth)

    @property
    def examples(self) -> Sequence[Example]:
        """Return the texts with their labels."""
        return self.references

    @property
    def trivial(self) -> Mapping[str, float]:
        """Return the metric of guesses that ignore the text."""
        return self.guesses

    @property
    def guessed(self) -> Sequence[float]:
        """Return the metric of guesses that ignore the text.

        The guess with the best macro-F1, 1/C, predicts each label with its share p: for predicted
        shares q with sum 1, Σ 2pq/(p + q) is largest at q = p.
        """
        known = list(self.guesses.values())
        return [*known, 1 / len(self.labels)] if self.metric == "macro-F1" and known else known

    @property
    def note(self) -> str:
        """Return where to find the rows that `tables` omits."""
        return FURTHER if len(self.labels) > SHOWN else ""

    @property
    def predictions(self) -> list[str]:
        """Return the predicted label of each text."""
        return [self.labels[int(i)] for i in self.predicted]

    @property
    def per_example(self) -> NDArray[np.float64]:
        """Return each text's contribution to the metric: `metrics.per_example`."""
        nats = metrics.losses(self.probabilities, self.truth)
        setting = next(name for name, title in metrics.METRICS.items() if title == self.metric)
        return metrics.per_example(setting, self.predicted, self.truth, len(self.labels), nats)

    @property
    def wrongness(self) -> NDArray[np.float64]:
        """Return the probability of each text's predicted label: confident mistakes are worst."""
        return np.asarray(self.probabilities.max(1), np.float64)

    @property
    def is_constant(self) -> bool:
        """Return whether all texts have the same predicted label but different true ones."""
        return len(np.unique(self.predicted)) == 1 < len(np.unique(self.truth))

    @property
    def compared(self) -> str:
        """Return the name of the score by which runs are compared."""
        return self.metric

    @property
    def other_metrics(self) -> dict[str, float]:
        """Return the other metrics."""
        return {name: value for name, value in self.scores.items() if name != self.metric}

    @property
    def predicted(self) -> NDArray[np.int64]:
        """Return the index of each example's most probable label."""
        return np.asarray(self.probabilities.argmax(1))

    @cached_property
    def by_class(self) -> metrics.ByClass:
        """Return precision, recall and F1 of each label."""
        return metrics.by_class(self.predicted, self.truth, len(self.labels))

    @property
    def correct(self) -> NDArray[np.bool_]:
        """Return for each example whether its most probable label is the true one."""
        return metrics.correct(self.probabilities, self.truth)

    def json(self) -> dict[str, Any]:
        """Return the summary as JSON-serialisable values."""
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
                {"true": pair.true, "predicted": pair.predicted, "count": pair.texts}
                for pair in self.confused
            ],
        }

    def _rows_by_class(self) -> list[tuple[str, float, float, float, int]]:
        scores = self.by_class
        columns = (scores.precision, scores.recall, scores.f1, scores.support)
        return list(zip(self.labels, *(column.tolist() for column in columns), strict=True))

    def line(self) -> str:
        """Return the summary in one line."""
        value, low, high = (written(self.metric, x, 1) for x in (self.value, self.low, self.high))
        parts = [f"{self.metric} {value} (95 % interval {low} to {high}, {self.n:,} texts)"]
        parts += [f"{name} {written(name, x, 1)}" for name, x in self.other_metrics.items()]
        summary = ", ".join(parts)
        if self.trivial:
            guesses = (f"{name} {written(self.metric, x, 1)}" for name, x in self.trivial.items())
            summary += f"; without reading the text: {', '.join(guesses)}"
        return summary

    def words(self) -> list[tuple[str, str]]:
        """Return the summary as (name, formatted value) pairs for the terminal."""
        value, low, high = (written(self.metric, x, 2) for x in (self.value, self.low, self.high))
        return [
            (
                self.metric,
                f"{value}  (95 % interval {low} to {high}, of texts, not seeds)",
            ),
            *((name, written(self.metric, x, 2)) for name, x in self.trivial.items()),
            *((name, written(name, x, 2)) for name, x in self.other_metrics.items()),
            ("calibration error", f"{self.calibration_error:.2%}  (confidence against accuracy)"),
        ]

    def tables(self) -> list[list[list[str]]]:
        """Return scores by label and the confused labels, shortened to fit a terminal.

        Labels are sorted by the number of their texts, at most `SHOWN`. Few labels with short names
        get the whole confusion matrix, true labels in rows; otherwise its largest counts are
        listed. The first row of a table has the column titles.
        """
        by_class = self.by_label()
        if (left := len(self.labels) - SHOWN) > 0:
            by_class = [*by_class[: 1 + SHOWN], [f"… and {left:,} more", "", "", "", ""]]
        rows = zip(self.labels, self.confusion.tolist(), strict=True)
        confusion = [
            ["true", *(f"predicted {label}" for label in self.labels)],
            *([label, *(f"{count:,}" for count in counts)] for label, counts in rows),
        ]
        widths = (2 + max(map(len, column)) for column in zip(*confusion, strict=True))
        if len(self.labels) <= MATRIX and sum(widths) <= WIDTH:
            return [by_class, confusion]
        pairs = [["most confused"], *([pair.phrase()] for pair in self.confused)]
        if (left := len(self.confused) - PAIRS) > 0:
            pairs = [*pairs[: 1 + PAIRS], [f"… and {left:,} more pairs"]]
        return [by_class, pairs] if self.confused else [by_class]

    def by_label(self) -> list[list[str]]:
        """Return precision, recall, F1 and number of texts of each label, most texts first."""
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
        """Return the confused pairs of labels, most frequent first."""
        return confused(self.labels, self.confusion)

    def rows(self) -> bytes:
        """Return JSON lines: source, text, label, group if any, predicted, probabilities."""
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
        """Rebuild the evaluation from `rows` of a file ``name``. Raises: malformed rows."""
        lines = list(parse_rows(rows, name))
        try:
            probabilities = np.array(
                [[row["probabilities"][label] for label in labels] for row in lines],
                dtype=np.float64,
            )
            if not ((probabilities >= 0) & (probabilities <= 1)).all():
                raise ValueError("a probability is not between 0 and 1")
            examples = [
                Example(
                    str(row["text"]),
                    str(row["label"]),
                    str(row["source"]),
                    str(row.get("group", "")),
                )
                for row in lines
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(labels, examples, probabilities, metric=metric, trained=trained)


def predictions(
    labels: Sequence[str], probabilities: Iterable[NDArray[np.floating]]
) -> list[Prediction]:
    """Convert rows of probabilities to predictions.

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
