"""Rotary positions: queries and keys turned by their position."""

from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def rotary(x: Tensor, positions: Tensor) -> Tensor:
    """Turn each pair (x₂ⱼ, x₂ⱼ₊₁) by the angle position · 10000^(−2j/d).

    x: (batch, n, d), d even; positions: (n,), integers. Returns (batch, n, d).
    """
    return _turned(x, positions)


def relative_scores(q: Tensor, k: Tensor) -> Tensor:
    """Return the scores of turned queries and keys, at positions 0, 1, …, without a scale.

    q, k: (batch, n, d). Returns (batch, n, n).
    """
    positions = torch.arange(q.shape[1])
    return _turned(q, positions) @ _turned(k, positions).mT


def _turned(x: Tensor, positions: Tensor, sign: float = 1.0, way: str = "") -> Tensor:
    d = x.shape[-1]
    powers = torch.arange(d // 2) * (1 if way == "power" else 2) / d
    angles = (
        sign * positions[:, None] * torch.pow(10000.0, 0 * powers if way == "same" else -powers)
    )
    if way == "halves":
        a, b = x.chunk(2, -1)
    else:
        a, b = x[..., 0::2], x[..., 1::2]
    turned = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    if way == "plus":
        turned = a * angles.cos() + b * angles.sin(), turned[1]
    return (
        torch.cat(turned, -1) if way in ("halves", "joined") else torch.stack(turned, -1).flatten(2)
    )


def _cases() -> list[tuple[Tensor, ...]]:
    return [(torch.tensor([[[1.0, 0.0, 0.0, 1.0]]]), torch.tensor([1])),
            (numbers(2, 3, 6), torch.tensor([0, 1, 2])),
            (numbers(3, 5, 8), torch.tensor([4, 0, 7, 2, 9]))]  # fmt: skip


PARTS = [
    Part(
        rotary,
        _cases,
        {
            "it turns backwards": partial(_turned, sign=-1.0),
            "all pairs turn by the same angle": partial(_turned, way="same"),
            "the exponent is j / d; it must be 2j / d": partial(_turned, way="power"),
            "pairs are taken from two halves; they are neighbours": partial(_turned, way="halves"),
            "the turned pairs are joined as halves; they must alternate again": partial(
                _turned, way="joined"
            ),
            "one sign of the rotation is wrong, so lengths change": partial(_turned, way="plus"),
            "off by one: the positions are counted from 1": lambda x, p: _turned(x, p + 1),
            "the given positions are ignored; 0, 1, 2, … are used": (
                lambda x, p: _turned(x, torch.arange(len(p)))
            ),
            "x is not turned at all": lambda x, p: x,
        },
    ),
    Part(
        relative_scores,
        lambda: [(numbers(1, 2, 2), numbers(1, 2, 2, seed=1)),
                 (numbers(2, 5, 6), numbers(2, 5, 6, seed=1))],
        {
            "only the queries are turned": (
                lambda q, k: _turned(q, torch.arange(q.shape[1])) @ k.mT
            ),
            "only the keys are turned": (lambda q, k: q @ _turned(k, torch.arange(q.shape[1])).mT),
            "queries and keys turn in opposite directions": lambda q, k: (
                _turned(q, torch.arange(q.shape[1])) @ _turned(k, -torch.arange(q.shape[1])).mT
            ),
            "nothing is turned": lambda q, k: q @ k.mT,
        },
    ),
]  # fmt: skip
