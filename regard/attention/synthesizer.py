"""Synthesizers: scores that never read a key, only where it stands. Tay et al. 2020.

The dense ones make a row of scores from the query, the random ones learn it for each position.
Key j is position j, so caches and masks work as ever; a position beyond the ``length`` that a
synthesizer was made for is refused.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.prepared import Positions, Prepared
from regard.attention.score import InnerProduct, Score
from regard.attention.tracing import readable
from regard.errors import RegardError


class Synthesizer(Score):
    """A score with something learned for each of ``length`` positions."""

    #: Whether it projects the query, and so has to be told its width.
    reads_queries: ClassVar[bool] = True

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        if not length or length < 1:
            raise RegardError(
                f"{self.name} learns something for each position: say length=, the longest input"
            )
        if self.reads_queries and query_width is None:
            raise RegardError(f"{self.name} has parameters: say query_width=")
        super().__init__(query_width, key_width, heads=heads, length=length)

    def normal(self, *shape: int, init_std: float) -> Tensor:
        """Random numbers with this standard deviation, one set a head."""
        return torch.randn(*((self.heads,) if self.heads else ()), *shape) * init_std

    def check(self, query_width: int, key_width: int) -> None:
        super().check(query_width, self.key_width or key_width)  # keys of any width will do

    def within(self, positions: Int[Tensor, "... n"]) -> Int[Tensor, "... n"]:
        """The same positions, all of them below ``length``."""
        assert self.length is not None
        if not readable(positions):
            return positions
        if positions.numel() and bool(((positions < 0) | (positions >= self.length)).any()):
            low, high = int(positions.min()), int(positions.max())
            raise RegardError(
                f"{self.name} was made for length={self.length}, positions 0 to "
                f"{self.length - 1}, and was asked for {low} to {high}"
            )
        return positions

    def rows_at(
        self, table: Tensor, positions: Int[Tensor, "... _"], like: Float[Tensor, "... n _"]
    ) -> Float[Tensor, "... n width"]:
        """The rows of a table ([heads,] length, width) at the positions of the rows of ``like``."""
        positions, axes = self.within(positions), 3 if self.heads else 2
        if positions.ndim == 1:
            rows = table.index_select(-2, positions)
        elif self.heads:
            rows = table[torch.arange(self.heads, device=positions.device)[:, None], positions]
        else:
            rows = table[positions]
        batch = torch.broadcast_shapes(rows.shape[:-axes], like.shape[:-axes])
        return rows.expand(*batch, *rows.shape[-axes:-2], like.shape[-2], -1).to(like.dtype)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        self.within(positions)
        return keys[..., :0]


class DenseSynthesizer(Synthesizer, InnerProduct):
    """score(q, j) = ReLU(q A + b₁) · B_j + b₂_j, with A (width, hidden) and B (length, hidden).

    Tay et al. 2020, "Dense Synthesizer", in the form of softmax(ReLU(XA + b₁)B + b₂)(XV). An
    inner product of q' = [ReLU(q A + b₁), 1] and k' = [B_j, b₂_j], so that torch's fused kernel
    serves it. ``hidden`` units, by default as many as the query is wide.
    """

    name = "synthesizer"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        hidden: int | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        assert self.query_width
        assert self.length
        hidden = hidden or self.query_width
        # ReLU halves the second moment; the scores of unit queries have unit variance.
        init_std = (2 / self.query_width) ** 0.5
        self.query_weight = nn.Parameter(self.normal(self.query_width, hidden, init_std=init_std))
        self.query_bias = nn.Parameter(self.normal(1, hidden, init_std=0.0))
        self.weight = nn.Parameter(self.normal(self.length, hidden, init_std=hidden**-0.5))
        self.bias = nn.Parameter(self.normal(self.length, 1, init_std=0.0))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        hidden = affine(queries, self.query_weight, self.query_bias).relu()
        return torch.cat([hidden, torch.ones_like(hidden[..., :1])], -1)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        return self.rows_at(torch.cat([self.weight, self.bias], -1), positions, keys)


class RandomSynthesizer(Synthesizer):
    """score(i, j) = R[i, j], a learned table (length, length) that no input changes.

    Tay et al. 2020, "Random Synthesizer"; ``fixed``: as it was drawn, and not trained.
    """

    name = "synthesizer-random"
    reads_queries = False

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        fixed: bool = False,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        assert self.length
        table = self.normal(self.length, self.length, init_std=1.0)
        self.table: Tensor
        if fixed:
            self.register_buffer("table", table)
        else:
            self.table = nn.Parameter(table)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        self.within(positions)
        return queries[..., :0]

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        rows, columns = positions
        if rows.ndim == columns.ndim == 1:
            scores = self.table.index_select(-2, rows).index_select(-1, columns)
        else:
            pairs = (rows[..., :, None], columns[..., None, :])
            if self.heads:
                heads = torch.arange(self.heads, device=rows.device)[:, None, None]
                scores = self.table[heads, *pairs]
            else:
                scores = self.table[pairs]
        batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], scores.shape[:-2])
        return scores.expand(*batch, queries.shape[-2], keys.shape[-2])


class FactorisedRandomSynthesizer(Synthesizer, InnerProduct):
    """score(i, j) = R₁[i] · R₂[j], two learned tables (length, ``rank``).

    Tay et al. 2020, "Factorized Random Synthesizer", where the rank is 8. An inner product.
    """

    name = "synthesizer-factorised-random"
    reads_queries = False

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        rank: int = 8,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        assert self.length
        self.rows = nn.Parameter(self.normal(self.length, rank, init_std=rank**-0.25))
        self.columns = nn.Parameter(self.normal(self.length, rank, init_std=rank**-0.25))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        return self.rows_at(self.rows, positions, queries)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        return self.rows_at(self.columns, positions, keys)


class FactorisedSynthesizer(Synthesizer):
    """score(q, j) = f_A(q)[j mod a] · f_B(q)[j div a], f_A and f_B linear to a and b entries.

    Tay et al. 2020, "Factorized Dense Synthesizer": a + b numbers of each query in place of
    ``length``. There both vectors are tiled, [j mod a] · [j mod b], which gives positions the same
    score wherever a and b have a common divisor; here the second one's entries are repeated
    instead, so that each position has a pair of its own. ``a`` is by default √length, rounded up,
    and b the least with a·b ≥ length.
    """

    name = "synthesizer-factorised"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        a: int | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        assert self.query_width
        assert self.length
        self.a = a or math.isqrt(self.length - 1) + 1
        self.b = -(-self.length // self.a)
        init_std = self.query_width**-0.5
        self.a_weight = nn.Parameter(self.normal(self.query_width, self.a, init_std=init_std))
        self.a_bias = nn.Parameter(self.normal(1, self.a, init_std=0.0))
        self.b_weight = nn.Parameter(self.normal(self.query_width, self.b, init_std=init_std))
        self.b_bias = nn.Parameter(self.normal(1, self.b, init_std=0.0))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return (
            affine(queries, self.a_weight, self.a_bias),
            affine(queries, self.b_weight, self.b_bias),
        )

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        (of_a, of_b), columns = queries, positions[1]
        scores = entries_at(of_a, columns % self.a) * entries_at(
            of_b, columns.div(self.a, rounding_mode="floor")
        )
        assert isinstance(keys, Tensor)
        batch = torch.broadcast_shapes(scores.shape[:-2], keys.shape[:-2])
        return scores.expand(*batch, -1, keys.shape[-2])


def affine(
    x: Float[Tensor, "... n width"], weight: Tensor, bias: Float[Tensor, "... 1 out"]
) -> Float[Tensor, "... n out"]:
    """x W + b in the precision of the product: under autocast a bias in float32 would bring the
    scores, and all of attention after them, to float32."""
    product = x @ weight
    return product + bias.to(product.dtype)


def entries_at(
    x: Float[Tensor, "... n width"], which: Int[Tensor, "... m"]
) -> Float[Tensor, "... n m"]:
    """x[…, i, which[…, j]] for each i and j: a product with zeros and ones, whose gradient is a
    product too, where that of an index adds numbers one by one."""
    ones = which[..., None] == torch.arange(x.shape[-1], device=x.device)
    return x @ ones.to(x.dtype).mT
