"""The Synthesizer of equation a5.2.3 in document 004."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def synthesizer(x: Tensor, A: Tensor, b1: Tensor, B: Tensor, b2: Tensor, V: Tensor) -> Tensor:
    """Return softmax(ReLU(X A + b1) B + b2) (X V), the output of one head.

    x: (batch, n, d); A: (d, e); b1: (e,); B: (e, l); b2: (l,); V: (d, dv). Returns (batch, n, dv).
    A text has n ≤ l words; of the l scores of each word the first n are used.
    """
    n = x.shape[1]
    scores = torch.relu(x @ A + b1) @ B + b2
    return torch.softmax(scores[..., :n], -1) @ (x @ V)


PARTS = [
    Part(synthesizer, lambda: [
        (numbers(b, n, d), numbers(d, e), numbers(e), numbers(e, m), numbers(m), numbers(d, dv))
        for b, n, d, e, m, dv in ((1, 3, 2, 4, 3, 1), (2, 4, 3, 5, 6, 2), (3, 2, 5, 3, 7, 4))
    ], {
        "ReLU is missing": ("torch.relu", ""),
        "the softmax runs over the rows, not the keys": (":n], -1)", ":n], 1)"),
        "the scores are cut after the softmax, so weights do not sum to 1":
            ("[..., :n], -1)", ", -1)[..., :n]"),
        "the last n scores are used, not the first": ("[..., :n]", "[..., -n:]"),
        "the scores are divided by √e; a5.2.3 has no scale": (":n],", ":n] / len(b1) ** 0.5,"),
        "the softmax is missing": ("torch.softmax(scores[..., :n], -1)", "scores[..., :n]"),
        "the values are X, not X V": ("(x @ V)", "x"),
        "b1 is missing": ("x @ A + b1", "x @ A"),
        "b2 is missing": ("@ B + b2", "@ B"),
    }),
]  # fmt: skip
