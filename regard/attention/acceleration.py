"""Properties of a score that kernels use for speed, memory and precision."""

from typing import TYPE_CHECKING

from torch import Tensor

from regard.attention.prepared import Positions, Prepared

if TYPE_CHECKING:
    from regard.attention.score import InnerProduct, Score


class Acceleration:
    """Properties of a score that save time, memory or precision and do not change its formula.

    A score has one as its ``acceleration``; this base class fits every score. It holds no tensors
    and gets the score at each call, so that one serves a score and all its copies.
    ``numbers`` is the result of `numbers_per_pair`.
    """

    #: compare(q', k') is scale · q'·k', so torch's fused kernels can serve it.
    inner_product = False
    #: compare(q', k') is scale · q'·k' + bias, with the q' of `product_queries`.
    linear = False
    #: The score has a hidden layer per pair and uses the kernel of `Additive`.
    additive = False
    #: score(q + c, k + c) = score(q, k), so both sides may be centred before any rounding.
    translation_invariant = False
    #: Weights of far keys fall below the least normal number, where some processors are slow.
    decays = False

    def __init__(self, *, numbers: int | None = None) -> None:
        self.numbers = numbers

    def fast_compare(
        self, score: "Score", queries: Prepared, keys: Prepared, positions: Positions
    ) -> Tensor:
        """Compute the result of ``score.compare`` in a faster way, if the score has one.

        Tiled kernels call it, compiled if the call is large enough.
        """
        return score.compare(queries, keys, positions)

    def traced_compare(
        self, score: "Score", queries: Prepared, keys: Prepared, positions: Positions
    ) -> Tensor:
        """Compute the result of ``score.compare`` with sums in place of loops, for Triton's tiles.

        A sum becomes a loop of the kernel; a loop over columns would be a statement for each.
        """
        return score.compare(queries, keys, positions)

    def numbers_per_pair(self, score: "Score", keys: Prepared) -> int:
        """Return how many numbers per pair `fast_compare` has in memory at once.

        The default is ``numbers``, or else the key's width. The larger it is, the smaller are the
        tiles; a score with 1 is not compiled.
        """
        if self.numbers is not None:
            return self.numbers
        first = keys if isinstance(keys, Tensor) else keys[0]
        return int(first.shape[-1])

    def scale(self, score: "Score", width: int) -> float:
        """Return the factor of q'·k' for prepared queries of this width."""
        return 1.0

    def product_queries(self, score: "Score", queries: Prepared) -> Tensor:
        """Return q' of a linear score's product, which is one of the prepared tensors."""
        assert isinstance(queries, Tensor)
        return queries

    def bias(self, score: "Score", queries: Prepared, positions: Positions) -> Tensor | None:
        """Return the term that a linear score adds to its product, broadcastable to it, or None."""
        return None

    def by_distance(self, score: "Score", positions: Positions) -> bool:
        """Return whether the score is a product and a bias of the distance j − i alone."""
        return False

    def needs_upcast(self, score: "Score", queries: Prepared, keys: Prepared | None) -> bool:
        """Return whether the dtype of these prepared rows is too imprecise for their scores.

        Without keys, return whether it may be for some keys.
        """
        return False


class ProductAcceleration(Acceleration):
    """The acceleration of an `InnerProduct`."""

    inner_product = linear = True

    def __init__(self) -> None:
        super().__init__(numbers=1)

    def scale(self, score: "InnerProduct", width: int) -> float:  # type: ignore[override]
        return score.scale(width)
