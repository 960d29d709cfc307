"""Multi-head latent attention: keys and values of all heads from one small vector per word."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.arguments import must_suit
from regard.attention.head_spec import HeadSpec
from regard.attention.layer import Attention
from regard.attention.mechanisms.multihead import Inputs, MultiHeadAttention
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.core.errors import RegardError
from regard.core.names import parts_of


class LatentAttention(MultiHeadAttention):
    """head_i = attend(W_Q,i q, U_i c, V_i c), c = W_C k: one latent vector per key for all heads.

    DeepSeek-AI 2024 (V2), section 2.1. c has ``latent`` numbers, by default 2 · head_width, and is
    all that a cache stores: U_i is multiplied into the queries and V_i into the output. With rotary
    positions, queries and keys have head_width / 2 further columns, one key for all heads, which
    alone are rotated; the cache stores them too. Queries (*batch, n, width) and a memory
    (*batch, m, key_width) give (*batch, n, width). Raise a RegardError for scores other than
    dot and scaled-dot, with or without a soft cap, for shared key heads and compress, and for
    values of their own.

    >>> from regard.attention import KeyValueCache
    >>> layer, cache = LatentAttention(16, 4), KeyValueCache()
    >>> layer(torch.zeros(3, 5, 16), cache=cache).shape, cache.numbers
    (torch.Size([3, 5, 16]), 120)
    """

    name = "latent"
    takes_values = False
    attention_last = True

    def __init__(
        self, width: int, heads: int, *, latent: int | None = None, **settings: Any
    ) -> None:
        self.latent = latent
        super().__init__(width, heads, **settings)

    def build(self, spec: HeadSpec) -> None:
        base, _ = compared(spec)
        if spec.key_value_heads not in (None, spec.heads) or spec.compress != "none":
            raise RegardError(
                "attention=latent shares one latent key; remove key_value_heads and compress"
            )
        super().build(spec)
        self.scale = (self.head_width + self.rotated) ** -0.5 if base == "scaled-dot" else 1.0

    def make_projections(self, spec: HeadSpec) -> None:
        spec.must_share_memory(self.name)
        self.packed, self.groups = False, 1
        self.latent_width = self.latent or 2 * self.head_width
        self.rotated = self.head_width // 2 if turned(spec) else 0
        per_head = self.head_width + self.rotated
        self.project_queries = nn.Linear(spec.width, spec.heads * per_head, spec.bias)
        columns = self.latent_width + self.rotated
        self.project_latent = nn.Linear(spec.memory_width, columns, spec.bias)
        shape = (spec.heads, self.head_width, self.latent_width)
        self.up_keys = nn.Parameter(torch.randn(shape) * self.latent_width**-0.5)
        self.up_values = nn.Parameter(torch.randn(shape) * self.latent_width**-0.5)

    def make_attention(self, spec: HeadSpec) -> Attention:
        columns, position = self.rotated + self.latent_width, spec.position
        if turned(spec):
            if "-part-" in position:
                raise RegardError(
                    "attention=latent rotates columns of its own; leave part out of the position"
                )
            position = f"{position}-part-{(self.rotated + 0.5) / columns:.6f}"
        name = "+".join(["dot", *compared(spec)[1]])
        return super().make_attention(
            replace(spec, score=name, position=position, head_width=columns)
        )

    def joined(self, output: Tensor) -> Tensor:
        return output @ self.up_values.mT.to(output.dtype)

    def projected(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        queries, keys, values, packing, key_packing, cache = inputs
        if values is not keys:
            raise RegardError("attention=latent makes keys and values of the same input")
        must_suit("queries", queries, self.project_queries)
        asked = self.project_queries(queries)
        if packing is not None:
            asked = packing.unpack(asked)
        q = asked.unflatten(-1, (self.heads, -1)).transpose(-3, -2) * self.scale
        content, turned = q.split([self.head_width, self.rotated], -1)
        q = torch.cat([turned, content @ self.up_keys.to(q.dtype)], -1)
        if inputs.cached:
            none = q.new_empty(*q.shape[:-3], 1, 0, q.shape[-1])
            return q, none, none[..., self.rotated :]
        must_suit("keys", keys, self.project_latent)
        latent = self.project_latent(keys)
        if key_packing is not None:
            latent = key_packing.unpack(latent)
        k = latent.unsqueeze(-3)
        if cache is not None:
            cache.shared = slice(self.rotated, None)
        return q, k, k[..., self.rotated :]


def turned(spec: HeadSpec) -> bool:
    """Return whether queries and keys have further columns that are rotated."""
    return spec.position.startswith("rotary")


def compared(spec: HeadSpec) -> tuple[str, list[str]]:
    """Return the name of the product of latent vectors, and of its caps.

    Raise a RegardError for another score.
    """
    spec.must_name_score("latent", classes=False)
    assert isinstance(spec.score, str)
    base, *changes = parts_of(spec.score)
    if base.startswith("soft-cap"):
        base, changes = "scaled-dot", [base, *changes]
    if base not in ("dot", "scaled-dot") or any("soft-cap" not in name for name in changes):
        raise RegardError(
            f"attention=latent compares latent vectors: use score=scaled-dot or dot, perhaps "
            f"with +{next(iter(SCORE_WRAPPERS))}-50, not {spec.score}"
        )
    return base, changes
