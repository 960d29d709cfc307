"""Four scores: dot, scaled, additive, bilinear."""

import math

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers

SIZES = ((1, 1, 2, 2, 3), (2, 3, 4, 5, 6), (3, 5, 2, 7, 3))  # batch, n, m, dq, dk


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
    queries, keys = q @ W_q.mT, k @ W_k.mT
    hidden = queries[:, :, None] + keys[:, None]
    return torch.tanh(hidden) @ w


def bilinear(q: Tensor, k: Tensor, W: Tensor) -> Tensor:
    """Return qᵀ W k: (batch, n, dq), (batch, m, dk), (dq, dk) -> (batch, n, m)."""
    return q @ W @ k.mT


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 2.0]]]), torch.tensor([[[3.0, 1.0], [0.0, 1.0]]])
    return [small, (numbers(2, 3, 4), numbers(2, 5, 4)), (numbers(3, 4, 9), numbers(3, 2, 9))]


PARTS = [
    Part(dot, _cases, {
        "queries and keys are swapped: rows must be queries": ("q @ k.mT", "k @ q.mT"),
        "it divides by √d, which is the scaled score": ("k.mT", "k.mT / q.shape[-1] ** 0.5"),
    }),
    Part(scaled, _cases, {
        "the scale 1/√d is missing": (" / math.sqrt(q.shape[-1])", ""),
        "it divides by d, not by √d": ("math.sqrt", ""),
        "it multiplies by √d instead of dividing": ("/ math", "* math"),
        "the scale comes from the number of keys, not the width": ("q.shape[-1]", "k.shape[1]"),
    }),
    Part(additive, lambda: [
        (numbers(b, n, dq), numbers(b, m, dk), numbers(4, dq), numbers(4, dk), numbers(4))
        for b, n, m, dq, dk in SIZES
    ], {
        "tanh is missing": ("torch.tanh", ""),
        "tanh comes after the product with w": ("(hidden) @ w", "(hidden @ w)"),
        "tanh is applied to query and key apart, before the sum":
            ("queries[", "queries.tanh()[", "keys[", "keys.tanh()[", "torch.tanh", ""),
        "the projections are multiplied, not added": ("] + keys", "] * keys"),
        "w is missing: the hidden numbers are summed": (" @ w", ".sum(-1)"),
    }),
    Part(bilinear, lambda: [
        (numbers(b, n, dq), numbers(b, m, dk), numbers(dq, dk)) for b, n, m, dq, dk in SIZES
    ], {
        "it divides by √d; this score has no scale": ("k.mT", "k.mT / q.shape[-1] ** 0.5"),
    }),
]  # fmt: skip
