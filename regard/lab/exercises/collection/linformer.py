"""Linformer: keys and values projected to a fixed number."""

import math

import torch
from torch import Tensor

from regard.attention import attend
from regard.lab.exercises.part import Part, numbers


def linformer(q: Tensor, k: Tensor, v: Tensor, E: Tensor, F: Tensor) -> Tensor:
    """Return softmax(Q (E K)ᵀ / √d) (F V); the keys are projected first.

    q: (batch, n, d); k: (batch, m, d); v: (batch, m, dv); E, F: (r, m). Returns (batch, n, dv).
    """
    return attend(q, E @ k, F @ v, "scaled-dot").output


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def _late(q: Tensor, k: Tensor, v: Tensor, E: Tensor, F: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k), -1) @ E.mT @ (F @ v)


def _rank(q: Tensor, k: Tensor, v: Tensor, E: Tensor, F: Tensor) -> Tensor:
    return linformer(q * math.sqrt(q.shape[-1] / E.shape[0]), k, v, E, F)


def _cases() -> list[tuple[Tensor, ...]]:
    sizes = ((1, 2, 3, 2, 1, 2), (2, 4, 6, 5, 3, 2), (3, 2, 7, 4, 2, 5))  # b, n, m, d, dv, r
    return [
        (numbers(b, n, d), numbers(b, m, d, seed=1), numbers(b, m, dv, seed=2), numbers(r, m),
         numbers(r, m, seed=1))
        for b, n, m, d, dv, r in sizes
    ]  # fmt: skip


PARTS = [
    Part(
        linformer,
        _cases,
        {
            "E projects the weights after the softmax; it must project the keys before": _late,
            "keys and values are not projected: that is full attention": (
                lambda q, k, v, E, F: torch.softmax(_scores(q, k), -1) @ v
            ),
            "the values are projected by E, not by F": (
                lambda q, k, v, E, F: linformer(q, k, v, E, E)
            ),
            "the keys are projected by F, not by E": lambda q, k, v, E, F: linformer(q, k, v, F, F),
            "E and F are swapped": lambda q, k, v, E, F: linformer(q, k, v, F, E),
            "the scale 1/√d is missing": (
                lambda q, k, v, E, F: linformer(q * math.sqrt(q.shape[-1]), k, v, E, F)
            ),
            "the scale comes from r, not from the width": _rank,
            "the softmax runs over the queries, not the projected keys": (
                lambda q, k, v, E, F: torch.softmax(_scores(q, E @ k), 1) @ (F @ v)
            ),
            "the softmax is missing": lambda q, k, v, E, F: _scores(q, E @ k) @ (F @ v),
        },
    )
]
