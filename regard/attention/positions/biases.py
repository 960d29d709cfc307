"""Functions of the distance that are added to a score: ALiBi, T5, Kerple, FIRE, signed ALiBi."""

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from regard.attention.kernels.distances import diagonals, hidden, in_steps
from regard.attention.prepared import Positions, Prepared, as_tuple, distance, like, repeat_kv
from regard.attention.score import Score
from regard.attention.scores.wrapper import (
    ProductWrapper,
    ProductWrapperAcceleration,
    Wrapper,
    WrapperAcceleration,
)
from regard.attention.tracing import on_cpu, readable
from regard.core.errors import RegardError


class DistanceBiasAcceleration(WrapperAcceleration):
    """The acceleration of a `DistanceBias`."""

    def by_distance(self, score: "DistanceBias", positions: Positions) -> bool:  # type: ignore[override]
        return self.inner.inner_product


class DistanceBias(Wrapper):
    """score(q, k) + f(j − i), with a function f per head; a base class.

    A subclass defines `of_distance`. For consecutive positions f is computed once per diagonal.
    """

    accelerated_by = DistanceBiasAcceleration

    def of_distance(self, apart: Int[Tensor, "... n m"], queries: Tensor) -> Tensor:
        """Return f of distances, (…, [heads,] n, m), on the device and in the dtype of queries."""
        raise NotImplementedError(f"{type(self).__name__} has no of_distance(apart, queries)")

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        first = as_tuple(queries)[0]
        return of_distances(lambda apart: self.of_distance(apart, first), positions)


def of_distances(
    function: Callable[[Int[Tensor, "... n m"]], Tensor], positions: Positions
) -> Float[Tensor, "... n m"]:
    """Return a function of j − i; once per diagonal, in the gradient too, if both are in steps.

    The queries may be in steps from the last to the first.
    """
    rows, columns = positions
    rising = not in_steps(positions)
    if rising and not (on_cpu(rows) and rows.ndim == 1 and in_steps((rows.flip(0), columns))):
        return function(distance(positions))
    n, m = len(rows), len(columns)
    apart = columns[0] - rows[0 if rising else -1] + torch.arange(n + m - 1, device=rows.device)
    return diagonals(function(apart[None])[..., 0, :], n, rising)


class Alibi(DistanceBias):
    """score(q, k) − slope · |i − j|, slopes 2^(−8h/heads) for h = 1 … heads. Press et al. 2022.

    Scores are (…, [heads,] n, m). If the number of heads is not a power of two, the slopes follow
    the paper's code: those of the next lower power, then every other one of the next higher.

    >>> from regard.attention.scores import Dot
    >>> Alibi(Dot(heads=2)).slopes.flatten().tolist()
    [0.0625, 0.00390625]
    """

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        slopes = alibi_slopes(inner.heads or 1)
        self.slopes = slopes[:, None, None] if inner.heads else slopes[0]

    def of_distance(self, apart: Int[Tensor, "... n m"], queries: Tensor) -> Tensor:
        return -like(self.slopes, queries) * apart.abs()


