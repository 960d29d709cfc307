"""The expected best score of a search over settings, by number of trials."""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Best(NamedTuple):
    """The best validation score after some trials: its expectation and standard deviation."""

    mean: float
    deviation: float


def expected_best(first: float, draws: Sequence[float]) -> list[Best]:
    """Return the expected best score of `first` and k − 1 random draws, for k = 1 … n + 1.

    `first` is the score of the default settings, with which every search begins; v₍₁₎ ≤ … ≤ v₍ₙ₎
    are the scores of the independent `draws`, each raised to at least `first`. Then

        E[best of k] = Σᵢ v₍ᵢ₎ [(i/n)ᵏ⁻¹ − ((i−1)/n)ᵏ⁻¹],

    since (i/n)ᵏ⁻¹ is the probability that k − 1 draws with replacement are all at most v₍ᵢ₎.
    Without a first score this is the formula of Dodge et al. 2019, "Show Your Work", section 3. As
    it draws with replacement, the last value lies below the best score found.

    >>> [round(best.mean, 3) for best in expected_best(0.3, [0.2, 0.4])]
    [0.3, 0.35, 0.375]
    """
    raised = sorted(max(first, score) for score in draws)
    n = len(raised)
    curve = [Best(first, 0.0)]
    for drawn in range(1, n + 1):
        shares = [((i + 1) / n) ** drawn - (i / n) ** drawn for i in range(n)]
        mean = sum(share * score for share, score in zip(shares, raised, strict=True))
        spread = sum(share * (v - mean) ** 2 for share, v in zip(shares, raised, strict=True))
        curve.append(Best(mean, math.sqrt(spread)))
    return curve


def best_so_far(scores: Sequence[float]) -> list[Best]:
    """Return the best score after each trial, in order.

    >>> [best.mean for best in best_so_far([0.3, 0.2, 0.4])]
    [0.3, 0.3, 0.4]
    """
    return [Best(max(scores[: k + 1]), 0.0) for k in range(len(scores))]
