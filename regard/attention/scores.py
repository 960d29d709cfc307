"""Scores: how well a key answers a query. A new one is a class and a row in ``SCORES``."""

from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.kernels import additive
from regard.errors import RegardError

#: How much a score may be wrong by for being a difference of two rounded squares.
DIGITS = 5e-5

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

    def forward(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        """``tile``: what a kernel calls the module for."""
        return self.tile(queries, keys, where)

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


class Dot(InnerProduct):
    """score(q, k) = q·k. Luong et al. 2015, equation 8."""

    name = "dot"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        if query_width is not None and key_width is not None:
            self.check(query_width, key_width)

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise RegardError(
                f"{self.name} compares queries and keys of one width, not {query_width} and "
                f"{key_width}; 'general' and 'additive' take two"
            )
        super().check(query_width, key_width)


class ScaledDot(Dot):
    """score(q, k) = q·k / √width. Vaswani et al. 2017, equation 1."""

    name = "scaled-dot"

    def scale(self, width: int) -> float:
        return float(width**-0.5)


class Cosine(Dot):
    """score(q, k) = q·k / (‖q‖ ‖k‖). Graves et al. 2014, equation 6; a zero vector scores 0."""

    name = "cosine"

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Tensor:
        return F.normalize(queries, dim=-1, eps=1e-8)

    def prepare_keys(self, keys: Tensor, where: Tensor) -> Tensor:
        return F.normalize(keys, dim=-1, eps=1e-8)


class Gaussian(Dot):
    """score(q, k) = −‖w(q − k)‖² / 2, with a learned inverse width w. Nadaraya 1964; Watson 1964.

    w starts at 1, or at width^(−1/4) when the width is told, where w² is scaled-dot's 1/√width.
    Written as an inner product, so that torch's fused kernel serves it:
    q' = [wq, 1, −‖wq‖²/2], k' = [wk, −‖wk‖²/2, 1].
    """

    name = "gaussian"
    translation_invariant = True

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        inverse_width: float | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        start = (query_width or 1) ** -0.25 if inverse_width is None else inverse_width
        self.inverse_width = nn.Parameter(torch.full((heads, 1, 1) if heads else (), start))

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Tensor:
        queries = self.inverse_width * queries
        return torch.cat([queries, torch.ones_like(queries[..., :1]), -half_norm(queries)], -1)

    def prepare_keys(self, keys: Tensor, where: Tensor) -> Tensor:
        keys = self.inverse_width * spread(keys, self.heads)
        return torch.cat([keys, -half_norm(keys), torch.ones_like(keys[..., :1])], -1)

    def loses_digits(self, queries: Prepared, keys: Prepared | None) -> bool:
        # Two halves of squared norms are subtracted; each is rounded to eps of itself.
        assert isinstance(queries, Tensor)
        if queries.dtype == torch.float64:
            return False
        if keys is None:
            return True
        assert isinstance(keys, Tensor)
        if not (queries.numel() and keys.numel()):
            return False
        limit = -DIGITS / torch.finfo(queries.dtype).eps
        smallest = torch.minimum(queries.detach()[..., -1].min(), keys.detach()[..., -2].min())
        return bool(smallest < limit)


class General(InnerProduct):
    """score(q, k) = qᵀ W k. Luong et al. 2015, equation 8. Widths may differ."""

    name = "general"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        query_width, key_width = both_widths(self.name, query_width, key_width)
        super().__init__(query_width, key_width, heads=heads, length=length)
        shape = (heads or 1, query_width, key_width)
        # Scores of unit variance for queries and keys of unit variance.
        weight = torch.randn(shape) * (query_width * key_width) ** -0.5
        self.weight = nn.Parameter(weight if heads else weight[0])

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Tensor:
        return queries @ self.weight


class Additive(Score):
    """score(q, k) = w·tanh(W_q q + W_k k + b). Bahdanau et al. 2015, appendix A.1.2.

    ``hidden`` units, by default as many as the key is wide.
    """

    name = "additive"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        hidden: int | None = None,
    ) -> None:
        query_width, key_width = both_widths(self.name, query_width, key_width)
        super().__init__(query_width, key_width, heads=heads, length=length)
        hidden = hidden or key_width
        of_heads = (heads,) if heads else ()

        def parameter(*shape: int, fan: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*of_heads, *shape).uniform_(-1, 1) * fan**-0.5)

        self.query_weight = parameter(query_width, hidden, fan=query_width)
        self.key_weight = parameter(key_width, hidden, fan=key_width)
        self.bias = nn.Parameter(torch.zeros(*of_heads, 1, hidden))
        self.weight = parameter(hidden, 1, fan=hidden)

    def prepare_queries(self, queries: Tensor, where: Tensor) -> Tensor:
        return queries @ self.query_weight + self.bias

    def prepare_keys(self, keys: Tensor, where: Tensor) -> Tensor:
        return spread(keys, self.heads) @ self.key_weight

    def compare(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        hidden = (queries[..., :, None, :] + keys[..., None, :, :]).tanh_()
        weight = self.weight[..., None, :, :] if self.heads else self.weight
        return (hidden @ weight).squeeze(-1)

    def tile(self, queries: Prepared, keys: Prepared, where: Where) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return additive.scores(queries, keys, self.weight)

    @property
    def additive(self) -> bool:
        return True

    def numbers_per_pair(self, keys: Prepared) -> int:
        return 1  # the kernel has smaller tiles of its own


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "scaled-dot": ScaledDot,
    "general": General,
    "additive": Additive,
    "cosine": Cosine,
    "gaussian": Gaussian,
}


def spread(keys: Tensor, heads: int | None) -> Tensor:
    """Give each query head its own copy of the key head that it shares with its neighbours.

    Grouped keys (\\*batch, groups, m, width) become (\\*batch, heads, m, width).
    """
    if heads is None or keys.shape[-3] in (1, heads):
        return keys
    return keys.repeat_interleave(heads // keys.shape[-3], -3)


def half_norm(x: Tensor) -> Tensor:
    """‖x‖² / 2 of each row, the last axis kept."""
    return x.square().sum(-1, keepdim=True) / 2


def both_widths(name: str, query_width: int | None, key_width: int | None) -> tuple[int, int]:
    """The two widths of a score that has projections; one stands for both."""
    if query_width is None or key_width is None:
        if query_width is None and key_width is None:
            raise RegardError(f"{name} has parameters: say query_width and key_width")
        return query_width or key_width or 0, key_width or query_width or 0
    return query_width, key_width
