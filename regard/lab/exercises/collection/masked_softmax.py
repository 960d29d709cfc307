"""Softmax over the first words of each text."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def masked_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return softmax over the keys; keys from the length of their text on get weight 0.

    scores: (batch, n, m); lengths: (batch,), integers of 0 to m. Returns (batch, n, m).
    A text of length 0 gets weights 0, not NaN.
    """
    return _masked(scores, _seen(scores, lengths))


def _seen(scores: Tensor, lengths: Tensor, more: int = 0) -> Tensor:
    return torch.arange(scores.shape[-1]) < lengths[:, None, None] + more


def _masked(scores: Tensor, seen: Tensor, dim: int = -1) -> Tensor:
    weights = torch.softmax(scores.masked_fill(~seen, -1e9), dim)
    return weights * seen


def _after(scores: Tensor, lengths: Tensor) -> Tensor:
    return torch.softmax(scores, -1) * _seen(scores, lengths)


def _zeros(scores: Tensor, lengths: Tensor) -> Tensor:
    return torch.softmax(scores * _seen(scores, lengths), -1)


def _zeros_again(scores: Tensor, lengths: Tensor) -> Tensor:
    return _zeros(scores, lengths) * _seen(scores, lengths)


def _inverted(scores: Tensor, lengths: Tensor) -> Tensor:
    return _masked(scores, ~_seen(scores, lengths))


def _axis(scores: Tensor, lengths: Tensor) -> Tensor:
    return _masked(scores, _seen(scores, lengths), 1)


def _batch(scores: Tensor, lengths: Tensor) -> Tensor:
    return _masked(scores, _seen(scores, lengths), 0)


def _rows(scores: Tensor, lengths: Tensor) -> Tensor:
    rows = torch.arange(scores.shape[1])[:, None] < lengths[:, None, None]
    return _masked(scores, rows.expand_as(scores))


def _infinite(scores: Tensor, lengths: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~_seen(scores, lengths), float("-inf")), -1)


def _uniform(scores: Tensor, lengths: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~_seen(scores, lengths), -1e9), -1)


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]])
    return [
        (small, torch.tensor([2])),
        (numbers(3, 2, 4), torch.tensor([4, 1, 3])),
        (numbers(2, 5, 3), torch.tensor([1, 2])),
        (small, torch.tensor([0])),
    ]


PARTS = [
    Part(
        masked_softmax,
        _cases,
        {
            "the mask is applied after the softmax, so the weights do not sum to 1": _after,
            "hidden scores are set to 0, which still gets weight; they need a large negative": (
                _zeros
            ),
            "hidden scores are set to 0 before the softmax, so the rest does not sum to 1": (
                _zeros_again
            ),
            "the mask is inverted: it hides the words that are there": _inverted,
            "the softmax runs over the queries, not the keys": _axis,
            "the softmax runs over the batch, not the keys": _batch,
            "the lengths hide queries, not keys": _rows,
            "off by one: the key at the position of the length is seen": (
                lambda s, n: _masked(s, _seen(s, n, 1))
            ),
            "off by one: the last word of each text is hidden": (
                lambda s, n: _masked(s, _seen(s, n, -1))
            ),
            "the lengths are ignored": lambda s, n: torch.softmax(s, -1),
            "a text of length 0 gets NaN": _infinite,
            "a text of length 0 gets weights for words that are not there": _uniform,
        },
    )
]
