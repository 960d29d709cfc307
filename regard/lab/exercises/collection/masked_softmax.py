"""Softmax over the first words of each text."""

import torch
from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def masked_softmax(scores: Tensor, lengths: Tensor) -> Tensor:
    """Return softmax over the keys; keys from the length of their text on get weight 0.

    scores: (batch, n, m); lengths: (batch,), integers of 0 to m. Returns (batch, n, m).
    A text of length 0 gets weights 0, not NaN.
    """
    seen = torch.arange(scores.shape[-1]) < lengths[:, None, None]
    hidden = scores.masked_fill(~seen, -1e9)
    return torch.softmax(hidden, -1) * seen


SMALL = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]])
PARTS = [
    Part(masked_softmax, lambda: [
        (SMALL, torch.tensor([2])), (numbers(3, 2, 4), torch.tensor([4, 1, 3])),
        (numbers(2, 5, 3), torch.tensor([1, 2])), (SMALL, torch.tensor([0])),
    ], {
        "the mask is applied after the softmax, so weights do not sum to 1": ("hidden,", "scores,"),
        "hidden scores are set to 0, which still gets weight; they need a large negative":
            ("hidden, -1) * seen", "scores * seen, -1)"),
        "hidden scores are set to 0 before softmax, so the rest does not sum to 1": ("-1e9", "0"),
        "the mask is inverted: it hides the words that are there": ("<", ">="),
        "the softmax runs over the queries, not the keys": ("hidden, -1", "hidden, 1"),
        "the softmax runs over the batch, not the keys": ("hidden, -1", "hidden, 0"),
        "the lengths hide queries, not keys": ("shape[-1])", "shape[1])[:, None]"),
        "off by one: the key at the position of the length is seen": ("<", "<="),
        "off by one: the last word of each text is hidden": ("<", "+ 1 <"),
        "the lengths are ignored": ("hidden, -1) * seen", "scores, -1)"),
        "a text of length 0 gets NaN": ("-1e9", "-torch.inf"),
        "a text of length 0 gets weights for words that are not there": (" * seen", ""),
    }),
]  # fmt: skip
