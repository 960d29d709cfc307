"""Multi-head latent attention: keys and values of all heads from one small vector per word."""

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.arguments import must_be_rows
from regard.attention.cache import KeyValueCache
from regard.attention.layer import Attention
from regard.attention.mechanisms.multihead import MultiHeadAttention
from regard.attention.packing import Packing
from regard.attention.positions import make_score
from regard.attention.scores.wrappers import SCORE_WRAPPERS
from regard.core.errors import RegardError
from regard.core.plugins import parts_of


class LatentAttention(MultiHeadAttention):
    """head_i = attend(W_Q,i q, U_i c, V_i c), c = W_C k: one latent vector per key for all heads.

    DeepSeek-AI 2024 (V2), section 2.1. c has ``latent`` numbers, by default 2 · head_width, and is
    all that a cache stores: U_i is multiplied into the queries and V_i into the output. With rotary
    positions, queries and keys have head_width / 2 further columns, one key for all heads, which
    alone are rotated; the cache stores them too. Queries (\\*batch, n, width) and a memory
    (\\*batch, m, key_width) give (\\*batch, n, width). Raise a RegardError for scores other than
    dot and scaled-dot, with or without a soft cap, for shared key heads and compress, and for
    values of their own.

    >>> layer, cache = LatentAttention(16, 4), KeyValueCache()
    >>> layer(torch.zeros(3, 5, 16), cache=cache).shape, cache.numbers
    (torch.Size([3, 5, 16]), 120)
    """

    name = "latent"

    def __init__(
        self,
        width: int,
        heads: int,
        *,
        score: Any = "scaled-dot",
        position: str = "none",
        normalize: Any = "softmax",
        dropout: float = 0.0,
        latent: int | None = None,
        key_value_heads: int | None = None,
        compress: Any = "none",
        length: int | None = None,
        **settings: Any,
    ) -> None:
        if not isinstance(score, str):
            raise RegardError(
                "attention=latent takes a score by name, not built, as T5 builds its scores; use "
                "multi-head or gated"
            )
        base, *changes = parts_of(score)
        if base.startswith("soft-cap"):
            base, changes = "scaled-dot", [base, *changes]
        if base not in ("dot", "scaled-dot") or any("soft-cap" not in name for name in changes):
            raise RegardError(
                f"attention=latent compares latent vectors: use score=scaled-dot or dot, perhaps "
                f"with +{next(iter(SCORE_WRAPPERS))}-50, not {score}"
            )
        if key_value_heads not in (None, heads) or compress != "none":
            raise RegardError(
                "attention=latent shares one latent key; remove key_value_heads and compress"
            )
        self.latent, self.turned = latent, position.startswith("rotary")
        super().__init__(width, heads, normalize=normalize, dropout=dropout, **settings)
        columns = self.rotated + self.latent_width
        if self.turned:
            if "-part-" in position:
                raise RegardError(
                    "attention=latent rotates columns of its own; leave part out of the position"
                )
            position = f"{position}-part-{(self.rotated + 0.5) / columns:.6f}"
        self.scale = (self.head_width + self.rotated) ** -0.5 if base == "scaled-dot" else 1.0
        built = make_score(
            "+".join(["dot", *changes]), position, columns, columns, heads=heads, length=length
        )
        self.attention = Attention(built, normalize, dropout, heads=heads)

    def make_projections(self, key_width: int, value_width: int, bias: bool) -> None:
        if value_width != key_width:
            raise RegardError("attention=latent makes keys and values of the same input")
        self.packed, self.groups = False, 1
        self.latent_width = self.latent or 2 * self.head_width
        self.rotated = self.head_width // 2 if self.turned else 0
        per_head = self.head_width + self.rotated
        self.project_queries = nn.Linear(self.width, self.heads * per_head, bias)
        self.project_latent = nn.Linear(key_width, self.latent_width + self.rotated, bias)
        shape = (self.heads, self.head_width, self.latent_width)
        self.up_keys = nn.Parameter(torch.randn(shape) * self.latent_width**-0.5)
        self.up_values = nn.Parameter(torch.randn(shape) * self.latent_width**-0.5)

    def joined(self, output: Tensor) -> Tensor:
        return output @ self.up_values.mT.to(output.dtype)

    def _heads(
        self,
        queries: Tensor,
        keys: Tensor | None,
        values: Tensor | None,
        cache: KeyValueCache | None,
        packing: Packing | None,
        key_packing: Packing | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if values is not None and values is not keys:
            raise RegardError("attention=latent makes keys and values of the same input")
        must_be_rows("queries", queries, getattr(self.project_queries, "in_features", None))
        asked = self.project_queries(queries)
        if packing is not None:
            asked = packing.unpack(asked)
        q = asked.unflatten(-1, (self.heads, -1)).transpose(-3, -2) * self.scale
        content, turned = q.split([self.head_width, self.rotated], -1)
        q = torch.cat([turned, content @ self.up_keys.to(q.dtype)], -1)
        if cache is not None and cache.filled:
            none = q.new_empty(*q.shape[:-3], 1, 0, q.shape[-1])
            return q, none, none[..., self.rotated :]
        if keys is None:
            keys, key_packing = queries, packing
        must_be_rows("keys", keys, getattr(self.project_latent, "in_features", None))
        latent = self.project_latent(keys)
        if key_packing is not None:
            latent = key_packing.unpack(latent)
        k = latent.unsqueeze(-3)
        if cache is not None:
            cache.shared = slice(self.rotated, None)
        return q, k, k[..., self.rotated :]
