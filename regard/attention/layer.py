"""Attention as a layer: the one class that models call and recordings hook."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.attend import Attended, attend, named
from regard.attention.cache import KeyValueCache
from regard.attention.masks import Mask
from regard.attention.normalizers import Normalizer
from regard.attention.scores import Score


class Attention(nn.Module):
    """:func:`attend` with its score, normaliser and dropout kept; dropout in training mode only.

    A forward hook on it sees the :class:`Attended` of every call.
    """

    def __init__(
        self,
        score: Score,
        normalize: str | Normalizer = "softmax",
        dropout: float = 0.0,
        *,
        heads: int | None = None,
    ) -> None:
        super().__init__()
        self.heads = heads
        self.score, self.dropout = score, dropout
        self.normalize = named(normalize, heads or score.heads)

    def forward(
        self,
        queries: Float[Tensor, "... queries query_width"],
        keys: Float[Tensor, "... keys key_width"],
        values: Float[Tensor, "... keys value_width"],
        mask: Mask | Tensor | None = None,
        *,
        query_positions: Int[Tensor, "... queries"] | None = None,
        key_positions: Int[Tensor, "... keys"] | None = None,
        cache: KeyValueCache | None = None,
    ) -> Attended:
        """The values averaged for each query; arguments as in :func:`attend`."""
        return attend(
            queries,
            keys,
            values,
            self.score,
            mask,
            normalize=self.normalize,
            dropout=self.dropout if self.training else 0.0,
            query_positions=query_positions,
            key_positions=key_positions,
            heads=self.heads,
            cache=cache,
        )

    def extra_repr(self) -> str:
        return f"normalize={self.normalize.name!r}, dropout={self.dropout}"
