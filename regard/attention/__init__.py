"""Attention: scores, masks, normalisers, positions, and the layers built from them."""

from regard.attention.acceleration import Acceleration
from regard.attention.attend import attend, explain
from regard.attention.attended import Attended
from regard.attention.cache import KeyValueCache
from regard.attention.kernels.choose import use
from regard.attention.layer import Attention
from regard.attention.mask import Mask
from regard.attention.masks import (
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
from regard.attention.masks.patterns import PATTERNS, LayerMasks, Pattern, named_mask, within
from regard.attention.mechanism import Mechanism
from regard.attention.mechanisms import MECHANISMS, named_mechanism
from regard.attention.mechanisms.linformer import COMPRESS, Linformer, named_compress
from regard.attention.mechanisms.multihead import MultiHeadAttention
from regard.attention.normalizer import Normalizer
from regard.attention.normalizers import NORMALIZERS
from regard.attention.packing import Packing
from regard.attention.positions import POSITIONS, input_positions, make_score
from regard.attention.positions.sines import sinusoidal
from regard.attention.positions.trees import parsed
from regard.attention.prepared import distance
from regard.attention.score import InnerProduct, Score
from regard.attention.scores import SCORES
from regard.attention.scores.wrapper import Wrapper

__all__ = [
    "COMPRESS",
    "MECHANISMS",
    "NORMALIZERS",
    "PATTERNS",
    "POSITIONS",
    "SCORES",
    "Acceleration",
    "Attended",
    "Attention",
    "InnerProduct",
    "KeyValueCache",
    "LayerMasks",
    "Linformer",
    "Mask",
    "Mechanism",
    "MultiHeadAttention",
    "Normalizer",
    "Packing",
    "Pattern",
    "Score",
    "Wrapper",
    "attend",
    "bigbird",
    "blocks",
    "causal",
    "dense",
    "distance",
    "documents",
    "explain",
    "global_tokens",
    "input_positions",
    "lengths",
    "lengths_per_query",
    "make_score",
    "named_compress",
    "named_mask",
    "named_mechanism",
    "others",
    "parsed",
    "prefix",
    "sinusoidal",
    "use",
    "window",
    "within",
]
