"""Average precision, which needs no threshold, and the choice of a threshold."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Bool, Float, Num

Scores = Float[np.ndarray, " texts"]
Truth = Bool[np.ndarray, " texts"]


def average_precisions(
    scores: Float[np.ndarray, "texts labels"], truth: Bool[np.ndarray, "texts labels"]
) -> Float[np.ndarray, " labels"]:
    """Compute the average precision of each label; NaN for a label that no text has.

    1/P Σᵢ Tᵢ/Nᵢ over the P texts i with the label, with Nᵢ texts of a score of at least sᵢ, Tᵢ of
    them with the label. Equal to scikit-learn's ``average_precision_score``.

    >>> s, t = np.array([[0.9], [0.8], [0.1]]), np.array([[True], [False], [True]])
    >>> average_precisions(s, t).round(4)
    array([0.8333])
    """
    values = (
        _values(s, t).mean() if t.any() else np.nan for s, t in zip(scores.T, truth.T, strict=True)
    )
    return np.array(list(values), dtype=np.float64)


def average_precision_values(
    scores: Float[np.ndarray, "texts labels"], truth: Bool[np.ndarray, "texts labels"]
) -> Scores:
    """Return one number for each text, whose mean is the mean of `average_precisions` θ.

    They are the jackknife's pseudo-values n θ − (n − 1) θ₋ⱼ (Miller 1974), shifted to have mean θ.
    Without a text j that has the label, Tᵢ and Nᵢ are smaller by 1 for all i with sᵢ ≤ sⱼ; without
    another text only Nᵢ is. A single text with the label has the whole value. O(n log n).
    """
    pairs = zip(scores.T, truth.T, strict=True)
    return np.asarray(np.mean([_values(s, t) for s, t in pairs if t.any()], axis=0))


def _values(scores: Scores, truth: Truth) -> Scores:
    """Return `average_precision_values` of a single label."""
    count, order = len(scores), np.argsort(-scores, kind="stable")
    s, true = -scores[order], truth[order]
    above = np.searchsorted(s, s, side="right")  # Nᵢ: equal scores count for one another
    first = np.searchsorted(s, s, side="left")  # the first text that j counts for
    hits, positives = np.cumsum(true)[above - 1], true.sum()
    theta = float((true * hits / above).sum() / positives)
    if positives < 2:
        return np.asarray(np.where(truth, count * theta, 0.0))

    def below(terms: Scores) -> Scores:
        """Return the sum of the terms of all texts that each text counts for."""
        sums = np.concatenate([[0.0], np.cumsum(true * terms)])
        return np.asarray(sums[-1] - sums[first])

    fewer = np.maximum(above - 1, 1)
    rest = theta * positives - below(hits / above)
    without_true = (rest + below((hits - 1) / fewer) - (hits - 1) / fewer) / (positives - 1)
    without_false = (rest + below(hits / fewer)) / positives
    values = np.empty(count)
    values[order] = count * theta - (count - 1) * np.where(true, without_true, without_false)
    return np.asarray(values - values.mean() + theta)


def best_threshold(
    probabilities: Scores,
    truth: Truth,
    score: Callable[[Num[np.ndarray, " cuts"], Num[np.ndarray, " cuts"]], np.ndarray],
) -> float:
    """Return the threshold that probabilities must exceed, with the largest score.

    ``score(hits, predicted)`` takes for each possible cut the texts above it, and those of them
    that are true. The threshold is 0.5 where the cut allows it, else halfway between the two
    probabilities around the cut; of equal scores the one nearest to 0.5 is taken.

    >>> p, truth = np.array([0.1, 0.2, 0.3, 0.4]), np.array([False, False, True, True])
    >>> best_threshold(p, truth, lambda hits, predicted: 2 * hits / (predicted + truth.sum()))
    0.25
    """
    order = np.argsort(-probabilities, kind="stable")
    edges = np.concatenate([[1.0], probabilities[order].astype(np.float64), [0.0]])
    cuts = np.flatnonzero(edges[:-1] > edges[1:])  # texts above each cut
    middle = (edges[cuts] + edges[cuts + 1]) / 2
    half = (edges[cuts + 1] <= 0.5) & (edges[cuts] > 0.5)
    thresholds = np.where(half, 0.5, middle)
    hits = np.concatenate([[0], np.cumsum(truth[order])])[cuts]
    values = score(hits, cuts)
    return float(thresholds[np.lexsort((np.abs(thresholds - 0.5), -values))[0]])
