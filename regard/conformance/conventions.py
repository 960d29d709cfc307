"""Names of arguments and settings in other packages, and the forms of their masks."""

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

#: Names of arguments by role, the preferred first.
ROLES: Final[dict[str, list[str]]] = {
    "queries": (
        "inputs_embeds query queries q x hidden_states src tgt target input inputs sequence "
        "input_ids idx ids tokens decoder_input"
    ).split(),
    "keys": "key keys k".split(),
    "values": "value values v".split(),
    "memory": (
        "memory context encoder_hidden_states encoder_outputs encoder_output "
        "key_value_states kv"
    ).split(),
    "positions": "position_ids positions pos cache_position".split(),
    "cache": "past_key_values past_key_value layer_past cache past".split(),
    "packing": ["cu_seqlens", "cu_seq_lens", "cu_seqlens_q"],
    "causal": "is_causal use_causal_mask causal".split(),
    "weights": (
        "need_weights output_attentions return_attention_scores return_attention "
        "return_weights return_attn return_attn_weights return_intermediates"
    ).split(),
}  # fmt: skip
#: What constructors call a setting of `Layer.variant`, or a size that any network needs.
SETTINGS: Final[dict[str, list[str]]] = {
    "width": (
        "width embed_dim d_model dim hidden_size num_hiddens n_embd embedding_dim hidden_dim "
        "dim_model emb_dim embed_size model_dim"
    ).split(),
    "heads": "heads num_heads nhead n_heads n_head h num_attention_heads nheads".split(),
    "head_width": "dim_head head_dim key_dim attn_dim_head d_k head_size".split(),
    "dropout": (
        "dropout attn_dropout attn_drop dropout_p attention_dropout drop p dropout_rate "
        "attention_probs_dropout_prob attn_pdrop"
    ).split(),
    "key_value_heads": (
        "key_value_heads num_kv_heads num_key_value_heads n_kv_heads kv_heads num_heads_kv"
    ).split(),
    "feedforward": (
        "dim_feedforward intermediate_size ffn_dim d_ff mlp_dim ff_dim hidden_features"
    ).split(),
    "layers": "num_layers depth n_layers n_layer num_hidden_layers".split(),
    "length": (
        "length max_len max_seq_len block_size context_length seq_len "
        "max_position_embeddings max_length"
    ).split(),
    "vocabulary": "vocab_size num_tokens vocab vocabulary n_vocab".split(),
}  # fmt: skip
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
