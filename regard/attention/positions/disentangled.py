"""Disentangled attention: learned keys and queries of distances in addition to those of words."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor

from regard.attention.kernels.distances import clipped
from regard.attention.prepared import Positions, Prepared, alone, as_tuple, repeat_kv
from regard.attention.score import Score
from regard.attention.scores.wrapper import DistanceKeys
from regard.core.errors import RegardError

#: Divides the sum of three terms by √3: with scaled-dot, all of it by √(3 · width).
SHARE = 3**-0.5


class Disentangled(DistanceKeys):
    """(score(q, k) + scale · (q·a[d] + k·b[d])) / √3, d = clip(j − i), with a and b learned.

    He et al. 2021 (DeBERTa), equations 4 to 6: content to content, content to position, position to
    content; around scaled-dot the sum is divided by √(3 · width). The scale is that of the inner
    score, or 1/√width if it is not an inner product. Queries (…, [heads,] n, width) and keys
    (…, [heads,] m, width) give scores (…, [heads,] n, m); a and b are ([heads,]
    2 · ``farthest`` + 1, width). DeBERTa computes a and b of each layer from one embedding of
    distances, shared by the layers, and gives its two largest distances to one side one row; here
    each layer and head learns its own rows. Raise a RegardError if the inner score has no
    ``query_width``, and for a ``farthest`` below 1.

    >>> from regard.attention.scores import ScaledDot
    >>> Disentangled(ScaledDot(4, 4, heads=3), farthest=2).distance_keys.shape
    torch.Size([3, 5, 4])
    """

    name = "disentangled"
    options: ClassVar[Mapping[str, int]] = {"farthest": 1}
    reads_keys = True
    per_head = True

    def __init__(self, inner: Score, *, farthest: int = 16) -> None:
        if farthest != int(farthest) or farthest < 1:
            raise RegardError(f"disentangled needs a distance of at least 1, not {farthest}")
        super().__init__(inner, farthest=int(farthest))
        width = inner.key_width or inner.query_width
        assert width is not None
        self.distance_queries = self.make_rows(width)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        inner = self.inner.prepare_keys(keys, positions)
        products = self.products(repeat_kv(keys, self.heads), self.distance_queries)
        return (*as_tuple(inner), products)

    def split_keys(self, keys: Prepared) -> tuple[Prepared, Prepared]:
        *rest, products = keys
        return products, alone(rest)

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return clipped(queries, positions, -2) + clipped(keys, positions, -1)

    def changed(
        self, scores: Tensor, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor:
        return SHARE * super().changed(scores, queries, keys, positions)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, farthest={self.farthest}"
