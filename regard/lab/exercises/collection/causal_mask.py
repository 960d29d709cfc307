"""Causal attention and the inputs of teacher forcing."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend with q·k / √d; row i sees the positions 0 to i.

    q, k: (batch, n, d); v: (batch, n, dv). Returns (batch, n, dv).
    """
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = torch.ones(q.shape[1], q.shape[1]).tril()
    return torch.softmax(scores.masked_fill(seen == 0, -1e9), -1) @ v


def shift_right(targets: Tensor, begin: int) -> Tensor:
    """Return the decoder's inputs in training: the targets, one later, after `begin`.

    targets: (batch, n), integers. Returns (batch, n).
    """
    first = torch.full_like(targets[:, :1], begin)
    return torch.cat([first, targets[:, :-1]], 1)


PARTS = [
    Part(causal_attention, lambda: [
        (numbers(b, n, d), numbers(b, n, d, seed=1), numbers(b, n, dv))
        for b, n, d, dv in ((1, 3, 2, 1), (2, 5, 4, 3), (3, 4, 6, 2))
    ], {
        "every row sees all positions: the mask is missing": (".masked_fill(seen == 0, -1e9)", ""),
        "the mask is applied after the softmax, so the weights of a row do not sum to 1":
            (".masked_fill(seen == 0, -1e9), -1)", ", -1) * seen"),
        "hidden scores are 0, which still gets weight: row 0 sees position 1": ("-1e9", "0.0"),
        "a leak of one position: row 0 sees position 1": ("tril()", "tril(1)"),
        "row i does not see its own position i": ("tril()", "tril(-1)"),
        "the mask is upside down: row 0 sees the future and not the past": ("tril", "triu"),
        "the softmax runs over the queries, not the keys": ("-1e9), -1)", "-1e9), 1)"),
        "the scale 1/√d is missing": (" / q.shape[-1] ** 0.5", ""),
    }),
    Part(shift_right, lambda: [
        (torch.tensor([[4, 5, 6]]), 1), (torch.arange(10).view(2, 5), 0),
        (torch.arange(12).view(4, 3), 7),
    ], {
        "the inputs are the targets themselves: each answer is in its own input":
            ("torch.cat([first, targets[:, :-1]], 1)", "targets"),
        "the targets are shifted to the left": ("first, targets[:, :-1]", "targets[:, 1:], first"),
        "the last target is moved to the front":
            ("torch.full_like(targets[:, :1], begin)", "targets[:, -1:]"),
        "begin replaces the first target; nothing is shifted": ("[:, :-1]", "[:, 1:]"),
        "the last target is kept, so the inputs are one too long": ("targets[:, :-1]", "targets"),
    }),
]  # fmt: skip
