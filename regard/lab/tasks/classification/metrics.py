"""Scores of predicted labels: accuracy, F1, average precision, log loss, calibration.

Probabilities have shape (examples, labels) and rows that sum to 1; labels are indexes from 0. As in
scikit-learn, a class that is never predicted has F1 0, and an average omits classes that occur
neither in the true labels nor in the predictions. scikit-learn's functions return the same numbers,
and tests compare with them; these are used since a validation on 25,000 texts takes 0.7 ms with
them and 19 ms with scikit-learn's, whose import takes 0.9 s.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.tasks.ranking import average_precision_values, average_precisions

Probabilities = NDArray[np.floating]
Labels = NDArray[np.integer]

#: Values of the setting ``metric=`` and the names of the metrics in tables and reports.
METRICS: Final = {
    "accuracy": "accuracy",
    "macro-f1": "macro-F1",
    "balanced-accuracy": "balanced accuracy",
    "average-precision": "average precision",
    "log-loss": "log loss",
}
#: Metrics of probabilities, which labels alone do not have.
RANKED: Final = frozenset({"average precision", "log loss"})
MOST_NATS: Final = 12 * float(np.log(10))  # log loss of the clipped probability 1e-12


def correct(probabilities: Probabilities, labels: Labels) -> NDArray[np.bool_]:
    """Return for each example whether its most probable label is the true one.

    >>> correct(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])).tolist()
    [True, False]
    """
    _same_examples(len(probabilities), len(labels))
    return np.asarray(np.asarray(probabilities).argmax(1) == labels)


def losses(probabilities: Probabilities, labels: Labels) -> NDArray[np.float64]:
    """Compute −ln p(true label) of each example, in nats, with p clipped to at least 1e-12."""
    _same_examples(len(probabilities), len(labels))
    chosen = np.asarray(probabilities, dtype=np.float64)[np.arange(len(labels)), labels]
    return np.asarray(-np.log(np.clip(chosen, 1e-12, 1.0)) + 0.0)


def log_loss(probabilities: Probabilities, labels: Labels) -> float:
    """Compute the mean of −ln p(true label), in nats, with p clipped to at least 1e-12.

    >>> round(log_loss(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 4)
    0.4904
    """
    return float(losses(probabilities, labels).mean())


def confusion(predicted: Labels, labels: Labels, classes: int) -> NDArray[np.int64]:
    """Compute the confusion matrix counts[true, predicted].

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    _same_examples(len(predicted), len(labels))
    cells = np.asarray(labels, dtype=np.int64) * classes + np.asarray(predicted)
    return np.asarray(np.bincount(cells, minlength=classes * classes).reshape(classes, classes))


@dataclass(frozen=True)
class ByClass:
    """Precision, recall and F1 of each class, with its numbers of examples and predictions.

    ``support`` examples have the class as true label, ``predicted`` as predicted label, tp as both:
    precision = tp/predicted, recall = tp/support, F1 = 2 tp/(support + predicted), with 0/0 = 0.
    """

    precision: NDArray[np.float64]
    recall: NDArray[np.float64]
    f1: NDArray[np.float64]
    support: NDArray[np.int64]
    predicted: NDArray[np.int64]


def by_class(predicted: Labels, labels: Labels, classes: int) -> ByClass:
    """Compute precision, recall and F1 of each class.

    >>> found = by_class(np.array([0, 1, 1]), np.array([0, 0, 1]), 2)
    >>> found.precision.tolist(), found.recall.tolist(), found.support.tolist()
    ([1.0, 0.5], [0.5, 1.0], [2, 1])
    """
    hits, support, predicted_counts = _margins(predicted, labels, classes)
    return ByClass(
        _share(hits, predicted_counts),
        _share(hits, support),
        _share(2 * hits, support + predicted_counts),
        support,
        predicted_counts,
    )


def pseudo_values(
    predicted: Labels, labels: Labels, classes: int, metric: str
) -> NDArray[np.float64]:
    """Return one number for each example, whose variance / n is that of a metric over examples.

    For accuracy they are 1 or 0 for right or wrong. Macro-F1 and balanced accuracy are means over
    classes of ratios R = a/d, and leaving example i out changes them by

        θ − θ₋ᵢ = 1/K Σ_c (aᵢ − R_c dᵢ) / (d_c − dᵢ)

    so that (n − 1)(θ − θ₋ᵢ) are the jackknife's pseudo-values (Miller 1974) without a constant. If
    all examples of a class are right, or all wrong, the jackknife sees no variance in it; with a
    class of two texts that is often so. R_c is therefore replaced by (a_c + 2)/(d_c + 4), as if
    four examples more had been drawn, two of them right (Agresti & Coull 1998). A class without
    true examples adds nothing to the mean of F1, and this loss is divided among the examples that
    were wrongly given its label. `metric` is a name in `METRICS` that needs no probabilities. The
    cost is O(n + classes).

    >>> pseudo_values(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, "accuracy").tolist()
    [1.0, 0.0, 1.0]
    >>> pseudo_values(np.array([0, 1, 1]), np.array([0, 0, 1]), 2, "balanced-accuracy").round(3)
    array([ 0.5, -0.5,  0.4])

    Raises: another metric.
    """
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    right = predicted == labels
    if metric == "accuracy":
        _same_examples(len(predicted), len(labels))
        return np.asarray(right, dtype=np.float64)
    hit, missed, false = effects(metric, *_margins(predicted, labels, classes))
    return np.asarray(
        (len(labels) - 1) * np.where(right, hit[labels], missed[labels] + false[predicted])
    )


def effects(
    metric: str,
    hits: NDArray[np.integer],
    support: NDArray[np.integer],
    predicted: NDArray[np.integer],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Compute by how much one example changes macro-F1 or balanced accuracy: `pseudo_values`.

    The counts are by class on the last axis. For each class: the change by an example that is
    right, by one that is missed, and by one that wrongly gets its label.

    Raises: another metric.
    """
    if metric == "balanced-accuracy":
        rate, others = (hits + 2) / (support + 4), np.maximum(support - 1, 1)
        parts = (support > 0).sum(-1, keepdims=True)
        return (1 - rate) / others / parts, -rate / others / parts, np.zeros(rate.shape)
    if metric != "macro-f1":
        raise RegardError(
            f"metric={metric!r} has no pseudo-values; choose accuracy, macro-f1 or "
            "balanced-accuracy"
        )
    either = support + predicted
    parts = (either > 0).sum(-1, keepdims=True)
    rate = (2 * hits + 2) / (either + 4)
    wrong = -rate / np.maximum(either - 1, 1) / parts
    mean = _share(2 * hits, either).sum(-1, keepdims=True) / (support > 0).sum(-1, keepdims=True)
    false = np.where(support > 0, wrong, -mean / np.maximum(either, 1) / parts)
    return (2 - 2 * rate) / np.maximum(either - 2, 1) / parts, wrong, false


def per_example(
    metric: str,
    predicted: Labels,
    labels: Labels,
    classes: int,
    nats: NDArray[np.floating] | None = None,
    probabilities: Probabilities | None = None,
) -> NDArray[np.float64]:
    """Return one number per example, larger is better, whose mean is the metric.

    For log loss these are minus the `nats` of each example, and their mean is minus the metric;
    average precision needs `probabilities`. For
    scores that are not a mean over examples they are `pseudo_values`, shifted to have the score as
    their mean.
    """
    if metric == "log-loss":
        return -np.asarray(nats, dtype=np.float64)
    if metric == "average-precision":
        return average_precision_values(np.asarray(probabilities), _indicators(labels, classes))
    values = pseudo_values(predicted, labels, classes, metric)
    if metric == "accuracy":
        return values
    value = label_scores(predicted, labels, classes)[METRICS[metric]]
    return np.asarray(values - values.mean() + value)


def decided(probabilities: Probabilities, threshold: float = 0.5) -> NDArray[np.int64]:
    """Return the most probable label of each example; of two the second above a threshold.

    >>> decided(np.array([[0.6, 0.4], [0.9, 0.1]]), 0.3).tolist()
    [1, 0]
    """
    chances = np.asarray(probabilities)
    if threshold == 0.5:
        return np.asarray(chances.argmax(1))
    return np.asarray(chances[:, 1] > threshold, dtype=np.int64)


def scores(
    probabilities: Probabilities, labels: Labels, threshold: float = 0.5
) -> dict[str, float]:
    """Compute all metrics, by their names in tables; `threshold`: as in `decided`.

    >>> found = scores(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1]))
    >>> {name: round(value, 3) for name, value in found.items()}
    {'accuracy': 1.0, 'macro-F1': 1.0, 'balanced accuracy': 1.0, 'average precision': 1.0,
     'log loss': 0.49}
    """
    nats = log_loss(probabilities, labels)
    predicted, classes = decided(probabilities, threshold), np.shape(probabilities)[1]
    precision = float(np.nanmean(precision_by_class(probabilities, labels)))
    return {
        **label_scores(predicted, labels, classes),
        "average precision": precision,
        "log loss": nats,
    }


def precision_by_class(probabilities: Probabilities, labels: Labels) -> NDArray[np.float64]:
    """Compute the average precision of each class; NaN for one without true examples."""
    chances = np.asarray(probabilities)
    return average_precisions(chances, _indicators(labels, chances.shape[1]))


def _indicators(labels: Labels, classes: int) -> NDArray[np.bool_]:
    return np.asarray(np.asarray(labels)[:, None] == np.arange(classes))


def score_of_cuts(
    metric: str, support: int, count: int
) -> Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]:
    """Return a function that scores cuts of two labels: see `regard.lab.tasks.ranking`.

    ``support`` of the ``count`` examples have the second label. It computes the metric, or macro-F1
    for a metric of probabilities.
    """

    def score(hits: NDArray[np.int64], predicted: NDArray[np.int64]) -> NDArray[np.float64]:
        others, rejected = count - support, count - support - predicted + hits
        if metric == "accuracy":
            return np.asarray((hits + rejected) / count)
        if metric == "balanced-accuracy":
            return np.asarray((hits / max(support, 1) + rejected / max(others, 1)) / 2)
        first = 2 * rejected / np.maximum(others + count - predicted, 1)
        return np.asarray((first + 2 * hits / np.maximum(support + predicted, 1)) / 2)

    return score


def label_scores(predicted: Labels, labels: Labels, classes: int) -> dict[str, float]:
    """Compute the metrics that need no probabilities, by their names in tables.

    Macro-F1 is the mean F1 over the classes that occur in the true or the predicted labels, as
    scikit-learn's ``f1_score(labels, predicted, average="macro", zero_division=0)``. Balanced
    accuracy is the mean recall over the classes that occur in the true labels, as its
    ``balanced_accuracy_score(labels, predicted)``. Brodersen et al. 2010.

    >>> found = label_scores(np.array([0, 1, 1]), np.array([0, 0, 1]), 3)
    >>> {name: round(value, 4) for name, value in found.items()}
    {'accuracy': 0.6667, 'macro-F1': 0.6667, 'balanced accuracy': 0.75}
    """
    each = by_class(predicted, labels, classes)
    return {
        "accuracy": float((predicted == labels).mean()),
        "macro-F1": float(each.f1[each.support + each.predicted > 0].mean()),
        "balanced accuracy": float(each.recall[each.support > 0].mean()),
    }


def trivial(metric: str, trained: Sequence[int], labels: Labels) -> dict[str, float]:
    """Compute a metric (a name in `METRICS`) for guesses that ignore the text.

    "majority class" always predicts the most frequent of the `trained` labels (counts by label);
    for log loss it predicts their relative frequencies. "chance" predicts all C labels equally
    often: 1/C for accuracy and balanced accuracy, ln C for log loss, and for macro-F1 the F1 of the
    expected counts, the mean of 2 p/(C p + 1) over the relative frequencies p of the true labels.
    Any constant has as its average precision the mean of these frequencies.
    These are scikit-learn's ``DummyClassifier`` with the strategies prior and uniform.

    >>> trivial("accuracy", [30, 10], np.array([0, 0, 1]))
    {'majority class': 0.6666666666666666, 'chance': 0.5}
    """
    classes, count = len(trained), len(labels)
    shares = np.bincount(labels, minlength=classes) / count
    if metric == "log-loss":
        prior = np.asarray(trained, dtype=np.float64) / max(sum(trained), 1)
        rows = np.broadcast_to(prior, (count, classes))
        return {"majority class": log_loss(rows, labels), "chance": float(np.log(classes))}
    if metric == "average-precision":
        return dict.fromkeys(("majority class", "chance"), float(shares[shares > 0].mean()))
    majority = label_scores(np.full(count, int(np.argmax(trained))), labels, classes)
    chance = 1 / classes
    if metric == "macro-f1":
        chance = float((2 * shares / (classes * shares + 1)).mean())
    return {"majority class": majority[METRICS[metric]], "chance": chance}


def _margins(
    predicted: Labels, labels: Labels, classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Count correct predictions, true labels and predicted labels of each class."""
    _same_examples(len(predicted), len(labels))
    predicted, labels = np.asarray(predicted), np.asarray(labels)
    hits = np.bincount(labels[predicted == labels], minlength=classes)
    return hits, np.bincount(labels, minlength=classes), np.bincount(predicted, minlength=classes)


