"""Predictions of several labels and their evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.label_lists import joined, labels_in
from regard.lab.data.labels import meant
from regard.lab.data.titles import listed
from regard.lab.tasks.classification.evaluation import FURTHER, SHOWN, Prediction, tables_of
from regard.lab.tasks.evaluation import Evaluation, groups_of, interval, must_have_examples
from regard.lab.tasks.ranking import average_precision_values, average_precisions

Chances = Float[np.ndarray, "texts labels"]
Indicators = Bool[np.ndarray, "texts labels"]
GUESS = "most frequent labels"  # the guess that ignores the text


@dataclass(frozen=True, repr=False)
class Labels(Prediction):
    """The labels predicted for a text, most probable first, with the probability of each label.

    ``label`` has the predicted labels as one text.
    """

    labels: tuple[str, ...] = ()

    def line(self, top: int = 0) -> str:
        """Return the predicted or the ``top`` labels in one line: label, tab, probability, …"""
        return super().line(top or len(self.labels))

    def phrase(self) -> str:
        """Return the answer as a phrase."""
        sure = (f"{label} {self.probabilities[label]:.1%}" for label in self.labels)
        return ", ".join(sure) or "no label"

    def top(self, count: int | None = None) -> list[tuple[str, float]]:
        """Return labels with probabilities, predicted ones first; at most ``count``, or all."""
        ranked = sorted(super().top(), key=lambda pair: pair[0] not in self.labels)
        return ranked[:count]

    def json(self) -> dict[str, Any]:
        """Return the answer as JSON-serialisable values."""
        values = super().json()
        del values["label"]
        return {"labels": list(self.labels), **values}


def label_sets(
    labels: Sequence[str], probabilities: Chances, thresholds: ArrayLike
) -> list[Labels]:
    """Return the labels above their thresholds for each row of probabilities.

    >>> label_sets(["a", "b", "c"], np.array([[0.3, 0.9, 0.6]]), [0.5, 0.5, 0.7])[0].labels
    ('b',)
    """
    predictions = []
    for row, above in zip(probabilities, probabilities > np.asarray(thresholds), strict=True):
        order = [i for i in np.argsort(-row, kind="stable").tolist() if above[i]]
        names = tuple(labels[i] for i in order)
        chances = {label: float(chance) for label, chance in zip(labels, row, strict=True)}
        predictions.append(Labels(joined(names), chances, labels=names))
    return predictions


def indicators(labels: Sequence[str], examples: Sequence[Example]) -> Indicators:
    """Return which labels each example has. Raises: an unknown label, by file:line."""
    numbers = {label: number for number, label in enumerate(labels)}
    matrix = np.zeros((len(examples), len(labels)), dtype=bool)
    for row, example in zip(matrix, examples, strict=True):
        for label in labels_in(example.label):
            if label not in numbers:
                raise RegardError(
                    f"{example.source}: unknown label {label!r:.80}; the model learned "
                    f"{listed(labels, 10)}{meant(label, labels)}"
                )
            row[numbers[label]] = True
    return matrix


def f1_by_label(predicted: Indicators, truth: Indicators) -> Float[np.ndarray, " labels"]:
    """Compute 2 hits / (predicted + true) of each label; NaN for a label with neither."""
    either = predicted.sum(0) + truth.sum(0)
    hits = (predicted & truth).sum(0)
    return np.where(either > 0, 2 * hits / np.maximum(either, 1), np.nan)


def scores(
    chances: Chances, truth: Indicators, thresholds: ArrayLike
) -> tuple[dict[str, float], Indicators]:
    """Compute all metrics, by their names in tables, and return the predicted labels.

    Micro-F1 is that of all labels together. Macro-F1 is the mean over the labels that a text has or
    is given, mean average precision over the labels that a text has.
    """
    predicted = chances > np.asarray(thresholds)
    micro = f1_by_label(predicted.reshape(-1, 1), truth.reshape(-1, 1))
    values = {
        "micro-F1": micro[0],
        "macro-F1": _mean(f1_by_label(predicted, truth)),
        "mean average precision": _mean(average_precisions(chances, truth)),
        "subset accuracy": (predicted == truth).all(1).mean(),
    }
    return {name: float(np.nan_to_num(value)) for name, value in values.items()}, predicted


def log_loss(chances: Chances, truth: Indicators) -> float:
    """Compute the mean binary cross entropy over texts and labels, in nats."""
    right = np.where(truth, chances, 1 - chances)
    return float(-np.log(np.clip(right, 1e-12, 1)).mean())


def per_example(
    name: str, chances: Chances, predicted: Indicators, truth: Indicators, value: float
) -> Float[np.ndarray, " texts"]:
    """Return one number per text, larger is better, whose mean is the metric.

    For F1 they are the jackknife's pseudo-values (Miller 1974), as in
    `regard.lab.tasks.classification.metrics.pseudo_values`: leaving out text i changes a ratio
    R = a/d by (aᵢ − R dᵢ)/(d − dᵢ), in which R is replaced by (a + 2)/(d + 4).
    """
    if name == "subset accuracy":
        return np.asarray((predicted == truth).all(1), dtype=np.float64)
    if name == "mean average precision":
        return average_precision_values(chances, truth) if truth.any() else np.zeros(len(truth))
    hits, either = (predicted & truth) * 2.0, predicted + truth.astype(np.float64)
    if name == "micro-F1":
        hits, either = hits.sum(1, keepdims=True), either.sum(1, keepdims=True)
    total = either.sum(0)
    rate = (hits.sum(0) + 2) / (total + 4)
    changes = (hits - rate * either) / np.maximum(total - either, 1)
    values = (len(truth) - 1) * changes[:, total > 0].sum(1) / max((total > 0).sum(), 1)
    return np.asarray(values - values.mean() + value)


def guess(name: str, counts: Sequence[int], texts: int) -> Bool[np.ndarray, " labels"]:
    """Return the labels that to predict for every text has the best metric.

    ``counts`` are the training texts of each label. For micro-F1 they are the k most frequent
    labels, with the k of the largest 2 Σ counts / (k texts + Σ all counts).
    """
    many = np.asarray(counts)
    if name != "micro-F1":
        return many > (texts / 2 if name == "subset accuracy" else 0)
    order = np.argsort(-many, kind="stable")
    sums, sizes = np.cumsum(many[order]), np.arange(1, len(many) + 1)
    chosen = np.zeros(len(many), dtype=bool)
    chosen[order[: np.argmax(2 * sums / (sizes * texts + many.sum())) + 1]] = True
    return chosen


def set_evaluation(
    metric: str,
    labels: Sequence[str],
    examples: Sequence[Example],
    probabilities: ArrayLike,
    thresholds: Sequence[float],
    trained: Sequence[int],
    texts: int,
) -> Evaluation:
    """Evaluate probabilities (examples, labels); ``metric`` is a name in tables.

    ``trained`` are the training texts of each label, of all ``texts``. Raises: no examples; an
    unknown label, by file:line.
    """
    must_have_examples(examples)
    truth, chances = indicators(labels, examples), np.asarray(probabilities)
    values, predicted = scores(chances, truth, thresholds)
    numbers = per_example(metric, chances, predicted, truth, values[metric])
    right = (predicted == truth).all(1)
    scored = right if metric == "subset accuracy" else numbers
    low, high = interval(scored, values[metric], groups=groups_of(examples))
    constant = np.broadcast_to(guess(metric, trained, texts), truth.shape)
    hits, given, true = (predicted & truth).sum(0), predicted.sum(0), truth.sum(0)
    columns = {
        "label": list(labels),
        "precision": (hits / np.maximum(given, 1)).tolist(),
        "recall": (hits / np.maximum(true, 1)).tolist(),
        "f1": np.nan_to_num(f1_by_label(predicted, truth)).tolist(),
        "average_precision": np.nan_to_num(average_precisions(chances, truth)).tolist(),
        "threshold": list(thresholds),
        "support": true.tolist(),
    }
    rows = zip(*columns.values(), strict=True)
    by_class = [dict(zip(columns, row, strict=True)) for row in rows]
    summary = {"scores": values, "labels": list(labels), "by_class": by_class}
    sets = label_sets(labels, chances, thresholds)
    return Evaluation(
        metric=metric,
        value=values[metric],
        low=low,
        high=high,
        examples=examples,
        answers=chances,
        row=partial(_row, labels, thresholds),
        correct=right,
        per_example=numbers,
        predictions=[each.label for each in sets],
        wrongness=(predicted != truth).sum(1).astype(np.float64),
        is_constant=len(np.unique(predicted, axis=0)) == 1 < len(np.unique(truth, axis=0)),
        other_metrics={name: value for name, value in values.items() if name != metric},
        trivial={GUESS: scores(constant.astype(np.float64), truth, 0.5)[0][metric]},
        summary=summary,
        remarks={GUESS: f"{metric} of the same labels for every text"},
        tables=tables_of(summary),
        note=FURTHER if len(labels) > SHOWN else "",
    )


def _row(labels: Sequence[str], thresholds: ArrayLike, chances: np.ndarray) -> Mapping[str, Any]:
    """Return what a row of predictions has of the probabilities of a text."""
    return label_sets(labels, chances[None], thresholds)[0].json()


def _mean(values: Float[np.ndarray, " labels"]) -> float:
    """Return the mean without NaN; NaN of nothing else."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else np.nan
