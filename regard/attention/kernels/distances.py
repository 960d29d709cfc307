"""Biases of distance, the function of FIRE, and products of clipped distances, in C++ on a CPU.

A bias has one number for each diagonal. Relative keys multiply each query with the key of every
distance once.
"""

import math
from ctypes import CDLL
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention.kernels.choose import PASSES
from regard.attention.kernels.native import call, library_for
from regard.attention.prepared import Consecutive, Positions, distance
from regard.attention.tracing import on_cpu, refuse_second_derivative, transformed

#: Numbers of hidden units in memory at once, without C++: half a MB of float32; 256 MB on a GPU.
HIDDEN, HIDDEN_ON_GPU = 2**17, 2**26
#: Numbers per partial sum in C++, an argument of `unpieces`.
CHUNK = 2**14


def in_steps(positions: Positions) -> bool:
    """Return whether both sides are known, without waiting for a GPU, to be consecutive."""
    if isinstance(positions, Consecutive):
        return True
    return all(
        x.ndim == 1 and on_cpu(x) and len(x) > 0 and bool((x.diff() == 1).all()) for x in positions
    )


def diagonals(
    values: Float[Tensor, "... size"], n: int, rising: bool = False
) -> Float[Tensor, "... n m"]:
    """Return n rows of m = size − n + 1 columns with values[j − i + n − 1] at (i, j).

    ``rising``: the same rows from the last to the first, values[i + j], on a CPU a view of values.

    >>> diagonals(torch.tensor([-2, -1, 0, 1]), 3).tolist()
    [[0, 1], [-1, 0], [-2, -1]]
    """
    if n == 1:
        return values.unsqueeze(-2)
    if not on_cpu(values):
        copies = _copies(values, n)
        return copies.flip(-2) if rising else copies
    rows: Tensor = _Diagonals.apply(values, n, rising)  # type: ignore[no-untyped-call]
    return rows


def upto(rows: Float[Tensor, "... n m"], last: int) -> Float[Tensor, "... n m"]:
    """Return rising `diagonals`, a view, with −inf at (i, j) where i + j > last; as a view too.

    >>> upto(diagonals(torch.tensor([5.0, 6.0, 7.0, 8.0]), 2, rising=True), 2)
    tensor([[5., 6., 7.],
            [6., 7., -inf]])
    """
    n, m = rows.shape[-2:]
    sizes, strides = (*rows.shape[:-2], n + m - 1), rows.stride()[:-1]
    values = rows.as_strided(sizes, strides, rows.storage_offset())
    later = torch.arange(n + m - 1, device=rows.device) > last
    return values.masked_fill(later, -torch.inf).unfold(-1, m, 1)


def _copies(values: Float[Tensor, "... size"], n: int) -> Float[Tensor, "... n m"]:
    return _shorter(values.unsqueeze(-2).expand(*values.shape[:-1], n, -1))


def _shorter(rows: Float[Tensor, "... n size"]) -> Float[Tensor, "... n m"]:
    """Return the rows, one after another, read as rows that are one shorter from the n-th on."""
    n, size = rows.shape[-2:]
    shorter: Tensor = rows.flatten(-2)[..., n - 1 : -1].unflatten(-1, (n, size - 1))
    return shorter[..., : size - n + 1]


class _Diagonals(torch.autograd.Function):
    """`diagonals`, whose gradient is `_Sums`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, n: int, rising: bool) -> Tensor:
        ctx.how = n, rising
        return values.unfold(-1, values.shape[-1] - n + 1, 1) if rising else _copies(values, n)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return _Sums.apply(*upstream, ctx.how[1]), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        assert tangents[0] is not None
        return diagonals(tangents[0], *ctx.how)


class _Sums(torch.autograd.Function):
    """The sum of each diagonal, (…, n, m) to (…, n + m − 1), rising or falling."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rising: bool) -> Tensor:
        *batch, n, m = x.shape
        ctx.how = n, rising
        if (of := library_for("distances", x, x.numel() * PASSES)) is not None:
            sums = x.new_empty(*batch, n + m - 1)
            call("along", of, x.contiguous(), sums, x.shape[:-2].numel(), n, m, rising)
            return sums
        x = x.flip(-2) if rising else x
        rows = x.new_zeros(*batch, n, n + m - 1)
        _shorter(rows).copy_(x)
        return rows.sum(-2)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None]:
        return diagonals(upstream[0], *ctx.how), None

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor | None) -> Tensor:
        sums: Tensor = _Sums.apply(tangents[0], ctx.how[1])  # type: ignore[no-untyped-call]
        return sums


