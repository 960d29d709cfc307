"""What kernels may know about a score beside its formula, in one companion object."""

from typing import TYPE_CHECKING

from torch import Tensor

from regard.attention.prepared import Positions, Prepared

if TYPE_CHECKING:
    from regard.attention.score import InnerProduct, Score


class Acceleration:
    """Properties of a score that save time, memory or digits, and change no formula.

    A score keeps one as its ``acceleration``; this one fits every score. It holds no tensors and is
    given the score at each call, so that it serves a score and all copies of it.
    ``numbers``: see `numbers_per_pair`.
    """

    #: compare(q', k') is scale · q'·k', so torch's fused kernels can serve it.
    inner_product = False
    #: compare(q', k') is scale · q'·k' + bias, with the q' of `product_queries`.
    linear = False
    #: A pair costs a hidden layer, by the kernel of `Additive`.
    additive = False
    #: score(q + c, k + c) = score(q, k), so both sides may be centred before any rounding.
    translation_invariant = False

    def __init__(self, *, numbers: int | None = None) -> None:
        self.numbers = numbers

    def fast_compare(
        self, score: "Score", queries: Prepared, keys: Prepared, positions: Positions
    ) -> Tensor:
        """Compute the numbers of ``score.compare``, by a quicker way if the score has one.

        Kernels that go by tiles call it, compiled where that is worth its time.
        """
        return score.compare(queries, keys, positions)

    def numbers_per_pair(self, score: "Score", keys: Prepared) -> int:
        """Return how many numbers `fast_compare` holds at once for a pair.

        One a column of a key, unless ``numbers`` says otherwise. Tiles of a score that holds many
        are smaller; a score that holds one is not compiled.
        """
        if self.numbers is not None:
            return self.numbers
        first = keys if isinstance(keys, Tensor) else keys[0]
        return int(first.shape[-1])

    def scale(self, score: "Score", width: int) -> float:
        """Return the factor before q'·k' if the prepared queries have this width."""
        return 1.0

    def product_queries(self, score: "Score", queries: Prepared) -> Tensor:
        """Return the q' of a linear score's product: one of the prepared tensors."""
        assert isinstance(queries, Tensor)
        return queries

    def bias(self, score: "Score", queries: Prepared, positions: Positions) -> Tensor | None:
        """Return what a linear score adds to its product, broadcastable to it; None for nothing."""
        return None

    def needs_upcast(self, score: "Score", queries: Prepared, keys: Prepared | None) -> bool:
        """Return whether the dtype of these prepared rows is too coarse for their scores.

        Without keys, whether it may be for some keys.
        """
        return False


class ProductAcceleration(Acceleration):
    """That of an `InnerProduct`."""

    inner_product = linear = True

    def __init__(self) -> None:
        super().__init__(numbers=1)

    def scale(self, score: "InnerProduct", width: int) -> float:  # type: ignore[override]
        return score.scale(width)
