"""Predictions of labels and their evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.core.errors import RegardError
from regard.core.shown import shown
from regard.lab.data.examples import Example
from regard.lab.data.labels import meant
from regard.lab.data.titles import listed
from regard.lab.tasks.classification import metrics
from regard.lab.tasks.evaluation import (
    Evaluation,
    groups_of,
    interval,
    must_have_examples,
    written,
)


@dataclass(frozen=True)
class Prediction:
    """The predicted label of a text, with the probability of each label."""

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
        """Return labels with probabilities, at most ``count``: the answer, then the most probable.

        With a threshold the answer need not be the most probable label.
        """
        ranked = sorted(
            self.probabilities.items(), key=lambda pair: (pair[0] != self.label, -pair[1])
        )
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


def label_evaluation(
    labels: Sequence[str],
    examples: Sequence[Example],
    probabilities: ArrayLike,
    *,
    metric: str = "accuracy",
    trained: Sequence[int] = (),
    threshold: float = 0.5,
) -> Evaluation:
    """Evaluate probabilities (examples, labels) against the labels of the examples.

    ``metric`` is a name in `metrics.METRICS`, ``trained`` the number of training texts of each
    label; without them there are no guesses to compare with. ``threshold``: see `metrics.decided`.
    The summary has all metrics by name, the expected calibration error, and the confusion
    counts[true][predicted]. Raises: no examples; a label that is not in ``labels``, by file:line.
    """
    must_have_examples(examples)
    truth, chances = label_numbers(labels, examples), np.asarray(probabilities)
    predicted, name = metrics.decided(chances, threshold), metrics.METRICS[metric]
    scores, nats = metrics.scores(chances, truth, threshold), metrics.losses(chances, truth)
    if np.isin(chances, (0, 1)).all():  # labels alone: they have no order and no log loss
        scores = {key: x for key, x in scores.items() if key == name or key not in metrics.RANKED}
    numbers = metrics.per_example(metric, predicted, truth, len(labels), nats, chances)
    most = metrics.MOST_NATS if metric == "log-loss" else 1.0
    right = predicted == truth
    scored = right if metric == "accuracy" else numbers
    low, high = interval(scored, scores[name], most=most, groups=groups_of(examples))
    trivial = metrics.trivial(metric, trained, truth) if len(trained) else {}
    guesses = (f"{guess} {written(name, x, 1)}" for guess, x in trivial.items())
    by_class = metrics.by_class(predicted, truth, len(labels))
    ranked = np.nan_to_num(metrics.precision_by_class(chances, truth))
    columns = (by_class.precision, by_class.recall, by_class.f1, ranked, by_class.support)
    keys = ("label", "precision", "recall", "f1", "average_precision", "support")
    rows = zip(labels, *(column.tolist() for column in columns), strict=True)
    summary = {
        **({} if threshold == 0.5 else {"threshold": threshold}),
        "scores": scores,
        "calibration_error": metrics.calibration(chances, truth).error,
        "labels": list(labels),
        "by_class": [dict(zip(keys, row, strict=True)) for row in rows],
        "confusion": (counts := metrics.confusion(predicted, truth, len(labels))).tolist(),
        "confused": [
            {"true": pair.true, "predicted": pair.predicted, "count": pair.texts}
            for pair in confused(labels, counts)
        ],
    }
    return Evaluation(
        metric=name,
        value=scores[name],
        low=low,
        high=high,
        examples=examples,
        answers=chances,
        row=partial(_row, labels, threshold),
        correct=right,
        per_example=numbers,
        predictions=[labels[i] for i in predicted.tolist()],
        wrongness=chances.max(1).astype(np.float64),  # confident mistakes are worst
        is_constant=len(np.unique(predicted)) == 1 < len(np.unique(truth)),
        other_metrics={other: value for other, value in scores.items() if other != name},
        trivial=trivial,
        # The guess with the best macro-F1, 1/C, predicts each label with its share p: for predicted
        # shares q with sum 1, Σ 2pq/(p + q) is largest at q = p.
        best_guess=1 / len(labels) if trivial and metric == "macro-f1" else None,
        summary=summary,
        remark=f"; without reading the text: {', '.join(guesses)}" if trivial else "",
        facts=[
            (
                "calibration error",
                f"{summary['calibration_error']:.2%}  (confidence against accuracy)",
            ),
            *([] if threshold == 0.5 else [("threshold", f"{labels[1]} above {threshold:.3f}")]),
        ],
        tables=tables_of(summary),
        note=FURTHER if len(labels) > SHOWN else "",
    )


def label_numbers(labels: Sequence[str], examples: Sequence[Example]) -> NDArray[np.int64]:
    """Return each example's label number. Raises: an unknown label, by file:line."""
    numbers = {label: number for number, label in enumerate(labels)}
    for example in examples:
        if example.label not in numbers:
            raise RegardError(
                f"{example.source}: unknown label {example.label!r:.80}; the model learned "
                f"{listed(labels, 10)}{meant(example.label, labels)}"
            )
    return np.array([numbers[example.label] for example in examples], dtype=np.int64)


