"""The context vector of document 001."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def context_vector(encoder_out: Tensor, hidden_state: Tensor, W: Tensor) -> Tensor:
    """Return the mean of the encoder's states, weighted by softmax of (W hₜ)·s over the words.

    encoder_out: (batch, length, hidden); hidden_state: (1, batch, hidden); W: (hidden, hidden).
    Returns (batch, 1, hidden).
    """
    scores = encoder_out @ W.mT @ hidden_state.permute(1, 2, 0)
    weights = torch.softmax(scores, 1)
    return (weights * encoder_out).sum(1, keepdim=True)


PARTS = [
    Part(context_vector, lambda: [
        (torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]]), torch.tensor([[[1.0, 2.0]]]),
         torch.tensor([[1.0, 2.0], [0.0, 1.0]])),
        (numbers(3, 5, 4), numbers(1, 3, 4), numbers(4, 4)),
        (numbers(2, 7, 3), numbers(1, 2, 3), numbers(3, 3)),
    ], {
        "the softmax runs over the last axis, which has one number: every weight is 1":
            ("(scores, 1)", "(scores, 2)"),
        "the softmax runs over the batch, not the words": ("(scores, 1)", "(scores, 0)"),
        "the scores are weights without a softmax": ("torch.softmax(scores, 1)", "scores"),
        "W multiplies the states from the wrong side": ("W.mT", "W"),
        "W is not used": (" @ W.mT", ""),
        "the values are W h, not the states h": ("* encoder_out", "* (encoder_out @ W.mT)"),
        "the sum over the words is a plain mean": ("(scores, 1)", "(0 * scores, 1)"),
        "the last state is returned, without attention":
            ("(weights * encoder_out).sum(1, keepdim=True)", "encoder_out[:, -1:]"),
        "the weighted sum is divided by the length": (".sum(", ".mean("),
    }),
]  # fmt: skip
