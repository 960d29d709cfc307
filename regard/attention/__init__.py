"""The formula and its parts."""

from regard.attention.attend import Attended, attend, explain
from regard.attention.cache import KeyValueCache
from regard.attention.kernels.choose import use
from regard.attention.layer import Attention
from regard.attention.masks import (
    Mask,
    bigbird,
    blocks,
    causal,
    dense,
    documents,
    global_tokens,
    lengths,
    lengths_per_query,
    others,
    prefix,
    window,
)
from regard.attention.multihead import MultiHeadAttention
from regard.attention.normalizers import NORMALIZERS, Normalizer
from regard.attention.positions import POSITIONS, input_positions, make_score, sinusoidal
from regard.attention.scores import SCORES, InnerProduct, Score

__all__ = [
    "NORMALIZERS",
    "POSITIONS",
    "SCORES",
    "Attended",
    "Attention",
    "InnerProduct",
    "KeyValueCache",
    "Mask",
    "MultiHeadAttention",
    "Normalizer",
    "Score",
    "attend",
    "bigbird",
    "blocks",
    "causal",
    "dense",
    "documents",
    "explain",
    "global_tokens",
    "input_positions",
    "lengths",
    "lengths_per_query",
    "make_score",
    "others",
    "prefix",
    "sinusoidal",
    "use",
    "window",
]
