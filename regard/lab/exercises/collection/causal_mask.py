"""Causal attention and the inputs of teacher forcing."""

import math

import torch
from torch import Tensor

from regard.attention import attend, causal
from regard.lab.exercises.part import Part, numbers


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with q·k / √d; row i sees the positions 0 to i.

    q, k: (batch, n, d); v: (batch, n, dv). Returns (batch, n, dv).
    """
    return attend(q, k, v, "scaled-dot", causal()).output


def shift_right(targets: Tensor, begin: int) -> Tensor:
    """Return the decoder's inputs in training: the targets, one later, after `begin`.

    targets: (batch, n), integers. Returns (batch, n).
    """
    return torch.cat([torch.full_like(targets[:, :1], begin), targets[:, :-1]], 1)


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def _seeing(q: Tensor, k: Tensor, v: Tensor, offset: int = 0, up: bool = False) -> Tensor:
    ones = torch.ones(q.shape[1], q.shape[1])
    seen = ones.triu(offset) if up else ones.tril(offset)
    return torch.softmax(_scores(q, k).masked_fill(seen == 0, -1e9), -1) @ v


def _after(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k), -1).tril() @ v


def _zeros(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(_scores(q, k).tril(), -1) @ v


def _columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    seen = torch.ones(q.shape[1], q.shape[1]).tril()
    return torch.softmax(_scores(q, k).masked_fill(seen == 0, -1e9), 1) @ v


def _unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return causal_attention(q * math.sqrt(q.shape[-1]), k, v)


def _cases() -> list[tuple[Tensor, ...]]:
    sizes = ((1, 3, 2, 1), (2, 5, 4, 3), (3, 4, 6, 2))
    return [(numbers(b, n, d), numbers(b, n, d, seed=1), numbers(b, n, dv))
            for b, n, d, dv in sizes]  # fmt: skip


PARTS = [
    Part(
        causal_attention,
        _cases,
        {
            "every row sees all positions: the mask is missing": (
                lambda q, k, v: torch.softmax(_scores(q, k), -1) @ v
            ),
            "the mask is applied after the softmax, so the weights of a row do not sum to 1": (
                _after
            ),
            "hidden scores are 0, which still gets weight: row 0 sees position 1": _zeros,
            "a leak of one position: row 0 sees position 1": (
                lambda q, k, v: _seeing(q, k, v, 1)
            ),
            "row i does not see its own position i": lambda q, k, v: _seeing(q, k, v, -1),
            "the mask is upside down: row 0 sees the future and not the past": (
                lambda q, k, v: _seeing(q, k, v, up=True)
            ),
            "the softmax runs over the queries, not the keys": _columns,
            "the scale 1/√d is missing": _unscaled,
        },
    ),
    Part(
        shift_right,
        lambda: [(torch.tensor([[4, 5, 6]]), 1), (torch.arange(10).view(2, 5), 0),
                 (torch.arange(12).view(4, 3), 7)],
        {
            "the inputs are the targets themselves: each answer is in its own input": (
                lambda targets, begin: targets
            ),
            "the targets are shifted to the left": (
                lambda targets, begin: torch.cat(
                    [targets[:, 1:], torch.full_like(targets[:, :1], begin)], 1
                )
            ),
            "the last target is moved to the front": lambda targets, begin: targets.roll(1, 1),
            "begin replaces the first target; nothing is shifted": (
                lambda targets, begin: torch.cat(
                    [torch.full_like(targets[:, :1], begin), targets[:, 1:]], 1
                )
            ),
            "the last target is kept, so the inputs are one too long": (
                lambda targets, begin: torch.cat(
                    [torch.full_like(targets[:, :1], begin), targets], 1
                )
            ),
        },
    ),
]  # fmt: skip