def clipped(
    products: Float[Tensor, "... rows places"], positions: Positions, side: int
) -> Float[Tensor, "... n m"]:
    """Return the product of each pair's distance j − i, clipped to ± places // 2.

    ``products`` has a row for each query (side −2) or each key (side −1), with the product of every
    distance.

    >>> products = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    >>> clipped(products, (torch.arange(2), torch.arange(3)), -2).tolist()
    [[2.0, 3.0, 3.0], [4.0, 5.0, 6.0]]
    """
    rows, columns = positions
    if on_cpu(products) and in_steps(positions) and transformed(products) is None:
        numbers = products.shape[:-2].numel() * len(rows) * len(columns)
        if (of := library_for("distances", products, numbers * PASSES)) is not None:
            how = len(rows), len(columns), int(columns[0] - rows[0]), side == -1, of
            y: Tensor = _Clipped.apply(products, *how)  # type: ignore[no-untyped-call]
            return y
    return picked(products, distance(positions), side)


def picked(
    products: Float[Tensor, "... rows places"], apart: Int[Tensor, "... n m"], side: int
) -> Float[Tensor, "... n m"]:
    """Return `clipped` for any distances of the pairs."""
    table, farthest = products if side == -2 else products.mT, products.shape[-1] // 2
    place = apart.clamp(-farthest, farthest) + farthest
    batch = torch.broadcast_shapes(table.shape[:-2], place.shape[:-2])
    axis = -1 if side == -2 else -2
    return table.expand(*batch, -1, -1).gather(axis, place.expand(*batch, -1, -1))


class _Clipped(torch.autograd.Function):
    """`clipped` in C++ for positions in steps, from the distance ``first`` at (0, 0)."""

    @staticmethod
    def forward(
        ctx: Any, products: Tensor, n: int, m: int, first: int, of_keys: bool, of: CDLL
    ) -> Tensor:
        *batch, count, places = products.shape
        assert places % 2 == 1
        assert count == (m if of_keys else n)
        x = (products.mT if of_keys else products).contiguous()
        y = x.new_empty(*batch, n, m)
        ctx.of, ctx.shape, ctx.of_keys = of, x.shape, of_keys
        ctx.sizes = math.prod(batch), n, m, places // 2, first, of_keys
        call("clipped", of, x, y, *ctx.sizes)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("a table of distances in C++")
        of_x = upstream[0].new_empty(ctx.shape)
        call("unclipped", ctx.of, upstream[0].contiguous(), of_x, *ctx.sizes)
        return of_x.mT if ctx.of_keys else of_x, *5 * [None]


def hidden(
    x: Tensor, first: Tensor, start: Tensor, second: Tensor, end: Tensor
) -> Float[Tensor, "outputs ..."]:
    """Return f(x) = w₂ relu(w₁ x + b₁) + b₂ of numbers x, a tensor like x for each output.

    ``first`` is (units, 1), ``start`` (units), ``second`` (outputs, units), ``end`` (outputs). In
    C++ f is linear between the bounds −b₁ / w₁: a unit with w₁ > 0 is on in the pieces after its
    bound, one with w₁ < 0 in those up to it, one with w₁ = 0 everywhere or nowhere.

    >>> one, two = torch.tensor([[1.0], [-1.0]]), torch.ones(1, 2)
    >>> hidden(torch.tensor([-3.0, 2.0]), one, torch.zeros(2), two, torch.zeros(1)).tolist()
    [[3.0, 2.0]]
    """
    of = library_for("distances", x, x.numel() * len(start))
    if of is None:
        y: Tensor = _Hidden.apply(x, first, start, second, end)  # type: ignore[no-untyped-call]
        return y
    by = first[:, 0]
    with torch.no_grad():
        begins = torch.where(by == 0, -start.sign() * torch.inf, -start / by)
        # A number at the bound is in the piece before it, where a unit with w₁ < 0 would be on.
        begins = torch.where(by < 0, begins.nextafter(begins.new_tensor(-torch.inf)), begins)
        bounds, order = begins.sort()
        rank, piece = order.argsort()[:, None], torch.arange(len(by) + 1, device=x.device)
        on = torch.where(by[:, None] >= 0, rank < piece, rank >= piece).to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):
        slopes, offsets = (second * by) @ on, torch.addmm(end[:, None], second * start, on)
    pieces: Tensor = _Pieces.apply(x, bounds, slopes, offsets, of)  # type: ignore[no-untyped-call]
    return pieces


