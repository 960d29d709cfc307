"""A CLS vector before the words, and a classifier that reads it."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def add_cls(x: Tensor, lengths: Tensor, cls: Tensor) -> tuple[Tensor, Tensor]:
    """Put the learned vector `cls` before the words of each text.

    x: (batch, n, d); lengths: (batch,), words that are there; cls: (d,).
    Returns the longer x, (batch, n + 1, d), and the lengths with CLS counted.
    """
    return torch.cat([cls.expand(len(x), 1, -1), x], 1), lengths + 1


def classify(states: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """Return the scores of the classes from the state of CLS.

    states: (batch, n + 1, d), after the last layer; W: (classes, d); b: (classes,).
    Returns (batch, classes).
    """
    return states[:, 0] @ W.mT + b


def _added(x: Tensor, lengths: Tensor, cls: Tensor) -> tuple[Tensor, Tensor]:
    return cls.expand(len(x), 1, -1), lengths + 1


def _cases() -> list[tuple[Tensor, ...]]:
    small = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([1]), torch.tensor([7.0, 8.0])
    return [small, (numbers(3, 4, 5), torch.tensor([4, 2, 1]), numbers(5)),
            (numbers(2, 6, 3), torch.tensor([5, 6]), numbers(3))]  # fmt: skip


PARTS = [
    Part(
        add_cls,
        _cases,
        {
            "CLS is added at the end; it must come first": lambda x, n, c: (
                torch.cat([x, c.expand(len(x), 1, -1)], 1),
                n + 1,
            ),
            "the lengths do not count CLS, so the last word is hidden": lambda x, n, c: (
                add_cls(x, n, c)[0],
                n,
            ),
            "CLS replaces the first word": lambda x, n, c: (
                torch.cat([c.expand(len(x), 1, -1), x[:, 1:]], 1),
                n,
            ),
            "CLS replaces the first word, and the lengths grow": lambda x, n, c: (
                torch.cat([c.expand(len(x), 1, -1), x[:, 1:]], 1),
                n + 1,
            ),
            "the vector is summed to every word, not put before them": lambda x, n, c: (
                x + c,
                n + 1,
            ),
            "CLS is zeros, not the learned vector": lambda x, n, c: add_cls(x, n, 0 * c),
        },
    ),
    Part(
        classify,
        lambda: [(torch.tensor([[[1.0, 2.0], [3.0, 5.0]]]), torch.eye(2), torch.tensor([0.0, 1.0])),
                 (numbers(3, 5, 4), numbers(2, 4), numbers(2)),
                 (numbers(2, 4, 3), numbers(5, 3), numbers(5))],
        {
            "it reads the last state; CLS is the first": (
                lambda s, W, b: s[:, -1] @ W.mT + b
            ),
            "it reads the mean of all states, not CLS": lambda s, W, b: s.mean(1) @ W.mT + b,
            "the bias is missing": lambda s, W, b: s[:, 0] @ W.mT,
            "it reads the maximum of all states, not CLS": lambda s, W, b: s.amax(1) @ W.mT + b,
            "it returns probabilities; the loss needs scores": (
                lambda s, W, b: torch.softmax(classify(s, W, b), -1)
            ),
            "it reads the first word after CLS": lambda s, W, b: s[:, 1] @ W.mT + b,
        },
    ),
]  # fmt: skip
