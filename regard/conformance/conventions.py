"""The forms of masks in other packages, and their conventions."""

import math
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from regard.attention import Mask, dense
from regard.conformance.adapters import (
    HEADS,
    WIDTH,
)
from regard.conformance.law import LONG
from regard.core.errors import RegardError

SIZES: Final = {
    "width": WIDTH, "heads": HEADS, "head_width": WIDTH // HEADS, "feedforward": 16, "layers": 2,
    "length": 2 * max(LONG), "vocabulary": 20, "dropout": 0.0,
}  # fmt: skip
KEYS, PAIRS, BOTH = "keys", "pairs", "pairs of each text"
MAY_LOOK, HIDDEN, ADDITIVE, ONES, LENGTHS = "may look", "hidden", "additive", "ones", "lengths"
REGARD: Final = "a Mask of regard"


@dataclass(frozen=True)
class Form:
    """The form of a mask: its meaning, and its shape in letters, as "b 1 1 m".

    b: texts, h: heads, n: queries, m: keys; "bh n m" joins texts and heads. ``lowest``: additive
    masks hide by the lowest number, not by −∞.
    """

    meaning: str
    shape: str
    lowest: bool = False

    @property
    def what(self) -> str:
        """Return what it can hide: keys of each text, pairs of all texts, or pairs of each text."""
        return KEYS if "n" not in self.shape else PAIRS if "b" not in self.shape else BOTH

    def __str__(self) -> str:
        return f"{self.meaning} ({self.shape.replace(' ', ', ')})"

    def write(self, allowed: Tensor, heads: int, dtype: torch.dtype) -> Tensor | Mask:
        """Return the mask of allowed pairs (b, n, m)."""
        if self.meaning == REGARD:
            return dense(allowed)
        if self.meaning == LENGTHS:
            return allowed.any(1).sum(-1)
        letters, (b, n, m) = self.shape.split(), allowed.shape
        table = allowed[:, None]
        if "h" in letters or "bh" in letters:
            table = table.expand(-1, heads, -1, -1)
        if "n" not in letters:
            table = table.any(2, keepdim=True)
        if "b" not in letters and "bh" not in letters:
            table = table[:1]
        sizes = {"b": b, "h": heads, "n": n, "m": m, "1": 1, "bh": b * heads}
        table = table.reshape([sizes[letter] for letter in letters])
        if self.meaning == HIDDEN:
            return ~table
        if self.meaning == ONES:
            return table.long()
        if self.meaning == ADDITIVE:
            least = torch.finfo(dtype).min if self.lowest else -math.inf
            return torch.zeros(table.shape, dtype=dtype).masked_fill(~table, least)
        return table


#: The masks of packages, by argument.
CONVENTIONS: Final[dict[str, dict[str, Form]]] = {
    "torch": {
        **dict.fromkeys(
            ("key_padding_mask", "src_key_padding_mask", "tgt_key_padding_mask",
             "memory_key_padding_mask"), Form(HIDDEN, "b m"),
        ),
        **dict.fromkeys(("attn_mask", "src_mask", "tgt_mask", "mask", "memory_mask"),
                        Form(HIDDEN, "n m")),
    },
    "d2l": dict.fromkeys(("valid_lens", "enc_valid_lens"), Form(LENGTHS, "b")),
    "keras": {"attention_mask": Form(MAY_LOOK, "b n m")},
    "huggingface": {"attention_mask": Form(ONES, "b m"),
                    "encoder_attention_mask": Form(ONES, "b m")},
    "x-transformers": {"mask": Form(MAY_LOOK, "b m"), "attn_mask": Form(MAY_LOOK, "n m"),
                       "context_mask": Form(MAY_LOOK, "b m")},
    "timm": {"attn_mask": Form(MAY_LOOK, "b 1 n m")},
    "fla": {"attention_mask": Form(ONES, "b m")},
    "flash-attn": {"key_padding_mask": Form(MAY_LOOK, "b m")},
}  # fmt: skip
HOMES: Final = {"transformers": "huggingface", "x_transformers": "x-transformers",
                "flash_attn": "flash-attn"}  # fmt: skip
MEANINGS = (MAY_LOOK, HIDDEN, ADDITIVE, ONES)
SHAPES = ("b 1 n m", "b n m", "n m", "bh n m", "b h n m", "b m", "b 1 1 m", "b 1 m")


def parsed(name: str, text: str) -> Form:
    """Return the form of ``meaning (shape)``. Raises: another meaning or letter."""
    meaning, _, shape = text.partition("(")
    letters = shape.rstrip(") ").replace(",", " ").split()
    known = {"b", "h", "n", "m", "1", "bh"}
    if meaning.strip() not in (*MEANINGS, LENGTHS) or not letters or {*letters} - known:
        raise RegardError(
            f"masks={{{name!r}: {text!r}}}: write a meaning and a shape, as in 'hidden (b, m)'; "
            f"meanings: {', '.join((*MEANINGS, LENGTHS))}; letters: b h n m 1 bh"
        )
    return Form(meaning.strip(), " ".join(letters))
