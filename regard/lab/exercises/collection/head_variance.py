"""The variance of one head and of two, when keys vary (document 004, question 1)."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def one_head(keys: Tensor, values: Tensor, q: Tensor) -> Tensor:
    """Return the output of attention with the score k·q for each sample of the keys.

    keys: (samples, n, d); values: (n, dv); q: (d,). Returns (samples, dv).
    """
    return torch.softmax(keys @ q, 1) @ values


def two_heads(keys: Tensor, values: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """Return the mean of the outputs of two heads: (samples, dv)."""
    a, b = one_head(keys, values, q1), one_head(keys, values, q2)
    return (a + b) / 2


def spread(outputs: Tensor) -> Tensor:
    """Return the mean squared distance of the outputs from their mean: (samples, dv) -> ()."""
    return ((outputs - outputs.mean(0)) ** 2).sum(1).mean()


def _cases(queries: int) -> list[tuple[Tensor, ...]]:
    return [
        (numbers(s, n, d), numbers(n, dv), *(3 * numbers(d, seed=i) for i in range(queries)))
        for s, n, d, dv in ((1, 2, 3, 2), (4, 3, 2, 5), (3, 5, 4, 2))
    ]


PARTS = [
    Part(one_head, lambda: _cases(1), {
        "the softmax runs over the samples, not the keys": ("@ q, 1)", "@ q, 0)"),
        "the scores are weights without a softmax": ("torch.softmax(keys @ q, 1)", "keys @ q"),
        "the score is scaled; this question has k·q": ("@ q,", "@ q / len(q) ** 0.5,"),
        "the keys of all samples are averaged first": ("keys @", "keys.mean(0).expand_as(keys) @"),
    }),
    Part(two_heads, lambda: _cases(2), {
        "the queries are averaged; it must be the outputs":
            ("(a + b) / 2", "one_head(keys, values, (q1 + q2) / 2)"),
        "the outputs are summed, not averaged": (" / 2", ""),
        "the scores of both heads are summed under one softmax":
            ("(a + b) / 2", "one_head(keys, values, q1 + q2)"),
        "the second query is not used": ("values, q2)", "values, q1)"),
        "the first query is not used": ("values, q1)", "values, q2)"),
        "the heads are joined, not averaged": ("(a + b) / 2", "torch.cat([a, b], 1)"),
    }),
    Part(spread, lambda: [(numbers(2, 1),), (numbers(5, 3),), (numbers(3, 7),)], {
        "it divides by the samples less 1": (".mean()", ".sum() / (len(outputs) - 1)"),
        "it is the mean over the numbers of an output too; the squares are summed": (".sum(1)", ""),
        "the root is taken: that is a standard deviation": (".mean()", ".mean().sqrt()"),
        "the mean is not subtracted": (" - outputs.mean(0)", ""),
        "mean and distance are within each output, not over the samples": ("(0)", "(1, True)"),
        "the squares are summed over the samples, not averaged": (".mean()", ".sum()"),
    }),
]  # fmt: skip
