"""The context vector of document 001."""

from functools import partial

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def context_vector(encoder_out: Tensor, hidden_state: Tensor, W: Tensor) -> Tensor:
    """Return the mean of the encoder's states, weighted by softmax of (W hₜ)·s over the words.

    encoder_out: (batch, length, hidden); hidden_state: (1, batch, hidden); W: (hidden, hidden).
    Returns (batch, 1, hidden).
    """
    return _context(encoder_out, hidden_state, W)


def _context(h: Tensor, s: Tensor, W: Tensor, dim: int = 1, scale: float = 1.0) -> Tensor:
    scores = (h @ W.mT) @ s.permute(1, 2, 0) * scale
    return (torch.softmax(scores, dim) * h).sum(1, keepdim=True)


def _projected(h: Tensor, s: Tensor, W: Tensor) -> Tensor:
    projected = h @ W.mT
    weights = torch.softmax(projected @ s.permute(1, 2, 0), 1)
    return (weights * projected).sum(1, keepdim=True)


def _plain(h: Tensor, s: Tensor, W: Tensor) -> Tensor:
    return ((h @ W.mT) @ s.permute(1, 2, 0) * h).sum(1, keepdim=True)


def _last(h: Tensor, s: Tensor, W: Tensor) -> Tensor:
    return h[:, -1:]


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]), torch.tensor([[[1.0, 2.0]]])
    return [(*small, torch.tensor([[1.0, 2.0], [0.0, 1.0]])),
            (numbers(3, 5, 4), numbers(1, 3, 4), numbers(4, 4)),
            (numbers(2, 7, 3), numbers(1, 2, 3), numbers(3, 3))]  # fmt: skip


PARTS = [
    Part(
        context_vector,
        _cases,
        {
            "the softmax runs over the last axis, which has one number: every weight is 1": partial(
                _context, dim=2
            ),
            "the softmax runs over the batch, not the words": partial(_context, dim=0),
            "the scores are weights without a softmax": _plain,
            "W multiplies the states from the wrong side": (lambda h, s, W: _context(h, s, W.mT)),
            "W is not used": lambda h, s, W: _context(h, s, torch.eye(len(W))),
            "the values are W h; they must be the states h": _projected,
            "the sum over the words is a plain mean": (
                lambda h, s, W: _context(h, s, W, scale=0.0)
            ),
            "the last state is returned, without attention": _last,
            "the weighted sum is divided by the length": (
                lambda h, s, W: _context(h, s, W) / h.shape[1]
            ),
        },
    )
]
