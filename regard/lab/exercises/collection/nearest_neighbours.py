"""k nearest neighbours, beside kernel regression."""

from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def nearest(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    """Predict y at each x: the plain mean of the values of the k nearest keys.

    x: (n,); keys, values: (m,). Returns (n,).
    """
    return _nearest(x, keys, values, k)


def _nearest(x: Tensor, keys: Tensor, values: Tensor, k: int, far: bool = False) -> Tensor:
    distances = (x[:, None] - keys).abs()
    return values[distances.topk(k, largest=far).indices].mean(1)


def _signed(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    return values[(x[:, None] - keys).topk(k, largest=False).indices].mean(1)


def _sum(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    return _nearest(x, keys, values, k) * k


def _keys(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    return _nearest(x, keys, keys, k)


def _weighted(x: Tensor, keys: Tensor, values: Tensor, k: int) -> Tensor:
    nearest = (x[:, None] - keys).abs().topk(k, largest=False)
    return (torch.softmax(-(nearest.values**2) / 2, 1) * values[nearest.indices]).sum(1)


def _cases() -> list[tuple[object, ...]]:
    keys, values = torch.tensor([3.0, 0.0, 1.0]), torch.tensor([9.0, 1.0, 5.0])
    some = (numbers(4), numbers(7), numbers(7, seed=1))
    return [(torch.tensor([0.2]), keys, values, 2), (torch.tensor([2.9]), keys, values, 1),
            (*some, 3), (*some, 7)]  # fmt: skip


PARTS = [
    Part(
        nearest,
        _cases,
        {
            "it takes the farthest keys": partial(_nearest, far=True),
            "differences are compared with their sign, so a key far on one side is nearest": (
                _signed
            ),
            "the values are summed, not averaged": _sum,
            "it averages the keys, not the values": _keys,
            "the neighbours are weighted; k-NN takes their plain mean": _weighted,
            "it takes one neighbour too many": lambda x, ks, v, k: _nearest(x, ks, v, k + 1),
            "it takes one neighbour too few": lambda x, ks, v, k: _nearest(x, ks, v, k - 1),
            "k is ignored: only the nearest key counts": lambda x, ks, v, k: _nearest(x, ks, v, 1),
            "k is ignored: all keys count": lambda x, ks, v, k: _nearest(x, ks, v, len(ks)),
        },
    )
]
