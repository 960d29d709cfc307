"""Disentangled attention: learned keys and queries of distances in addition to those of words."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.kernels.distances import clipped
from regard.attention.prepared import Positions, Prepared, alone, as_tuple, repeat_kv
from regard.attention.score import Score
from regard.attention.scores.wrapper import Wrapper, WrapperAcceleration
from regard.core.errors import RegardError

#: Divides the sum of three terms by √3: with scaled-dot, all of it by √(3 · width).
SHARE = 3**-0.5


class DisentangledAcceleration(WrapperAcceleration):
    """The acceleration of `Disentangled`: the inner score's tiles, and gathered products."""

    def fast_compare(
        self,
        score: "Disentangled",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        return SHARE * super().fast_compare(score, queries, keys, positions)


class Disentangled(Wrapper):
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

    def __init__(self, inner: Score, *, farthest: int = 16) -> None:
        super().__init__(inner)
        if inner.query_width is None:
            raise RegardError(f"position {self.name!r} has parameters; give its score query_width=")
        if farthest != int(farthest) or farthest < 1:
            raise RegardError(f"disentangled needs a distance of at least 1, not {farthest}")
        self.farthest = int(farthest)
        self.distance_keys = self._rows(inner.query_width)
        self.distance_queries = self._rows(inner.key_width or inner.query_width)

    def _rows(self, width: int) -> nn.Parameter:
        heads = (self.heads,) if self.heads else ()
        return nn.Parameter(torch.randn(*heads, 2 * self.farthest + 1, width) * width**-0.5)

    @property
    def acceleration(self) -> Acceleration:  # type: ignore[override]
        return DisentangledAcceleration(self)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        inner = self.inner.prepare_queries(queries, positions)
        return (self._products(queries, self.distance_keys), *as_tuple(inner))

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        inner = self.inner.prepare_keys(keys, positions)
        products = self._products(repeat_kv(keys, self.heads), self.distance_queries)
        return (*as_tuple(inner), products)

    def _products(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return scale · x·row for each distance, (…, n, 2 · farthest + 1)."""
        of_inner, width = self.inner.acceleration, x.shape[-1]
        scale = of_inner.scale(self.inner, width) if of_inner.inner_product else width**-0.5
        return x @ (scale * rows).to(x.dtype).mT

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        products, *rest = queries
        return products, alone(rest)

    def split_keys(self, keys: Prepared) -> tuple[Prepared, Prepared]:
        *rest, products = keys
        return products, alone(rest)

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return clipped(queries, positions, -2) + clipped(keys, positions, -1)

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        return SHARE * super().compare(queries, keys, positions)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, farthest={self.farthest}"
