"""Split vectors into heads and join them."""

from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Split the width into heads: (batch, n, heads * d) -> (batch, heads, n, d)."""
    batch, n, _ = x.shape
    return x.reshape(batch, n, heads, -1).transpose(1, 2)


def join_heads(x: Tensor) -> Tensor:
    """Join the heads again: (batch, heads, n, d) -> (batch, n, heads * d)."""
    return x.transpose(1, 2).flatten(2)


PARTS = [
    Part(split_heads, lambda: [
        (numbers(1, 2, 4), 2), (numbers(2, 5, 12), 3), (numbers(3, 4, 10), 5),
    ], {
        "the numbers are reshaped across words: a head must hold part of each word":
            ("n, heads, -1).transpose(1, 2)", "heads, n, -1)"),
        "head and word are not swapped": (".transpose(1, 2)", ""),
        "a head takes every h-th number; it must take neighbours":
            ("heads, -1).transpose(1, 2)", "-1, heads).permute(0, 3, 1, 2)"),
        "number and size of the heads are swapped": ("heads, -1)", "-1, heads)"),
        "batch and heads are one axis; keep them apart": ("(1, 2)", "(1, 2).flatten(0, 1)"),
    }),
    Part(join_heads, lambda: [
        (numbers(1, 2, 3, 2),), (numbers(2, 3, 5, 4),), (numbers(3, 5, 4, 2),),
    ], {
        "the heads are joined without swapping head and word first":
            ("transpose(1, 2).flatten(2)", "reshape(len(x), x.shape[2], -1)"),
        "the heads are averaged, not joined": ("transpose(1, 2).flatten(2)", "mean(1)"),
        "the numbers of the heads are interleaved": ("transpose(1, 2)", "permute(0, 2, 3, 1)"),
    }),
]  # fmt: skip
