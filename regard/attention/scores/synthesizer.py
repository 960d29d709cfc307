"""Synthesizers: scores that read the positions of keys and not their contents. Tay et al. 2020.

The dense synthesizers compute a row of scores from the query, the random ones learn a row for each
position. Key j is position j, so that caches and masks work as usual; a position at or beyond the
synthesizer's ``length`` raises an error.
"""

import math
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.prepared import Consecutive, Positions, Prepared
from regard.attention.score import InnerProduct, Score
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError


class Synthesizer(Score):
    """A score with parameters for each of ``length`` positions, the base class.

    Raise a RegardError without a length, for positions outside 0 … length − 1, and without
    ``query_width`` if the score reads queries.
    """

    #: Whether the score projects the query, and so needs ``query_width``.
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
                f"score {self.name!r} has parameters for each position; pass length=, the maximum "
                "input length"
            )
        if self.reads_queries and query_width is None:
            raise RegardError(f"score {self.name!r} has parameters; pass query_width=")
        super().__init__(query_width, key_width, heads=heads, length=length)

    def normal(self, *shape: int, init_std: float) -> Tensor:
        """Return random numbers with this standard deviation, one set per head."""
        return torch.randn(*((self.heads,) if self.heads else ()), *shape) * init_std

    def check(self, query_width: int, key_width: int) -> None:
        super().check(query_width, self.key_width or key_width)  # keys may have any width

    def within(self, positions: Int[Tensor, "... n"]) -> Int[Tensor, "... n"]:
        """Return the positions; on a CPU, raise a RegardError unless all are in 0 … length − 1."""
        assert self.length is not None
        if not on_cpu(positions):
            return positions
        if positions.numel() and bool(((positions < 0) | (positions >= self.length)).any()):
            low, high = int(positions.min()), int(positions.max())
            raise RegardError(
                f"score {self.name!r} has length={self.length}, positions 0 to {self.length - 1}; "
                f"positions {low} to {high} need a larger length"
            )
        return positions

    def rows_at(
        self, table: Tensor, positions: Int[Tensor, "... _"], inputs: Float[Tensor, "... n _"]
    ) -> Float[Tensor, "... n width"]:
        """Return the rows of a table ([heads,] length, width) at these positions.

        The result has the batch axes, the number of rows and the dtype of ``inputs``.
        """
        positions, axes = self.within(positions), 3 if self.heads else 2
        if positions.ndim == 1:
            rows = table.index_select(-2, positions)
        elif self.heads:
            rows = table[torch.arange(self.heads, device=positions.device)[:, None], positions]
        else:
            rows = table[positions]
        batch = torch.broadcast_shapes(rows.shape[:-axes], inputs.shape[:-axes])
        return rows.expand(*batch, *rows.shape[-axes:-2], inputs.shape[-2], -1).to(inputs.dtype)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        self.within(positions)
        return keys[..., :0]


class DenseSynthesizer(Synthesizer, InnerProduct):
    """score(q, j) = ReLU(q A + b₁) · B_j + b₂_j, with A (width, hidden) and B (length, hidden).

    Tay et al. 2020, "Dense Synthesizer": softmax(ReLU(XA + b₁)B + b₂)(XV). Queries (…, n, width)
    and m ≤ length keys give scores (…, n, m). The score is an inner product of
    q' = [ReLU(q A + b₁), 1] and k' = [B_j, b₂_j], so that torch's fused kernel computes it. The
    number of ``hidden`` units defaults to the query's width.

    >>> score = DenseSynthesizer(4, length=6)
    >>> score.query_weight.shape, score.weight.shape
    (torch.Size([4, 4]), torch.Size([6, 4]))
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
        # ReLU halves the second moment; queries of unit variance have scores of unit variance.
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
    """score(i, j) = R[i, j], a learned table (length, length) independent of the input.

    Tay et al. 2020, "Random Synthesizer". n queries and m keys have scores (…, n, m). With
    ``fixed`` the table is random and not trained.

    >>> RandomSynthesizer(length=6, heads=2).table.shape
    torch.Size([2, 6, 6])
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
        """Return the rows of the table, or nothing if each text has positions of its own."""
        positions = self.within(positions)
        if positions.ndim > 1:
            return queries[..., :0]
        return self.table.index_select(-2, positions).to(queries.dtype)

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        rows, columns = positions
        if rows.ndim == columns.ndim == 1:
            if not isinstance(positions, Consecutive) or not on_cpu(columns) or not len(columns):
                scores = queries.index_select(-1, columns)
            elif len(columns) < queries.shape[-1]:
                scores = queries.narrow(-1, int(columns[0]), len(columns))
            else:
                scores = queries
        else:
            table = self.table
            if rows.ndim == 1:
                table, rows = queries, torch.arange(len(rows), device=rows.device)
            pairs = (rows[..., :, None], columns[..., None, :])
            if self.heads:
                heads = torch.arange(self.heads, device=rows.device)[:, None, None]
                scores = table[heads, *pairs]
            else:
                scores = table[pairs]
        batch = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], scores.shape[:-2])
        return scores.expand(*batch, queries.shape[-2], keys.shape[-2])


class FactorisedRandomSynthesizer(Synthesizer, InnerProduct):
    """score(i, j) = R₁[i] · R₂[j], with two learned tables (length, ``rank``).

    Tay et al. 2020, "Factorized Random Synthesizer", where the rank is 8. n queries and m keys
    have scores (…, n, m).

    >>> FactorisedRandomSynthesizer(length=6).rows.shape
    torch.Size([6, 8])
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

    Tay et al. 2020, "Factorized Dense Synthesizer": a + b numbers per query instead of ``length``.
    Queries (…, n, width) and m ≤ length keys give scores (…, n, m). The paper tiles both vectors,
    [j mod a] · [j mod b], so that positions share a score if a and b have a common divisor; here
    the entries of the second are repeated, so that each position has its own pair. ``a`` defaults
    to √length, rounded up, and b is the least number with a·b ≥ length.

    >>> score = FactorisedSynthesizer(4, length=10)
    >>> score.a, score.b
    (4, 3)
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
    """Return x W + b in the dtype of the product.

    Under autocast a float32 bias would promote the scores, and all of attention, to float32.
    """
    product = x @ weight
    return product + bias.to(product.dtype)


def entries_at(
    x: Float[Tensor, "... n width"], which: Int[Tensor, "... m"]
) -> Float[Tensor, "... n m"]:
    """Return x[…, i, which[…, j]] for each i and j, as a product with zeros and ones.

    The gradient is a product too, while that of indexing adds numbers one by one.
    """
    ones = which[..., None] == torch.arange(x.shape[-1], device=x.device)
    return x @ ones.to(x.dtype).mT
