"""Rotary positions: queries and keys turned by their position."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Turn each pair (x₂ⱼ, x₂ⱼ₊₁) by the angle position · 10000^(−2j/d).

    x: (batch, n, d), d even; positions: (n,), integers. Returns (batch, n, d).
    """
    d = x.shape[-1]
    angles = positions[:, None] / 10000 ** (torch.arange(0, d, 2) / d)
    a, b = x[..., 0::2], x[..., 1::2]
    first = a * angles.cos() - b * angles.sin()
    second = a * angles.sin() + b * angles.cos()
    return torch.stack([first, second], 3).flatten(2)


def relative_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the scores of turned queries and keys, at positions 0, 1, …, without a scale.

    q, k: (batch, n, d). Returns (batch, n, n).
    """
    positions = torch.arange(q.shape[1])
    return rotary(q, positions) @ rotary(k, positions).mT


PARTS = [
    Part(rotary, lambda: [
        (torch.tensor([[[1.0, 0.0, 0.0, 1.0]]]), torch.tensor([1])),
        (numbers(2, 3, 6), torch.tensor([0, 1, 2])),
        (numbers(3, 5, 8), torch.tensor([4, 0, 7, 2, 9])),
    ], {
        "it turns backwards": ("= positions", "= -positions"),
        "all pairs turn by the same angle": ("10000 **", "1 **"),
        "the exponent is j / d; it must be 2j / d": ("(0, d, 2)", "(d // 2)"),
        "pairs are taken from two halves; they are neighbours":
            ("x[..., 0::2], x[..., 1::2]", "x.chunk(2, -1)", "3).flat", "2).flat"),
        "the turned pairs are joined as halves; they must alternate again": ("3).flat", "2).flat"),
        "one sign of the rotation is wrong, so lengths change": ("cos() - b", "cos() + b"),
        "off by one: the positions are counted from 1": ("= positions", "= (1 + positions)"),
        "positions are ignored; 0, 1, 2, … are used": ("= positions", "= torch.arange(x.size(1))"),
        "x is not turned at all": ("torch.stack([first, second], 3).flatten(2)", "x"),
    }),
    Part(relative_scores, lambda: [
        (numbers(b, n, d), numbers(b, n, d, seed=1)) for b, n, d in ((1, 2, 2), (2, 5, 6))
    ], {
        "only the queries are turned": ("rotary(k, positions)", "k"),
        "only the keys are turned": ("rotary(q, positions)", "q"),
        "queries and keys turn in opposite directions": ("(k, positions)", "(k, -positions)"),
        "nothing is turned": ("rotary(q, positions) @ rotary(k, positions)", "q @ k"),
    }),
]  # fmt: skip