def _row(labels: Sequence[str], threshold: float, chances: NDArray[np.floating]) -> dict[str, Any]:
    """Return what a row of predictions has of the probabilities of a text."""
    (predicted,) = predictions(labels, chances[None], threshold)
    return {"predicted": predicted.label, "probabilities": predicted.probabilities}


def by_label(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the scores and the number of texts of each label, most texts first."""
    rows = sorted(summary["by_class"], key=lambda row: -row["support"])
    shares = ("precision", "recall", "f1", "average_precision")
    last = [("threshold", "threshold", ".3f")] if rows and "threshold" in rows[0] else []
    last = [*last, ("support", "texts", ",")]
    return [
        ["label", "precision", "recall", "F1", "AP", *(title for _, title, _ in last)],
        *(
            [
                x["label"],
                *(f"{x[key]:.1%}" for key in shares),
                *(format(x[key], how) for key, _, how in last),
            ]
            for x in rows
        ),
    ]


def tables_of(summary: Mapping[str, Any]) -> list[list[list[str]]]:
    """Return scores by label and the confused labels, shortened to fit a terminal.

    Labels are sorted by the number of their texts, at most `SHOWN`. Few labels with short names
    get the whole confusion matrix, true labels in rows; otherwise its largest counts are listed.
    """
    labels, scores = summary["labels"], by_label(summary)
    if (left := len(labels) - SHOWN) > 0:
        more = [f"… and {left:,} more", *("" for _ in scores[0][1:])]
        scores = [*scores[: 1 + SHOWN], more]
    if "confusion" not in summary:
        return [scores]
    if len(labels) <= MATRIX:
        rows = zip(labels, summary["confusion"], strict=True)
        confusion = [
            ["true", *(f"predicted {label}" for label in labels)],
            *([label, *(f"{count:,}" for count in counts)] for label, counts in rows),
        ]
        if sum(2 + max(map(len, column)) for column in zip(*confusion, strict=True)) <= WIDTH:
            return [scores, confusion]
    found = [Confused(x["count"], x["predicted"], x["true"]) for x in summary["confused"]]
    pairs = [["most confused"], *([pair.phrase()] for pair in found[:PAIRS])]
    if (left := len(found) - PAIRS) > 0:
        pairs.append([f"… and {left:,} more pairs"])
    return [scores, pairs] if found else [scores]


def predictions(
    labels: Sequence[str], probabilities: NDArray[np.floating], threshold: float = 0.5
) -> list[Prediction]:
    """Convert rows of probabilities to predictions; ``threshold``: see `metrics.decided`.

    >>> predictions(["no", "yes"], np.array([[0.25, 0.75]]))[0].label
    'yes'
    """
    return [
        Prediction(
            labels[number],
            {label: float(chance) for label, chance in zip(labels, row, strict=True)},
        )
        for number, row in zip(
            metrics.decided(probabilities, threshold), probabilities, strict=True
        )
    ]
