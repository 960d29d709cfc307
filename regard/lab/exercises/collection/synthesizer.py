"""The Synthesizer of equation a5.2.3 in document 004."""

import math
from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def synthesizer(x: Tensor, A: Tensor, b1: Tensor, B: Tensor, b2: Tensor, V: Tensor) -> Tensor:
    """Return softmax(ReLU(X A + b1) B + b2) (X V), the output of one head.

    x: (batch, n, d); A: (d, e); b1: (e,); B: (e, l); b2: (l,); V: (d, dv). Returns (batch, n, dv).
    A text has n ≤ l words; of the l scores of each word the first n are used.
    """
    return _head(x, A, b1, B, b2, V)


def _head(
    x: Tensor, A: Tensor, b1: Tensor, B: Tensor, b2: Tensor, V: Tensor, way: str = ""
) -> Tensor:
    n, hidden = x.shape[1], x @ A + b1
    scores = (hidden if way == "linear" else torch.relu(hidden)) @ B + b2
    if way == "after":
        return torch.softmax(scores, -1)[..., :n] @ (x @ V)
    if way == "last":
        scores = scores[..., -n:]
    scores = scores[..., :n]
    if way == "scaled":
        scores = scores / math.sqrt(A.shape[1])
    weights = scores if way == "raw" else torch.softmax(scores, 1 if way == "rows" else -1)
    return weights @ x if way == "values" else weights @ (x @ V)


def _case(batch: int, n: int, d: int, e: int, block: int, dv: int) -> tuple[Tensor, ...]:
    return (numbers(batch, n, d), numbers(d, e), numbers(e), numbers(e, block),
            numbers(block), numbers(d, dv))  # fmt: skip


PARTS = [
    Part(
        synthesizer,
        lambda: [_case(1, 3, 2, 4, 3, 1), _case(2, 4, 3, 5, 6, 2), _case(3, 2, 5, 3, 7, 4)],
        {
            "ReLU is missing": partial(_head, way="linear"),
            "the softmax runs over the rows, not the keys": partial(_head, way="rows"),
            "the scores are cut after the softmax, so weights do not sum to 1": (
                partial(_head, way="after")
            ),
            "the last n scores are used, not the first": partial(_head, way="last"),
            "the scores are divided by √e; a5.2.3 has no scale": (partial(_head, way="scaled")),
            "the softmax is missing": partial(_head, way="raw"),
            "the values are X, not X V": partial(_head, way="values"),
            "b1 is missing": lambda x, A, b1, B, b2, V: _head(x, A, 0 * b1, B, b2, V),
            "b2 is missing": lambda x, A, b1, B, b2, V: _head(x, A, b1, B, 0 * b2, V),
        },
    )
]
