"""What a score is: the contract that kernels, positions and every row of ``SCORES`` rest on."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.kernels.compiled import compile_leniently, wanted
from regard.errors import RegardError

Prepared = Tensor | tuple[Tensor, ...]
Where = tuple[Int[Tensor, "... queries"], Int[Tensor, "... keys"]]


class Score(nn.Module):
    """score(q, k), in three methods, so that nothing is done per pair that can be done per row.

    ``prepare_queries`` and ``prepare_keys`` run once per row (projections, rotations, features)
    and give a tensor or a tuple of tensors with the rows at axis −2; they do not see each other's
    side. ``compare`` runs once per pair, on any tile of rows × columns. ``where`` holds integer
    positions: (\\*batch, n) in the prepare methods, a pair (rows, columns) in ``compare``.
    Whatever in ``compare`` needs a gradient is a registered parameter or comes from prepare.

    With ``heads=h``, axis −3 of queries and keys is heads, and parameters are one set a head.
    """

    name: ClassVar[str] = "score"
    #: compare(q', k') is scale · q'·k', so torch's fused kernels can serve it.
    inner_product: bool = False
    #: score(q + c, k + c) = score(q, k), so both sides may be centred before any rounding.
    translation_invariant: ClassVar[bool] = False

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

    def extra_repr(self) -> str:
        """The sizes that it was made with, for its repr."""
        names = ("query_width", "key_width", "heads", "length")
        sizes = {name: getattr(self, name, None) for name in names}
        return ", ".join(f"{name}={size}" for name, size in sizes.items() if size is not None)

    def prepare_queries(
        self, queries: Float[Tensor, "... queries width"], where: Int[Tensor, "... queries"]
    ) -> Prepared:
        """What a query needs done once. By default nothing."""
        return queries

    def prepare_keys(
        self, keys: Float[Tensor, "... keys width"], where: Int[Tensor, "... keys"]
    ) -> Prepared:
        """What a key needs done once; a cache keeps the result. By default nothing."""
        return keys

    def compare(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        """The scores (\\*batch, rows, columns) of prepared queries and keys."""
        raise NotImplementedError(f"{type(self).__name__} has no compare(queries, keys, where)")

    def tile(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        """As ``compare``, which it is by default, for kernels that go by tiles.

        A score that knows a quicker way to the same numbers takes it here.
        """
        return self.compare(queries, keys, where)

    @property
    def linear(self) -> bool:
        """Whether it is scale · q'·k' and something that reads no key: see the next two."""
        return self.inner_product

    def product_queries(self, queries: Prepared) -> Prepared:
        """The q' of that product, one of the prepared tensors."""
        return queries

    def beside_product(self, queries: Prepared, where: Where) -> Tensor | None:
        """What is added to the product, broadcastable to the scores; None for nothing."""
        return None

    def forward(self, queries: Prepared, keys: Prepared | None, where: Where) -> Tensor | None:
        """What a kernel calls the module for: ``tile``, compiled where that is wanted and pays.

        Without keys, ``beside_product``.
        """
        if keys is None:
            return self.beside_product(queries, where)
        if not wanted() or self.numbers_per_pair(keys) <= 1:
            return self.tile(queries, keys, where)
        kind = type(self)
        function = kind.compare if kind.tile is Score.tile else kind.tile
        try:
            scores: Tensor = compile_leniently(function)(self, queries, keys, where)
        except Exception as error:
            if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise
            raise RegardError(
                f"{kind.__name__}.{function.__name__} cannot be compiled "
                f"({str(error).strip().splitlines()[0]}); override numbers_per_pair to return 1, "
                "and it will be computed as it stands"
            ) from error
        return scores

    def numbers_per_pair(self, keys: Prepared) -> int:
        """How many numbers ``tile`` holds at once for a pair: by default one a column of a key.

        Tiles of a score that holds many are smaller.
        """
        first = keys if isinstance(keys, Tensor) else keys[0]
        return int(first.shape[-1])

    @property
    def additive(self) -> bool:
        """Whether a pair costs a hidden layer, by the kernel of `Additive`."""
        return False

    def loses_digits(self, queries: Prepared, keys: Prepared | None) -> bool:
        """Whether the dtype of these prepared rows is too coarse for their scores.

        Without keys, whether it may be for some keys.
        """
        return False

    def scale(self, width: int) -> float:
        """The factor before q'·k' of an inner product whose prepared queries have this width."""
        return 1.0

    def check(self, query_width: int, key_width: int) -> None:
        """Refuse widths that this score was not made for."""
        made = (self.query_width or query_width, self.key_width or key_width)
        if made != (query_width, key_width):
            raise RegardError(
                f"this {self.name} score was made for queries and keys of widths "
                f"{made[0]} and {made[1]}, not {query_width} and {key_width}"
            )


class InnerProduct(Score):
    """A score whose compare is scale · q'·k', whatever the prepare methods do."""

    inner_product = True

    def compare(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return self.scale(queries.shape[-1]) * queries @ keys.mT

    def numbers_per_pair(self, keys: Prepared) -> int:
        return 1


def as_tuple(prepared: Prepared) -> tuple[Tensor, ...]:
    """What a prepare method gave, as a tuple."""
    return prepared if isinstance(prepared, tuple) else (prepared,)


def spread(keys: Tensor, heads: int | None) -> Tensor:
    """Give each query head its own copy of the key head that it shares with its neighbours.

    Grouped keys (\\*batch, groups, m, width) become (\\*batch, heads, m, width).
    """
    if heads is None or keys.shape[-3] in (1, heads):
        return keys
    return keys.repeat_interleave(heads // keys.shape[-3], -3)


def per_positions(x: Tensor, where: Tensor) -> Tensor:
    """Rows that several texts share, (…, n, width), once for each of the texts' positions (…, n).

    >>> per_positions(torch.zeros(1, 5, 8), torch.zeros(3, 5)).shape
    torch.Size([3, 5, 8])
    """
    if where.ndim == 1:
        return x
    return x.expand(*torch.broadcast_shapes(x.shape[:-2], where.shape[:-1]), *x.shape[-2:])
