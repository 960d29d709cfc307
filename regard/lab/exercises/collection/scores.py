"""Four scores: dot, scaled, additive, bilinear."""

import math

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Return q·k of each query with each key: (batch, n, d), (batch, m, d) -> (batch, n, m)."""
    return q @ k.mT


def scaled(q: Tensor, k: Tensor) -> Tensor:
    """Return q·k / √d: (batch, n, d), (batch, m, d) -> (batch, n, m)."""
    return q @ k.mT / math.sqrt(q.shape[-1])


def additive(q: Tensor, k: Tensor, W_q: Tensor, W_k: Tensor, w: Tensor) -> Tensor:
    """Return w·tanh(W_q q + W_k k).

    q: (batch, n, dq); k: (batch, m, dk); W_q: (h, dq); W_k: (h, dk); w: (h,).
    Returns (batch, n, m).
    """
    return torch.tanh(_sums(q, k, W_q, W_k)) @ w


def bilinear(q: Tensor, k: Tensor, W: Tensor) -> Tensor:
    """Return qᵀ W k: (batch, n, dq), (batch, m, dk), (dq, dk) -> (batch, n, m)."""
    return q @ W @ k.mT


def _sums(q: Tensor, k: Tensor, W_q: Tensor, W_k: Tensor) -> Tensor:
    return (q @ W_q.mT)[:, :, None] + (k @ W_k.mT)[:, None]


def _cases(same: bool = True, *weights: tuple[int, ...]) -> list[tuple[Tensor, ...]]:
    """Return cases with queries and keys of the same width or not, and weights."""
    one = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 1.0], [0.0, 1.0]]])
    if same:
        return [one, (numbers(2, 3, 4), numbers(2, 5, 4)), (numbers(3, 4, 9), numbers(3, 2, 9))]
    sizes = ((1, 1, 2, 2, 3), (2, 3, 4, 5, 6), (3, 5, 2, 7, 3))  # batch, n, m, dq, dk
    return [
        (numbers(b, n, dq), numbers(b, m, dk),
         *(numbers(*({0: 4, 1: dq, 2: dk}[i] for i in one)) for one in weights))
        for b, n, m, dq, dk in sizes
    ]  # fmt: skip


PARTS = [
    Part(
        dot,
        _cases,
        {
            "queries and keys are swapped: rows must be queries": lambda q, k: k @ q.mT,
            "the products are divided by √d, which is the scaled score": scaled,
        },
    ),
    Part(
        scaled,
        _cases,
        {
            "the scale 1/√d is missing": dot,
            "it divides by d, not by √d": lambda q, k: dot(q, k) / q.shape[-1],
            "it multiplies by √d instead of dividing": lambda q, k: dot(q, k) * q.shape[-1] ** 0.5,
            "the scale comes from the number of keys, not from the width": (
                lambda q, k: dot(q, k) / k.shape[1] ** 0.5
            ),
        },
    ),
    Part(
        additive,
        lambda: _cases(False, (0, 1), (0, 2), (0,)),
        {
            "tanh is missing": lambda q, k, a, b, w: _sums(q, k, a, b) @ w,
            "tanh comes after the product with w": (
                lambda q, k, a, b, w: torch.tanh(_sums(q, k, a, b) @ w)
            ),
            "tanh is applied to query and key apart, before the sum": (
                lambda q, k, a, b, w: (
                    (torch.tanh(q @ a.mT)[:, :, None] + torch.tanh(k @ b.mT)[:, None]) @ w
                )
            ),
            "the projections are multiplied, not added": (
                lambda q, k, a, b, w: torch.tanh((q @ a.mT)[:, :, None] * (k @ b.mT)[:, None]) @ w
            ),
            "w is missing: the hidden numbers are summed": (
                lambda q, k, a, b, w: torch.tanh(_sums(q, k, a, b)).sum(-1)
            ),
        },
    ),
    Part(
        bilinear,
        lambda: _cases(False, (1, 2)),
        {
            "the products are divided by √d; this score has no scale": (
                lambda q, k, W: bilinear(q, k, W) / q.shape[-1] ** 0.5
            ),
        },
    ),
]
