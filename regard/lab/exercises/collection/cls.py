"""A CLS vector before the words, and a classifier that reads it."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def add_cls(x: Tensor, lengths: Tensor, cls: Tensor) -> tuple[Tensor, Tensor]:
    """Put the learned vector `cls` before the words of each text.

    x: (batch, n, d); lengths: (batch,), words that are there; cls: (d,).
    Returns the longer x, (batch, n + 1, d), and the lengths with CLS counted.
    """
    first = cls.expand(len(x), 1, -1)
    return torch.cat([first, x], 1), lengths + 1


def classify(states: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """Return the scores of the classes from the state of CLS.

    states: (batch, n + 1, d), after the last layer; W: (classes, d); b: (classes,).
    Returns (batch, classes).
    """
    return states[:, 0] @ W.mT + b


PARTS = [
    Part(add_cls, lambda: [
        (torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([1]), torch.tensor([7.0, 8.0])),
        (numbers(3, 4, 5), torch.tensor([4, 2, 1]), numbers(5)),
        (numbers(2, 6, 3), torch.tensor([5, 6]), numbers(3)),
    ], {
        "CLS is added at the end; it must come first": ("[first, x]", "[x, first]"),
        "the lengths do not count CLS, so the last word is hidden": ("lengths + 1", "lengths"),
        "CLS replaces the first word": ("x], 1), lengths + 1", "x[:, 1:]], 1), lengths"),
        "CLS replaces the first word, and the lengths grow": ("x], 1)", "x[:, 1:]], 1)"),
        "CLS is summed to every word, not put before them": ("torch.cat([first, x], 1)", "x + cls"),
        "CLS is zeros, not the learned vector": ("cls.expand", "torch.zeros_like(cls).expand"),
    }),
    Part(classify, lambda: [
        (torch.tensor([[[1.0, 2.0], [3.0, 5.0]]]), torch.eye(2), torch.tensor([0.0, 1.0])),
        (numbers(3, 5, 4), numbers(2, 4), numbers(2)),
        (numbers(2, 4, 3), numbers(5, 3), numbers(5)),
    ], {
        "it reads the last state; CLS is the first": ("[:, 0]", "[:, -1]"),
        "it reads the mean of all states, not CLS": ("[:, 0]", ".mean(1)"),
        "the bias is missing": (" + b", ""),
        "it reads the maximum of all states, not CLS": ("[:, 0]", ".amax(1)"),
        "it returns probabilities; the loss needs scores":
            ("states[:, 0] @ W.mT + b", "(states[:, 0] @ W.mT + b).softmax(-1)"),
        "it reads the first word after CLS": ("[:, 0]", "[:, 1]"),
    }),
]  # fmt: skip
