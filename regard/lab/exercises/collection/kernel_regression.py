"""Nadaraya–Watson kernel regression with a learned width."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def kernel_regression(x: Tensor, keys: Tensor, values: Tensor, width: Tensor) -> Tensor:
    """Predict y at each x: a mean of the values, weighted by a Gaussian kernel.

    x: (n,); keys, values: (m,); width: (), the learned w. Returns (n,).
    """
    scores = -(((x[:, None] - keys) * width) ** 2) / 2
    return torch.softmax(scores, 1) @ values


TWO = torch.tensor([0.0]), torch.tensor([0.0, 2.0]), torch.tensor([1.0, 3.0])
PARTS = [
    Part(kernel_regression, lambda: [
        (*TWO, torch.tensor(1.0)), (*TWO, torch.tensor(2.0)),
        (numbers(3), numbers(5), numbers(5, seed=1), torch.tensor(0.5)),
    ], {
        "the softmax runs over the queries, not the keys": ("(scores, 1)", "(scores, 0)"),
        "the exponent lacks the factor 1/2": (" / 2", ""),
        "the sign of the exponent is missing, so far points weigh most": ("= -(", "= ("),
        "the width is multiplied after the square, not before": ("* width) ** 2", ") ** 2 * width"),
        "the width is not used": (" * width", ""),
        "the width divides the distance instead of multiplying it": ("* width", "/ width"),
        "the weights are not divided by their sum": ("torch.softmax(scores, 1)", "scores.exp()"),
        "the distance is not squared": (" ** 2", ".abs()"),
    }),
]  # fmt: skip
