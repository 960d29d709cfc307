"""Linformer: keys and values projected to a fixed number."""

import math

from torch import Tensor

from regard.lab.exercises.part import Part, numbers


def linformer(q: Tensor, k: Tensor, v: Tensor, E: Tensor, F: Tensor) -> Tensor:
    """Return softmax(Q (E K)ᵀ / √d) (F V); the keys are projected first.

    q: (batch, n, d); k: (batch, m, d); v: (batch, m, dv); E, F: (r, m). Returns (batch, n, dv).
    """
    keys, values = E @ k, F @ v
    scores = q @ keys.mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ values


PARTS = [
    Part(linformer, lambda: [
        (numbers(b, n, d), numbers(b, m, d, seed=1), numbers(b, m, dv, seed=2), numbers(r, m),
         numbers(r, m, seed=1))
        for b, n, m, d, dv, r in ((1, 2, 3, 2, 1, 2), (2, 4, 6, 5, 3, 2), (3, 2, 7, 4, 2, 5))
    ], {
        "E projects the weights after the softmax; it must project the keys before":
            ("E @ k", "k", "softmax(-1)", "softmax(-1) @ E.mT"),
        "keys and values are not projected: that is full attention": ("E @ k, F @ v", "k, v"),
        "the values are projected by E, not by F": ("F @ v", "E @ v"),
        "the keys are projected by F, not by E": ("E @ k", "F @ k"),
        "E and F are swapped": ("E @ k, F @ v", "F @ k, E @ v"),
        "the scale 1/√d is missing": (" / math.sqrt(q.shape[-1])", ""),
        "the scale comes from r, not from the width": ("q.shape[-1]", "E.shape[0]"),
        "the softmax runs over the queries, not the projected keys": ("(-1)", "(1)"),
        "the softmax is missing": (".softmax(-1)", ""),
    }),
]  # fmt: skip
