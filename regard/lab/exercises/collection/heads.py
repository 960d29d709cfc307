"""Split vectors into heads and join them."""

from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split the width into heads: (batch, n, heads * d) -> (batch, heads, n, d)."""
    split: Tensor = x.unflatten(-1, (heads, -1))
    return split.transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Join the heads again: (batch, heads, n, d) -> (batch, n, heads * d)."""
    return x.transpose(1, 2).flatten(2)


def _interleaved(x: Tensor, heads: int) -> Tensor:
    split: Tensor = x.unflatten(-1, (-1, heads))
    return split.permute(0, 3, 1, 2)


PARTS = [
    Part(
        split_heads,
        lambda: [(numbers(1, 2, 4), 2), (numbers(2, 5, 12), 3), (numbers(3, 4, 10), 5)],
        {
            "the numbers are reshaped across words: a head must hold part of each word": (
                lambda x, heads: x.reshape(x.shape[0], heads, x.shape[1], -1)
            ),
            "head and word are not swapped": lambda x, heads: x.unflatten(-1, (heads, -1)),
            "a head takes every h-th number; it must take neighbours": _interleaved,
            "number and size of the heads are swapped": (
                lambda x, heads: x.unflatten(-1, (-1, heads)).transpose(1, 2)
            ),
            "batch and heads are one axis; keep them apart": (
                lambda x, heads: split_heads(x, heads).flatten(0, 1)
            ),
        },
    ),
    Part(
        join_heads,
        lambda: [(numbers(1, 2, 3, 2),), (numbers(2, 3, 5, 4),), (numbers(3, 5, 4, 2),)],
        {
            "the heads are joined without swapping head and word first": (
                lambda x: x.reshape(x.shape[0], x.shape[2], -1)
            ),
            "the heads are averaged, not joined": lambda x: x.mean(1),
            "the numbers of the heads are interleaved": (
                lambda x: x.permute(0, 2, 3, 1).flatten(2)
            ),
        },
    ),
]
