"""k nearest neighbours, beside kernel regression."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def nearest(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """Predict y at each x: the plain mean of the values of the k nearest keys.

    x: (n,); keys, values: (m,). Returns (n,).
    """
    distances = (x[:, None] - keys).abs()
    near = distances.topk(k, largest=False)
    return values[near.indices].mean(1)


KEYS, VALUES = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([9.0, 1.0, 5.0])
PARTS = [
    Part(nearest, lambda: [
        (torch.tensor([0.2]), KEYS, VALUES, 2), (torch.tensor([2.9]), KEYS, VALUES, 1),
        *((numbers(4), numbers(7), numbers(7, seed=1), k) for k in (3, 7)),
    ], {
        "it takes the farthest keys": ("False", "True"),
        "differences are taken with their sign: a key far on one side is nearest": (".abs()", ""),
        "the values are summed, not averaged": (".mean(", ".sum("),
        "it averages the keys, not the values": ("values[", "keys["),
        "the neighbours are weighted; k-NN takes their plain mean":
            (".mean(1)", ".mul((near.values**2 / -2).softmax(1)).sum(1)"),
        "it takes one neighbour too many": ("topk(k", "topk(k + 1"),
        "it takes one neighbour too few": ("topk(k", "topk(k - 1"),
        "k is ignored: only the nearest key counts": ("topk(k", "topk(1"),
        "k is ignored: all keys count": ("topk(k", "topk(len(keys)"),
    }),
]  # fmt: skip
