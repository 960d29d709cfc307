"""Nadaraya–Watson kernel regression with a learned width."""

from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def kernel_regression(x: Tensor, keys: Tensor, values: Tensor, width: Tensor) -> Tensor:
    """Predict y at each x: a mean of the values, weighted by a Gaussian kernel.

    x: (n,); keys, values: (m,); width: (), the learned w. Returns (n,).
    """
    return _with(x, keys, values, width)


def _with(
    x: Tensor, keys: Tensor, values: Tensor, width: Tensor, half: float = 0.5, dim: int = 1
) -> Tensor:
    distances = (x[:, None] - keys[None]) * width
    return torch.softmax(-half * distances**2, dim) @ values


def _unsquared(x: Tensor, keys: Tensor, values: Tensor, width: Tensor) -> Tensor:
    return torch.softmax(-width * (x[:, None] - keys) ** 2 / 2, 1) @ values


def _sums(x: Tensor, keys: Tensor, values: Tensor, width: Tensor) -> Tensor:
    return torch.exp(-(((x[:, None] - keys) * width) ** 2) / 2) @ values


def _absolute(x: Tensor, keys: Tensor, values: Tensor, width: Tensor) -> Tensor:
    return torch.softmax(-((x[:, None] - keys) * width).abs() / 2, 1) @ values


def _cases() -> list[tuple[Tensor, ...]]:
    two = (torch.tensor([0.0]), torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0]))
    some = (numbers(3), numbers(5), numbers(5, seed=1))
    return [(*two, torch.tensor(1.0)), (*two, torch.tensor(2.0)), (*some, torch.tensor(0.5))]


PARTS = [
    Part(
        kernel_regression,
        _cases,
        {
            "the softmax runs over the queries, not the keys": partial(_with, dim=0),
            "the exponent lacks the factor 1/2": partial(_with, half=1.0),
            "the sign of the exponent is missing, so far points weigh most": partial(
                _with, half=-0.5
            ),
            "the width is multiplied after the square, not before": _unsquared,
            "the width is not used": lambda x, k, v, w: _with(x, k, v, torch.ones(())),
            "the width divides the distance instead of multiplying it": (
                lambda x, k, v, w: _with(x, k, v, 1 / w)
            ),
            "the weights are not divided by their sum": _sums,
            "the distance is not squared": _absolute,
        },
    )
]