class _Pieces(torch.autograd.Function):
    """slope x + offset of the piece that each x is in, in C++; (outputs, *x.shape)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bounds: Tensor, slopes: Tensor, offsets: Tensor, of: CDLL
    ) -> Tensor:
        x, slopes = x.contiguous(), slopes.contiguous()
        ctx.save_for_backward(x, bounds, slopes)
        ctx.of, ctx.sizes = of, (x.numel(), len(bounds), len(slopes))
        y = x.new_empty(len(slopes), *x.shape)
        call("pieces", of, x, bounds, slopes, offsets.contiguous(), y, *ctx.sizes)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        refuse_second_derivative("fire in C++")
        x, bounds, slopes = ctx.saved_tensors
        of_x, chunks = torch.empty_like(x), -(-x.numel() // CHUNK)
        of_slopes, of_offsets = (x.new_empty(chunks, *slopes.shape) for _ in range(2))
        given, results = upstream[0].contiguous(), (of_x, of_slopes, of_offsets)
        call("unpieces", ctx.of, x, given, bounds, slopes, *results, *ctx.sizes, CHUNK)
        return of_x, None, of_slopes.sum(0), of_offsets.sum(0), None


class _Hidden(torch.autograd.Function):
    """`hidden` by torch, a few x at a time; units are computed again in the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, first: Tensor, start: Tensor, second: Tensor, end: Tensor
    ) -> Tensor:
        ctx.save_for_backward(x, first, start, second)
        flat, step = x.reshape(-1), step_of(x, len(first))
        output = x.new_empty(len(second), len(flat))
        for i in range(0, len(flat), step):
            units = torch.addmm(start[:, None], first, flat[None, i : i + step]).relu_()
            output[:, i : i + step] = torch.addmm(end[:, None], second, units)
        return output.view(len(second), *x.shape)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, ...]:
        x, first, start, second = ctx.saved_tensors
        flat, step = x.reshape(-1), step_of(x, len(first))
        slope, of_x = upstream[0].reshape(len(second), -1), torch.empty_like(flat)
        of_first, of_start = torch.zeros_like(first), torch.zeros_like(start)
        of_second = torch.zeros_like(second)
        for i in range(0, len(flat), step):
            some, given = flat[i : i + step], slope[:, i : i + step]
            units = torch.addmm(start[:, None], first, some[None]).relu_()
            of_second.addmm_(given, units.mT)
            of_units = torch.ops.aten.threshold_backward(second.mT @ given, units, 0)
            of_first[:, 0] += of_units @ some
            of_start += of_units.sum(1)
            of_x[i : i + step] = first[:, 0] @ of_units
        return of_x.view(x.shape), of_first, of_start, of_second, slope.sum(1)


def step_of(x: Tensor, hidden: int) -> int:
    """Return of how many numbers the hidden units are in memory at once."""
    return max(1, (HIDDEN if x.device.type == "cpu" else HIDDEN_ON_GPU) // hidden)


def weigh(table: Tensor, logs: Tensor, mean: Tensor, products: Tensor, slopes: Tensor) -> None:
    """Replace products s by weights exp(s + t − L), and slopes g by (g − mean) · weight, in place.

    A table t, products and slopes are (texts, heads, n, m), logarithms (texts, heads, n) and means
    (texts, heads, n, 1).
    """
    table = table.expand(products.shape)
    if (of := library_for("distances", products, products.numel() * PASSES)) is not None:
        table = table if table.stride(-1) == 1 else table.contiguous()
        rows = logs.contiguous(), mean.contiguous()
        call("weigh", of, table, *rows, products, slopes, *products.shape, *table.stride()[:3])
        return
    products.add_(table).sub_(logs.unsqueeze(-1)).exp_()
    slopes.sub_(mean).mul_(products)
