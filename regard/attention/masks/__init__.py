"""Masks: functions that make one, and the names of ``PATTERNS`` for settings."""

from regard.attention.masks.basic import (
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

__all__ = [
    "bigbird",
    "blocks",
    "causal",
    "dense",
    "documents",
    "global_tokens",
    "lengths",
    "lengths_per_query",
    "others",
    "prefix",
    "window",
]
