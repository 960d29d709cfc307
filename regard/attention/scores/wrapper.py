"""Scores that wrap another score: the base of positions that are part of a score."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.prepared import Positions, Prepared, alone, as_tuple
from regard.attention.score import Score
from regard.core.errors import RegardError


class WrapperAcceleration(Acceleration):
    """The acceleration of a `Wrapper`: that of its inner score, plus the added term."""

    def __init__(self, score: "Wrapper") -> None:
        super().__init__()
        self.inner = score.inner.acceleration
        self.additive = self.inner.additive and not score.bends
        self.linear = self.inner.linear and not (score.bends or score.reads_keys)
        self.inner_product = self.inner.inner_product and not (score.bends or score.adds)

    def fast_compare(
        self,
        score: "Wrapper",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        our_queries, queries = score.split_queries(queries)
        our_keys, keys = score.split_keys(keys)
        scores = self.inner.fast_compare(score.inner, queries, keys, positions)
        return score.changed(scores, our_queries, our_keys, positions)

    def numbers_per_pair(self, score: "Wrapper", keys: Prepared) -> int:  # type: ignore[override]
        return self.inner.numbers_per_pair(score.inner, score.split_keys(keys)[1])

    def scale(self, score: "Wrapper", width: int) -> float:  # type: ignore[override]
        return self.inner.scale(score.inner, width)

    def product_queries(self, score: "Wrapper", queries: Prepared) -> Tensor:  # type: ignore[override]
        return self.inner.product_queries(score.inner, score.split_queries(queries)[1])

    def bias(
        self,
        score: "Wrapper",  # type: ignore[override]
        queries: Prepared,
        positions: Positions,
    ) -> Tensor | None:
        own, queries = score.split_queries(queries)
        added, inner = (
            score.added(own, None, positions),
            self.inner.bias(score.inner, queries, positions),
        )
        return inner if added is None else plus(added, inner)

    def needs_upcast(
        self,
        score: "Wrapper",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared | None,
    ) -> bool:
        keys = None if keys is None else score.split_keys(keys)[1]
        return self.inner.needs_upcast(score.inner, score.split_queries(queries)[1], keys)


class Wrapper(Score):
    """score(q, k) = inner(q, k) + added(q, k), a score that wraps another; the base class.

    By default nothing is added, and only the inner score prepares queries and keys.
    """

    #: Whether ``added`` returns a term; if not, the score is of the same kind as the inner one.
    adds: bool = True
    #: Whether ``added`` reads the contents of a key, not only its position.
    reads_keys: ClassVar[bool] = False
    #: Whether ``changed`` does more than add a term, so that the score is of no faster kind.
    bends: bool = False
    accelerated_by: ClassVar[type[WrapperAcceleration]] = WrapperAcceleration

    def __init__(self, inner: Score) -> None:
        super().__init__(inner.query_width, inner.key_width, heads=inner.heads, length=inner.length)
        self.inner = inner

    @classmethod
    def takes(cls, inner: Score) -> bool:
        """Return whether it can wrap this score; by default every score."""
        return True

    @property
    def acceleration(self) -> Acceleration:  # type: ignore[override]
        return self.accelerated_by(self)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_queries(queries, positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(keys, positions)

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        """Split prepared queries into the part for ``added`` and that of the inner score."""
        return queries, queries

    def split_keys(self, keys: Prepared) -> tuple[Prepared | None, Prepared]:
        """Split prepared keys into the part for ``added``, or None, and that of the inner score."""
        return None, keys

    def added(
        self, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor | None:
        """Compute the term added to the scores, broadcastable to them; None for no term."""
        return None

    def changed(
        self, scores: Tensor, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor:
        """Compute the scores from those of the inner score, by default by adding ``added``."""
        return plus(scores, self.added(queries, keys, positions))

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        our_queries, queries = self.split_queries(queries)
        our_keys, keys = self.split_keys(keys)
        scores = self.inner.compare(queries, keys, positions)
        return self.changed(scores, our_queries, our_keys, positions)

    def check(self, query_width: int, key_width: int) -> None:
        self.inner.check(query_width, key_width)


class ProductWrapperAcceleration(WrapperAcceleration):
    """The acceleration of a `ProductWrapper`, which compares all that it prepares at once."""

    fast_compare = Acceleration.fast_compare
    product_queries = Acceleration.product_queries

    def scale(self, score: "ProductWrapper", width: int) -> float:  # type: ignore[override]
        return score.scale(width)


class ProductWrapper(Wrapper):
    """scale · q'·k', with more or other columns than the inner product prepares; a base class."""

    adds = False
    accelerated_by: ClassVar[type[WrapperAcceleration]] = ProductWrapperAcceleration

    def scale(self, width: int) -> float:
        """Return the factor before q'·k' if the prepared queries have this width."""
        raise NotImplementedError(f"{type(self).__name__} has no scale(width)")

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return self.scale(queries.shape[-1]) * queries @ keys.mT


class DistanceKeys(Wrapper):
    """score(q, k) + scale · q·a[distance of the pair], with a learned key a for each distance.

    Distances are clipped to −``farthest`` … ``farthest``. Each query is multiplied with the key of
    every distance once, and each pair gathers its product. Raise a RegardError if the inner score
    has no ``query_width``.
    """

    #: Whether each head has its own rows.
    per_head: ClassVar[bool] = False

    def __init__(self, inner: Score, *, farthest: int = 16) -> None:
        super().__init__(inner)
        if inner.query_width is None:
            raise RegardError(f"position {self.name!r} has parameters; give its score query_width=")
        self.farthest = farthest
        self.distance_keys = self.make_rows(inner.query_width)

    def make_rows(self, width: int) -> nn.Parameter:
        """Return a row of random numbers for each distance."""
        heads = (self.heads,) if self.heads and self.per_head else ()
        return nn.Parameter(torch.randn(*heads, 2 * self.farthest + 1, width) * width**-0.5)

    def products(self, x: Tensor, rows: Tensor) -> Tensor:
        """Return scale · x·row for each distance, (…, n, 2 · farthest + 1)."""
        of_inner, width = self.inner.acceleration, x.shape[-1]
        scale = of_inner.scale(self.inner, width) if of_inner.inner_product else width**-0.5
        return x @ (scale * rows).to(x.dtype).mT

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        inner = self.inner.prepare_queries(queries, positions)
        return (self.products(queries, self.distance_keys), *as_tuple(inner))

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        products, *rest = queries
        return products, alone(rest)


def plus(one: Tensor, two: Tensor | None) -> Tensor:
    """Return one + two, or one if two is None."""
    return one if two is None else one + two
