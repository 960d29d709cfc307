"""What predictions are worth: accuracy with its interval, log loss, calibration, confusion.

Probabilities are (examples, labels) with rows that sum to 1; labels are numbers from 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError

Probabilities = NDArray[np.floating]
Labels = NDArray[np.integer]


def correct(probabilities: Probabilities, labels: Labels) -> NDArray[np.bool_]:
    """For each example, whether the most probable label is the true one.

    >>> correct(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0])).tolist()
    [True, False]
    """
    _same_examples(len(probabilities), len(labels))
    return np.asarray(np.asarray(probabilities).argmax(1) == labels)


def accuracy(probabilities: Probabilities, labels: Labels) -> float:
    """The fraction of examples whose most probable label is the true one."""
    return float(correct(probabilities, labels).mean())


def wilson(hits: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """Interval of a proportion from ``hits`` of ``trials``. Wilson 1927.

    (p + z²/2n ± z √(p(1−p)/n + z²/4n²)) / (1 + z²/n); it says what other examples would give,
    not what another seed would. Of no trials nothing is known: (0, 1).

    >>> low, high = wilson(8, 10)
    >>> f"{low:.3f} {high:.3f}"
    '0.490 0.943'
    """
    if not trials:
        return 0.0, 1.0
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, share = hits / trials, z * z / trials
    middle = p + share / 2
    half = z * (p * (1 - p) / trials + share / (4 * trials)) ** 0.5
    return max(0.0, (middle - half) / (1 + share)), min(1.0, (middle + half) / (1 + share))


def log_loss(probabilities: Probabilities, labels: Labels) -> float:
    """Mean of −ln p(true label), in nats; a probability counts as at least 1e-12.

    >>> round(log_loss(np.array([[0.5, 0.5], [0.25, 0.75]]), np.array([0, 1])), 4)
    0.4904
    """
    _same_examples(len(probabilities), len(labels))
    chosen = np.asarray(probabilities, dtype=np.float64)[np.arange(len(labels)), labels]
    return float(-np.log(np.maximum(chosen, 1e-12)).mean())


def confusion(predicted: Labels, labels: Labels, classes: int) -> NDArray[np.int64]:
    """counts[true, predicted].

    >>> confusion(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    _same_examples(len(predicted), len(labels))
    cells = np.asarray(labels) * classes + np.asarray(predicted)
    return np.bincount(cells, minlength=classes * classes).reshape(classes, classes)


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy in bins of confidence; empty bins are left out.

    ``error`` is the expected calibration error, Σ |accuracy − confidence| · share of examples.
    """

    error: float
    confidence: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: tuple[int, ...]


def calibration(probabilities: Probabilities, labels: Labels, bins: int = 15) -> Calibration:
    """How far stated confidence is from accuracy, in bins of equal width. Guo et al. 2017.

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
    error = sum(abs(right - said) * count for said, right, count in rows) / max(len(hit), 1)
    said, right, counts = zip(*rows, strict=True) if rows else ((), (), ())
    return Calibration(error, said, right, counts)


def most_confident_mistakes(
    probabilities: Probabilities, labels: Labels, count: int = 10
) -> Sequence[int]:
    """Indexes of wrong examples, the surest first.

    >>> most_confident_mistakes(np.array([[0.6, 0.4], [0.9, 0.1], [1, 0]]), np.array([1, 1, 0]))
    [1, 0]
    """
    wrong = np.flatnonzero(~correct(probabilities, labels))
    surest = np.argsort(-np.asarray(probabilities)[wrong].max(1), kind="stable")
    return [int(index) for index in wrong[surest[:count]]]


def _same_examples(predictions: int, labels: int) -> None:
    if predictions != labels:
        raise RegardError(f"{predictions} predictions cannot be judged by {labels} labels")