def alibi_slopes(heads: int) -> Float[Tensor, " {heads}"]:
    """Return a slope per head, in float32 on the CPU.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    slopes += between[: heads - power]
    return torch.tensor(slopes, dtype=torch.float32, device="cpu")


class RelativeBias(DistanceBias):
    """score(q, k) + b[bucket(j − i)], a learned bias per bucket and head. Raffel et al. 2020, 2.1.

    Scores are (…, [heads,] n, m), b is (heads, buckets). Half of the buckets are for each direction
    (``bidirectional``), or all for the past. Near distances have a bucket each, farther ones share
    buckets in logarithmic steps up to ``farthest``.

    >>> from regard.attention.scores import Dot
    >>> RelativeBias(Dot(heads=2)).bias.shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        inner: Score,
        *,
        buckets: int = 32,
        farthest: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(inner)
        self.buckets, self.farthest, self.bidirectional = buckets, farthest, bidirectional
        self.bias = nn.Parameter(torch.randn(inner.heads or 1, buckets) * 0.02)

    def of_distance(self, apart: Int[Tensor, "... n m"], queries: Tensor) -> Tensor:
        bias, bucket = self.bias if self.heads else self.bias[0], self.buckets_of(apart)
        if bucket.ndim == 2 and bucket.shape[0] == 1:  # a sum as product: a GPU sorts an index
            every = torch.arange(self.buckets, device=bucket.device)
            return (bias @ (bucket == every[:, None]).to(bias.dtype)).unsqueeze(-2)
        if bucket.ndim == 2 or not self.heads:
            return bias[..., bucket]
        return bias.T[bucket].movedim(-1, -3).squeeze(-4)

    def buckets_of(self, apart: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the bucket of each distance."""
        return t5_bucket(apart, self.buckets, self.farthest, self.bidirectional)


def t5_bucket(
    distance: Int[Tensor, "..."], buckets: int, farthest: int, bidirectional: bool
) -> Int[Tensor, "..."]:
    """Return T5's bucket of j − i: exact if near, logarithmic up to ``farthest``, then the last.

    >>> t5_bucket(torch.tensor([-200, -9, -1, 0, 1, 9, 200]), 32, 128, True).tolist()
    [15, 8, 1, 0, 17, 24, 31]
    """
    first = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    steps = (distance.clamp(min=1).double() / exact).log() / math.log(farthest / exact)
    # A GPU's logarithm of a distance at which a bucket begins may be a little too small.
    beyond = (exact + (steps * (buckets - exact) + 1e-9).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, beyond)


class Kerple(DistanceBias):
    """score(q, k) − r₁ ln(1 + r₂ |i − j|), with r₁, r₂ > 0 learned per head. Chi et al. 2022.

    This is the paper's logarithmic kernel. Scores are (…, [heads,] n, m). r = softplus(parameter)
    starts at 1 for r₂ and, over the heads, between 0.1 and 2 for r₁.

    >>> from regard.attention.scores import Dot
    >>> Kerple(Dot(heads=4)).slopes().flatten()
    tensor([0.1000, 0.7333, 1.3667, 2.0000], grad_fn=...)
    """

    name = "kerple"

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        shape = (inner.heads, 1, 1) if inner.heads else ()
        start = torch.linspace(0.1, 2.0, inner.heads).view(shape) if inner.heads else torch.ones(())
        self.slope = nn.Parameter(_unsoftplus(start))
        self.reach = nn.Parameter(_unsoftplus(torch.ones(shape)))

    def slopes(self) -> Tensor:
        """Return r₁ of each head."""
        return softplus(self.slope)

    def of_distance(self, apart: Int[Tensor, "... n m"], queries: Tensor) -> Tensor:
        bias = -self.slopes() * torch.log1p(softplus(self.reach) * apart.abs())
        return bias.to(queries.dtype)


def _unsoftplus(x: Tensor) -> Tensor:
    """Return y with softplus(y) = x."""
    return x + torch.log(-torch.expm1(-x))


class FireAcceleration(WrapperAcceleration):
    """The acceleration of `Fire`: hidden units of each pair, unless added to an inner product."""

    def by_distance(self, score: "Fire", positions: Positions) -> bool:  # type: ignore[override]
        return self.inner.inner_product and score.all_near(positions[0])

    def numbers_per_pair(self, score: "Fire", keys: Prepared) -> int:  # type: ignore[override]
        numbers = super().numbers_per_pair(score, keys)
        return numbers if self.linear else max(numbers, score.hidden)


class Fire(Wrapper):
    """score(q, k) + f(ψ(|i − j|) / ψ(max(i, L))), ψ(x) = ln(1 + c x). Li et al. 2024.

    Scores are (…, [heads,] n, m). f has one hidden layer of ``hidden`` ReLUs and a number per head;
    c > 0 and L > 0 are learned and start at 0.1 and 512. Distances are relative
    to the query's position i, so that those of longer texts are in the trained range.

    >>> from regard.attention.scores import Dot
    >>> sum(x.numel() for x in Fire(Dot(heads=2)).parameters())
    132
    """

    name = "fire"
    options: ClassVar[Mapping[str, int]] = {"hidden": 1}
    accelerated_by = FireAcceleration

    def __init__(self, inner: Score, *, hidden: int = 32) -> None:
        super().__init__(inner)
        if hidden != int(hidden) or hidden < 1:
            raise RegardError(f"fire needs at least one hidden unit, not {hidden}")
        self.hidden = int(hidden)
        self.function = nn.Sequential(
            nn.Linear(1, self.hidden), nn.ReLU(), nn.Linear(self.hidden, inner.heads or 1)
        )
        self.c = nn.Parameter(_unsoftplus(torch.tensor(0.1)))
        self.threshold = nn.Parameter(torch.tensor(512.0))

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        c, dtype, rows = softplus(self.c), as_tuple(queries)[0].dtype, positions[0]
        least = self.threshold.abs()
        if self.all_near(rows):
            whole = torch.log1p(c * least)
            return of_distances(
                lambda apart: self.of_share(torch.log1p(c * apart.abs()) / whole, dtype), positions
            )
        logarithm = of_distances(lambda apart: torch.log1p(c * apart.abs()), positions)
        longest = rows.to(c.dtype).maximum(least)[..., None]
        return self.of_share(logarithm / torch.log1p(c * longest), dtype)

    def all_near(self, rows: Tensor) -> bool:
        """Return whether no query is beyond the threshold: f depends on the distance alone."""
        least = self.threshold.abs()
        return on_cpu(least) and on_cpu(rows) and bool((rows < least).all())

    def of_share(self, share: Float[Tensor, "... n m"], dtype: torch.dtype) -> Tensor:
        """Return f of ψ(|i − j|) / ψ(max(i, L)), (…, [heads,] n, m)."""
        if readable(share) and self.acceleration.linear and share.dtype == self.c.dtype:
            one, last = self.function[0], self.function[2]
            weights: tuple[Any, ...] = one.weight, one.bias, last.weight, last.bias
            values = hidden(share, *weights).movedim(0, -1)
        else:
            values = self.function(share[..., None])
        if not self.heads:
            return values.to(dtype).squeeze(-1)
        of_heads = values.to(dtype).movedim(-1, -3)
        return of_heads if values.ndim == 3 else of_heads.squeeze(-4)


class ColumnsAcceleration(ProductWrapperAcceleration):
    """The acceleration of a sum as columns: weights of far keys become very small."""

    decays = True


class ExtraColumns(ProductWrapper):
    """score(q, k) + a(i)·b(j), as additional columns of an inner product; a base class.

    The sum stays an inner product, which torch's fused kernels serve. A subclass defines
    ``query_columns`` and ``key_columns``. Raise a RegardError if the inner score is not an inner
    product.
    """

    accelerated_by = ColumnsAcceleration
    columns: ClassVar[int] = 1

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        if not self.takes(inner):
            raise RegardError(
                f"position {self.name!r} needs an inner product such as scaled-dot, not "
                f"{inner.name}; use alibi"
            )

    @classmethod
    def takes(cls, inner: Score) -> bool:
        return inner.acceleration.inner_product

    def scale(self, width: int) -> float:
        return self.inner.acceleration.scale(self.inner, width - self.columns)

    def query_columns(self, queries: Tensor, positions: Tensor) -> Tensor:
        """Return a(i) of each query, (…, n, columns)."""
        raise NotImplementedError(f"{type(self).__name__} has no query_columns(queries, positions)")

    def key_columns(self, keys: Tensor, positions: Tensor) -> Tensor:
        """Return b(j) of each key, (…, m, columns)."""
        raise NotImplementedError(f"{type(self).__name__} has no key_columns(keys, positions)")

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        prepared = self.inner.prepare_queries(queries, positions)
        assert isinstance(prepared, Tensor)
        return joined(prepared, self.query_columns(prepared, positions))

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        prepared = self.inner.prepare_keys(keys, positions)
        assert isinstance(prepared, Tensor)
        columns = self.key_columns(prepared, positions)
        of_heads = columns.ndim > 2 and columns.shape[-3] > 1
        return joined(repeat_kv(prepared, self.heads) if of_heads else prepared, columns)


def joined(x: Tensor, columns: Tensor) -> Tensor:
    """Return x with additional columns, over the batch of both and in the dtype of x."""
    batch = torch.broadcast_shapes(x.shape[:-2], columns.shape[:-2])
    columns = columns.to(x.dtype)
    return torch.cat([x.expand(*batch, -1, -1), columns.expand(*batch, -1, -1)], -1)


class SignedAlibi(ExtraColumns):
    """score(q, k) + slope · (j − i), with the slopes of `Alibi`. Press et al. 2022.

    Under a causal mask this is ALiBi, as four more columns of an inner product: positions in two
    digits of base 256, which bfloat16 holds exactly up to position 65,535.

    >>> from regard.attention.scores import Dot
    >>> places = torch.arange(2)
    >>> score, x = SignedAlibi(Dot(2, 2)), torch.zeros(2, 2)
    >>> prepared = score.prepare_queries(x, places), score.prepare_keys(x, places)
    >>> score.compare(*prepared, (places, places))
    tensor([[ 0.0000,  0.0039],
            [-0.0039,  0.0000]])
    """

    name = "alibi-signed"
    columns: ClassVar[int] = 4

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        slopes = alibi_slopes(inner.heads or 1)
        self.slopes = slopes[:, None, None] if inner.heads else slopes[0].view(1, 1)

    # Slope and digits stand in columns of different sides: each is exact, and so is a product.
    def query_columns(self, queries: Tensor, positions: Tensor) -> Tensor:
        digits, slopes = self._columns(queries, positions)
        return torch.cat([-digits, slopes], -1)

    def key_columns(self, keys: Tensor, positions: Tensor) -> Tensor:
        digits, slopes = self._columns(keys, positions)
        return torch.cat([slopes, digits], -1)

    def _columns(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        scale = self.inner.acceleration.scale(self.inner, x.shape[-1])
        slopes = (self.slopes.to(x.device, non_blocking=True) / scale).to(x.dtype)
        high = positions.div(256, rounding_mode="floor") * 256
        digits = torch.stack([high, positions - high], -1).to(x.dtype)
        batch = torch.broadcast_shapes(digits.shape[:-2], slopes.shape[:-2])
        size = (*batch, digits.shape[-2], 2)
        return digits.expand(size), slopes.expand(size)
