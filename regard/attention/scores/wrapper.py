"""Scores that wrap another score: the base of positions that are part of a score."""

from typing import ClassVar

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.prepared import Positions, Prepared, alone, as_tuple
from regard.attention.score import Score
from regard.core.errors import RegardError


class Wrapper(Score):
    """score(q, k) = inner(q, k) + added(q, k), a score that wraps another; the base class.

    By default nothing is added, and only the inner score prepares queries and keys.
    """

    #: Whether ``added`` returns a term; if not, the score is of the same kind as the inner one.
    adds: bool = True
    #: Whether ``added`` reads the contents of a key, not only its position.
    reads_keys: ClassVar[bool] = False

    def __init__(self, inner: Score) -> None:
        super().__init__(inner.query_width, inner.key_width, heads=inner.heads, length=inner.length)
        self.inner = inner

    @classmethod
    def takes(cls, inner: Score) -> bool:
        """Return whether it can wrap this score; by default every score."""
        return True

    @property
    def acceleration(self) -> Acceleration:  # type: ignore[override]
        return WrapperAcceleration(self)

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

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        our_queries, queries = self.split_queries(queries)
        our_keys, keys = self.split_keys(keys)
        scores = self.inner.compare(queries, keys, positions)
        return plus(scores, self.added(our_queries, our_keys, positions))

    def check(self, query_width: int, key_width: int) -> None:
        self.inner.check(query_width, key_width)


class WrapperAcceleration(Acceleration):
    """The acceleration of a `Wrapper`: that of its inner score, plus the added term."""

    def __init__(self, score: Wrapper) -> None:
        super().__init__()
        self.inner = score.inner.acceleration
        self.additive = self.inner.additive
        self.linear = self.inner.linear and not score.reads_keys
        self.inner_product = self.inner.inner_product and not score.adds

    def fast_compare(
        self,
        score: Wrapper,  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        our_queries, queries = score.split_queries(queries)
        our_keys, keys = score.split_keys(keys)
        scores = self.inner.fast_compare(score.inner, queries, keys, positions)
        return plus(scores, score.added(our_queries, our_keys, positions))

    def numbers_per_pair(self, score: Wrapper, keys: Prepared) -> int:  # type: ignore[override]
        return self.inner.numbers_per_pair(score.inner, score.split_keys(keys)[1])

    def scale(self, score: Wrapper, width: int) -> float:  # type: ignore[override]
        return self.inner.scale(score.inner, width)

    def product_queries(self, score: Wrapper, queries: Prepared) -> Tensor:  # type: ignore[override]
        return self.inner.product_queries(score.inner, score.split_queries(queries)[1])

    def bias(
        self,
        score: Wrapper,  # type: ignore[override]
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
        score: Wrapper,  # type: ignore[override]
        queries: Prepared,
        keys: Prepared | None,
    ) -> bool:
        keys = None if keys is None else score.split_keys(keys)[1]
        return self.inner.needs_upcast(score.inner, score.split_queries(queries)[1], keys)


class DistanceKeys(Wrapper):
    """score(q, k) + scale · q·a[distance of the pair], with a learned key a for each distance.

    Distances are clipped to −``farthest`` … ``farthest``. Each query is multiplied with the key of
    every distance once, and each pair gathers its product. Raise a RegardError if the inner score
    has no ``query_width``.
    """

    def __init__(self, inner: Score, *, farthest: int = 16) -> None:
        super().__init__(inner)
        if inner.query_width is None:
            raise RegardError(f"position {self.name!r} has parameters; give its score query_width=")
        self.farthest = farthest
        start = torch.randn(2 * farthest + 1, inner.query_width) * inner.query_width**-0.5
        self.distance_keys = nn.Parameter(start)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        width = queries.shape[-1]
        of_inner = self.inner.acceleration
        scale = of_inner.scale(self.inner, width) if of_inner.inner_product else width**-0.5
        inner = self.inner.prepare_queries(queries, positions)
        return (queries @ (scale * self.distance_keys.T).to(queries.dtype), *as_tuple(inner))

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        products, *rest = queries
        return products, alone(rest)


def plus(one: Tensor, two: Tensor | None) -> Tensor:
    """Return one + two, or one if two is None."""
    return one if two is None else one + two


def distance(positions: Positions) -> Int[Tensor, "... queries keys"]:
    """Return j − i for every pair of positions, (…, queries, keys)."""
    rows, columns = positions
    return columns[..., None, :] - rows[..., :, None]