def _share(part: NDArray[np.integer], whole: NDArray[np.integer]) -> NDArray[np.float64]:
    """Return part / whole, and 0 where the whole is not above 0."""
    return np.asarray(np.where(whole > 0, part / np.maximum(whole, 1), 0.0))


@dataclass(frozen=True)
class Calibration:
    """Confidence and accuracy in bins of confidence, without empty bins.

    ``error`` is the expected calibration error, Σ |accuracy − confidence| · fraction of examples.
    """

    error: float
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]


def calibration(probabilities: Probabilities, labels: Labels, bins: int = 15) -> Calibration:
    """Compute the calibration in bins of equal width. Guo et al. 2017.

    >>> calibration(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1])).error
    0.3...
    """
    hit = correct(probabilities, labels)
    sure = np.asarray(probabilities, dtype=np.float64).max(1)
    place = np.minimum((sure * bins).astype(np.int64), bins - 1)
    rows = []
    for k in np.unique(place):
        there = place == k
        rows.append((float(sure[there].mean()), float(hit[there].mean()), int(there.sum())))
    error = sum(abs(right - confidence) * count for confidence, right, count in rows) / max(
        len(hit), 1
    )
    confidence, right, counts = zip(*rows, strict=True) if rows else ((), (), ())
    return Calibration(error, confidence, right, counts)


def _same_examples(predictions: int, labels: int) -> None:
    if predictions != labels:
        raise RegardError(f"{predictions} predictions for {labels} labels; give one for each")
