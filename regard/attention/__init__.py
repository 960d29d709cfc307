"""The formula and its parts."""

from regard.attention.attend import Attended, attend
from regard.attention.cache import KeyValueCache
from regard.attention.layer import Attention
from regard.attention.masks import (
    Mask,
    causal,
    dense,
    lengths,
    lengths_per_query,
    others,
    prefix,
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
    "causal",
    "dense",
    "input_positions",
    "lengths",
    "lengths_per_query",
    "make_score",
    "others",
    "prefix",
    "sinusoidal",
]
