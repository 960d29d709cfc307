"""The variance of one head and of two, when keys vary (document 004, question 1)."""

import math

from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def one_head(keys: Tensor, values: Tensor, q: Tensor) -> Tensor:
    """Return the output of attention with the score k·q for each sample of the keys.

    keys: (samples, n, d); values: (n, dv); q: (d,). Returns (samples, dv).
    """
    return (keys @ q).softmax(1) @ values


def two_heads(keys: Tensor, values: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """Return the mean of the outputs of two heads: (samples, dv)."""
    return (one_head(keys, values, q1) + one_head(keys, values, q2)) / 2


def spread(outputs: Tensor) -> Tensor:
    """Return the mean squared distance of the outputs from their mean: (samples, dv) -> ()."""
    return ((outputs - outputs.mean(0)) ** 2).sum(1).mean()


def _cases(queries: int) -> list[tuple[Tensor, ...]]:
    return [
        (numbers(s, n, d), numbers(n, dv), *(3 * numbers(d, seed=i) for i in range(queries)))
        for s, n, d, dv in ((1, 2, 3, 2), (4, 3, 2, 5), (3, 5, 4, 2))
    ]


PARTS = [
    Part(
        one_head,
        lambda: _cases(1),
        {
            "the softmax runs over the samples, not the keys": (
                lambda k, v, q: (k @ q).softmax(0) @ v
            ),
            "the scores are weights without a softmax": lambda k, v, q: (k @ q) @ v,
            "the score is scaled; this question has k·q": (
                lambda k, v, q: one_head(k, v, q / math.sqrt(len(q)))
            ),
            "the keys of all samples are averaged first": (
                lambda k, v, q: one_head(k.mean(0, keepdim=True).expand_as(k), v, q)
            ),
        },
    ),
    Part(
        two_heads,
        lambda: _cases(2),
        {
            "the queries are averaged; it must be the outputs": (
                lambda k, v, a, b: one_head(k, v, (a + b) / 2)
            ),
            "the outputs are summed, not averaged": lambda k, v, a, b: 2 * two_heads(k, v, a, b),
            "the scores of both heads are summed under one softmax": (
                lambda k, v, a, b: one_head(k, v, a + b)
            ),
            "the second query is not used": lambda k, v, a, b: one_head(k, v, a),
            "the first query is not used": lambda k, v, a, b: one_head(k, v, b),
            "the heads are joined, not averaged": (
                lambda k, v, a, b: two_heads(k, v, a, b).repeat(1, 2)
            ),
        },
    ),
    Part(
        spread,
        lambda: [(numbers(2, 1),), (numbers(5, 3),), (numbers(3, 7),)],
        {
            "it divides by the samples less 1": lambda x: x.var(0).sum(),
            "it is the mean over the numbers of an output too; their squares are summed": (
                lambda x: x.var(0, correction=0).mean()
            ),
            "the root is taken: that is a standard deviation": lambda x: spread(x).sqrt(),
            "the mean is not subtracted": lambda x: (x**2).sum(1).mean(),
            "mean and distance are taken within each output, not over the samples": (
                lambda x: ((x - x.mean(1, keepdim=True)) ** 2).sum(1).mean()
            ),
            "the squares are summed over the samples, not averaged": (lambda x: spread(x) * len(x)),
        },
    ),
]
