"""What a run answers: predictions of single texts, and what they are worth together."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.data.files import Example
from regard.errors import RegardError
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


@dataclass(frozen=True)
class Evaluation:
    """Predictions beside the truth, example by example, and their summary.

    `value` is the metric, `low` and `high` its 95 % Wilson interval over examples (it says what
    other texts would give, not another seed); `log_loss` is in nats; `calibration_error` the mean
    distance of stated confidence from accuracy; `confusion` counts[true][predicted].
    """

    metric: str
    labels: tuple[str, ...]
    examples: tuple[Example, ...] = field(repr=False)
    truth: NDArray[np.integer] = field(repr=False)
    probabilities: NDArray[np.floating] = field(repr=False)
    value: float
    low: float
    high: float
    log_loss: float
    calibration_error: float
    confusion: NDArray[np.int64]

    @classmethod
    def judge(
        cls,
        labels: Sequence[str],
        examples: Sequence[Example],
        probabilities: NDArray[np.floating],
    ) -> "Evaluation":
        """Judge probabilities (examples, labels) by the examples' own labels.

        Errors: no examples; a label that is none of `labels`, by file:line.
        """
        if not examples:
            raise RegardError("there is nothing to evaluate: no examples")
        numbers = {label: number for number, label in enumerate(labels)}
        for example in examples:
            if example.label not in numbers:
                raise RegardError(
                    f"{example.source}: the label {example.label!r:.80} is none of those that the "
                    f"model learned: {', '.join(labels)}"
                )
        truth = np.array([numbers[example.label] for example in examples], dtype=np.int64)
        right = metrics.correct(probabilities, truth)
        low, high = metrics.wilson(int(right.sum()), len(right))
        return cls(
            metric="accuracy",
            labels=tuple(labels),
            examples=tuple(examples),
            truth=truth,
            probabilities=probabilities,
            value=float(right.mean()),
            low=low,
            high=high,
            log_loss=metrics.log_loss(probabilities, truth),
            calibration_error=metrics.calibration(probabilities, truth).error,
            confusion=metrics.confusion(probabilities.argmax(1), truth, len(labels)),
        )

    @property
    def n(self) -> int:
        """How many examples."""
        return len(self.truth)

    #: What two runs are compared by, text by text: no corpus, and nothing beside it.
    compared, corpus = "accuracy", None

    @property
    def also(self) -> dict[str, float]:
        """What else a comparison tells of a run: nothing."""
        return {}

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
            "log_loss": self.log_loss,
            "calibration_error": self.calibration_error,
            "labels": list(self.labels),
            "confusion": self.confusion.tolist(),
        }

    def line(self) -> str:
        """The summary on one line."""
        interval = f"95 % interval {self.low:.1%} to {self.high:.1%}"
        return f"{self.metric} {self.value:.1%} ({interval}, {self.n:,} texts)"

    def words(self) -> list[tuple[str, str]]:
        """The summary for people: what is told, and how much it is."""
        return [
            (
                self.metric,
                f"{self.value:.2%}  (95 % interval {self.low:.2%} to {self.high:.2%}; "
                "it tells of other texts, not of another seed)",
            ),
            ("log loss", f"{self.log_loss:.4f} nats"),
            ("calibration error", f"{self.calibration_error:.2%}  (stated against true accuracy)"),
        ]

    def table(self) -> list[list[str]]:
        """Rows of the truth, columns of what was said; the first row names the columns."""
        rows = zip(self.labels, self.confusion.tolist(), strict=True)
        return [
            ["in truth", *(f"said {label}" for label in self.labels)],
            *([label, *(f"{count:,}" for count in counts)] for label, counts in rows),
        ]

    def rows(self) -> bytes:
        """The predictions as JSON lines: source, text, label, predicted, probabilities."""
        lines = (
            json.dumps(
                {
                    "source": example.source,
                    "text": example.text,
                    "label": example.label,
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
    def parse(cls, rows: bytes, labels: Sequence[str], name: str) -> "Evaluation":
        """What `rows` wrote, under a name for errors: lines that are no such rows."""
        try:
            found: list[dict[str, Any]] = [json.loads(line) for line in rows.splitlines()]
            said = np.array([[row["probabilities"][label] for label in labels] for row in found])
            examples = [
                Example(str(row["text"]), str(row["label"]), str(row["source"])) for row in found
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise RegardError(f"{name} cannot be read: {error!r}") from None
        return cls.judge(labels, examples, said)


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
