"""What a score is: the contract that kernels, positions and every row of ``SCORES`` rest on."""

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration, ProductAcceleration
from regard.attention.prepared import Positions, Prepared
from regard.errors import RegardError


class Score(nn.Module):
    """score(q, k), in three methods, so that nothing is done per pair that can be done per row.

    ``prepare_queries`` and ``prepare_keys`` run once per row (projections, rotations, features)
    and give a tensor or a tuple of tensors with the rows at axis −2; they do not see each other's
    side. ``compare`` runs once per pair, on any tile of rows × columns. ``positions`` holds integer
    positions: (\\*batch, n) in the prepare methods, a pair (rows, columns) in ``compare``.
    Whatever in ``compare`` needs a gradient is a registered parameter or comes from prepare.

    With ``heads=h``, axis −3 of queries and keys is heads, and parameters are one set a head.
    """

    name: ClassVar[str] = "score"
    #: What kernels may do faster than ``compare``; the default fits every score.
    acceleration: Acceleration = Acceleration()

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__()
        self.query_width, self.key_width = query_width, key_width
        self.heads, self.length = heads, length

    def prepare_queries(
        self, queries: Float[Tensor, "... queries width"], positions: Int[Tensor, "... queries"]
    ) -> Prepared:
        """Compute what a query needs once. By default nothing."""
        return queries

    def prepare_keys(
        self, keys: Float[Tensor, "... keys width"], positions: Int[Tensor, "... keys"]
    ) -> Prepared:
        """Compute what a key needs once; a cache keeps the result. By default nothing."""
        return keys

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        """Compute the scores (\\*batch, rows, columns) of prepared queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} has no compare(queries, keys, positions)")

    def check(self, query_width: int, key_width: int) -> None:
        """Raise a RegardError for widths that this score was not made for."""
        made = (self.query_width or query_width, self.key_width or key_width)
        if made != (query_width, key_width):
            raise RegardError(
                f"this {self.name} score was made for queries and keys of widths "
                f"{made[0]} and {made[1]}, not {query_width} and {key_width}"
            )

    def extra_repr(self) -> str:
        """Return the sizes that it was made with, for its repr."""
        names = ("query_width", "key_width", "heads", "length")
        sizes = {name: getattr(self, name, None) for name in names}
        return ", ".join(f"{name}={size}" for name, size in sizes.items() if size is not None)


class InnerProduct(Score):
    """A score whose compare is scale · q'·k', whatever the prepare methods do."""

    acceleration = ProductAcceleration()

    def scale(self, width: int) -> float:
        """Return the factor before q'·k' if the prepared queries have this width."""
        return 1.0

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return self.scale(queries.shape[-1]) * queries @ keys.mT
