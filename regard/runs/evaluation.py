"""What a run answers: predictions of single texts, and what they are worth together."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from regard.data.files import Example
from regard.data.labels import meant
from regard.errors import RegardError
from regard.reading import parse_rows
from regard.tasks import metrics


@dataclass(frozen=True)
class Prediction:
    """The most probable label of a text, and the probability of each."""

    label: str
    probabilities: Mapping[str, float]

    def line(self) -> str:
        """The answer on one line, whatever the label holds: label, tab, its probability."""
        return f"{' '.join(self.label.split())}\t{self.probabilities[self.label]:.3f}"

    def told(self) -> str:
        """The answer in words."""
        return f"{self.label}, {self.probabilities[self.label]:.1%} sure"

    def json(self) -> dict[str, Any]:
        """The answer as plain values."""
        return {"label": self.label, "probabilities": dict(self.probabilities)}


MATRIX = 12  # labels; the confusion of more is not shown to people


class Judging(TypedDict):
    """What an evaluation is told: the setting ``metric=``, training texts of each label."""

    metric: str
    trained: Sequence[int]


@dataclass(frozen=True)
class Evaluation:
    """Predictions beside the truth, example by example, and their summary.

    `value` is the `metric`, `low` and `high` its 95 % interval over examples (it says what other
    texts would give, not another seed); `scores` are all metrics by name, log loss in nats, and
    `trivial` what the metric would be without reading a text (`regard.tasks.metrics.trivial`;
    empty where the training labels are not known). `calibration_error` is the mean distance of
    stated confidence from accuracy; `confusion` counts[true][predicted].
    """

    metric: str
    labels: tuple[str, ...]
    examples: tuple[Example, ...] = field(repr=False)
    truth: NDArray[np.integer] = field(repr=False)
    probabilities: NDArray[np.floating] = field(repr=False)
    value: float
    low: float
    high: float
    scores: Mapping[str, float]
    trivial: Mapping[str, float]
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
    ) -> "Evaluation":
        """Judge probabilities (examples, labels) by the examples' own labels.

        `metric` is a name in `regard.tasks.metrics.METRICS`, `trained` counts the training texts
        of each label. Errors: no examples; a label that is none of `labels`, by file:line.
        """
        if not examples:
            raise RegardError("there is nothing to evaluate: no examples")
        numbers = {label: number for number, label in enumerate(labels)}
        for example in examples:
            if example.label not in numbers:
                raise RegardError(
                    f"{example.source}: the label {example.label!r:.80} is none of those that the "
                    f"model learned: {', '.join(labels)}{meant(example.label, labels)}"
                )
        truth = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        low, high = metrics.interval(metric, probabilities, truth)
        scores = metrics.scores(probabilities, truth)
        return cls(
            metric=metrics.METRICS[metric],
            labels=tuple(labels),
            examples=tuple(examples),
            truth=truth,
            probabilities=probabilities,
            value=scores[metrics.METRICS[metric]],
            low=low,
            high=high,
            scores=scores,
            trivial=metrics.trivial(metric, trained, truth) if len(trained) else {},
            calibration_error=metrics.calibration(probabilities, truth).error,
            confusion=metrics.confusion(probabilities.argmax(1), truth, len(labels)),
        )

    @property
    def n(self) -> int:
        """How many examples."""
        return len(self.truth)

    #: The texts are no corpus with a score of its own.
    corpus = None

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
                f"{value}  (95 % interval {low} to {high}; "
                "it tells of other texts, not of another seed)",
            ),
            *((name, written(self.metric, x, 2)) for name, x in self.trivial.items()),
            *((name, written(name, x, 2)) for name, x in self.also.items()),
            ("calibration error", f"{self.calibration_error:.2%}  (stated against true accuracy)"),
        ]

    def tables(self) -> list[list[list[str]]]:
        """Precision, recall and F1 by label; of few labels also the confusion.

        The confusion has the truth in rows. A table's first row names its columns.
        """
        by_class = [
            ["label", "precision", "recall", "F1", "texts"],
            *(
                [label, *(f"{share:.1%}" for share in shares), f"{support:,}"]
                for label, *shares, support in self._rows_by_class()
            ),
        ]
        if len(self.labels) > MATRIX:
            return [by_class]
        rows = zip(self.labels, self.confusion.tolist(), strict=True)
        confusion = [
            ["in truth", *(f"said {label}" for label in self.labels)],
            *([label, *(f"{count:,}" for count in counts)] for label, counts in rows),
        ]
        return [by_class, confusion]

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
    ) -> "Evaluation":
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


def written(metric: str, value: float, digits: int) -> str:
    """A score as people write it: a share in per cent, log loss in nats.

    >>> written("accuracy", 0.914, 1), written("log loss", 0.25, 1)
    ('91.4%', '0.250 nats')
    """
    if metric == metrics.METRICS["log-loss"]:
        return f"{value:.{digits + 2}f} nats"
    return f"{value:.{digits}%}"


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
