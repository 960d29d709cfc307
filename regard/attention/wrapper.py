"""A score around another: what positions that are part of a score are made of."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.score import Prepared, Score, Where, as_tuple
from regard.errors import RegardError


class Wrapper(Score):
    """A score around another: by default it does what the inner one does.

    ``added`` is what it adds to the inner score of a pair.
    """

    def __init__(self, inner: Score) -> None:
        super().__init__(inner.query_width, inner.key_width, heads=inner.heads, length=inner.length)
        self.inner = inner

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Prepared:
        return self.inner.prepare_queries(queries, where)

    def prepare_keys(self, keys: Tensor, where: Tensor) -> Prepared:
        return self.inner.prepare_keys(keys, where)

    def own(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        """Prepared queries apart: what ``added`` reads, and the inner score's."""
        return queries, queries

    def added(self, queries: Prepared, where: Where) -> Tensor | None:
        """This wrapper's part of the scores, broadcastable to them; None for nothing."""
        return None

    def compare(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        mine, inner = self.own(queries)
        return plus(self.inner.compare(inner, keys, where), self.added(mine, where))

    def tile(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        mine, inner = self.own(queries)
        return plus(self.inner.tile(inner, keys, where), self.added(mine, where))

    @property
    def linear(self) -> bool:
        return self.inner.linear and type(self).compare is Wrapper.compare

    def product_queries(self, queries: Prepared) -> Prepared:
        return self.inner.product_queries(self.own(queries)[1])

    def beside_product(self, queries: Prepared, where: Where) -> Tensor | None:
        mine, inner = self.own(queries)
        one, two = self.added(mine, where), self.inner.beside_product(inner, where)
        return two if one is None else plus(one, two)

    def numbers_per_pair(self, keys: Prepared) -> int:
        return self.inner.numbers_per_pair(keys)

    @property
    def additive(self) -> bool:
        return self.inner.additive

    def loses_digits(self, queries: Prepared, keys: Prepared | None) -> bool:
        return self.inner.loses_digits(self.own(queries)[1], keys)

    def scale(self, width: int) -> float:
        return self.inner.scale(width)

    def check(self, query_width: int, key_width: int) -> None:
        self.inner.check(query_width, key_width)


class DistanceKeys(Wrapper):
    """score(q, k) + scale · q·a[distance of the pair], a learned key for each distance.

    Distances go from −``farthest`` to ``farthest``; what is farther counts as that far. One
    product for each query and distance, and then each pair picks one.
    """

    def __init__(self, inner: Score, *, farthest: int = 16) -> None:
        super().__init__(inner)
        if inner.query_width is None:
            raise RegardError(f"{self.name} has parameters: give its score query_width=")
        self.farthest = farthest
        start = torch.randn(2 * farthest + 1, inner.query_width) * inner.query_width**-0.5
        self.distance_keys = nn.Parameter(start)

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Prepared:
        width = queries.shape[-1]
        scale = self.inner.scale(width) if self.inner.inner_product else width**-0.5
        inner = self.inner.prepare_queries(queries, where)
        return (queries @ (scale * self.distance_keys.T).to(queries.dtype), *as_tuple(inner))

    def own(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        products, *rest = queries
        return products, alone(rest)

    def by_distance(self, products: Tensor, apart: Int[Tensor, "... queries keys"]) -> Tensor:
        """What each pair picks from its query's products."""
        place, batch = (
            apart.clamp(-self.farthest, self.farthest) + self.farthest,
            products.shape[:-2],
        )
        if place.ndim > 2:  # each text has its own
            batch = torch.broadcast_shapes(batch, place.shape[:-2])
            products = products.expand(*batch, -1, -1)
        return products.gather(-1, place.expand(*batch, -1, -1))


def alone(parts: Sequence[Tensor]) -> Prepared:
    """What a prepare method gave: a tensor if it is one, else a tuple."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def plus(one: Tensor, two: Tensor | None) -> Tensor:
    """The sum, where there is something to add."""
    return one if two is None else one + two


def distance(where: Where) -> Int[Tensor, "... queries keys"]:
    """j − i for every pair of positions."""
    rows, columns = where
    return columns[..., None, :] - rows[..., :, None]
