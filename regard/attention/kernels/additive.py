"""Additive scores by a rational function: w·tanh(q + k) without a tanh per pair.

tanh(q + k) = 1 − 2 / (1 + e^{2q} e^{2k}), and both exponentials are computed once per row, so that
a pair costs one multiply-add and one division per hidden unit. The derivative is 4 r (1 − r) for
r = 1 / (1 + e^{2q} e^{2k}); the backward pass computes r again, so that no tensor of size
rows × columns × hidden is ever in memory.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from regard.attention.kernels.compiled import compile_once, wanted
from regard.attention.kernels.native import call as native
from regard.attention.kernels.native import library
from regard.attention.tracing import on_cpu

#: Numbers per tile of the eager form: a megabyte of float32, which fits a core's cache.
NUMBERS = 2**18
#: The same on a GPU, where a tile is a few launches.
NUMBERS_ON_GPU = 2**25
#: If all hidden units of a query are at most the first number, e^{2q} is in range, and a product
#: with a key clamped to the second still saturates. Other rows, which are rare, use tanh itself.
#: The choice depends on the row alone, so that later rows change no bit of earlier results.
RANGE = {torch.float32: (33.0, 44.0), torch.float64: (150.0, 340.0)}


def scores(queries: Tensor, keys: Tensor, weight: Tensor) -> Tensor:
    """Compute w·tanh(q_i + k_j), (…, rows, columns).

    Queries are (…, rows, hidden), keys (…, columns, hidden) and the weight (…, hidden, 1); batch
    axes broadcast. Differentiable once.
    """
    result: Tensor = _Rational.apply(  # type: ignore[no-untyped-call]
        queries, keys, weight.squeeze(-1), wanted()
    )
    return result


class _Rational(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, weight: Tensor, fast: bool) -> Tensor:
        ctx.save_for_backward(queries, keys, weight)
        ctx.fast = fast
        q, k, w, shape = together(queries, keys, weight)
        with torch.autocast(q.device.type, enabled=False):
            scores = _forward(q, k, w, fast)
        return scores.view(*shape, *scores.shape[-2:]).to(queries.dtype)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        queries, keys, weight = ctx.saved_tensors
        q, k, w, shape = together(queries, keys, weight)
        g = (
            upstream[0]
            .expand(*shape, *upstream[0].shape[-2:])
            .reshape(len(q), *upstream[0].shape[-2:])
        )
        with torch.autocast(q.device.type, enabled=False):
            of_q, of_k, of_w = _backward(q, k, w, g.to(q.dtype), ctx.fast)
        gradients = []
        for gradient, x in ((of_q, queries), (of_k, keys), (of_w, weight)):
            gradient = gradient.view(*shape, *gradient.shape[1:])
            # A weight without heads has no batch axes; of_w is one row a slice.
            gradients.append(
                gradient.sum_to_size(x.shape).to(x.dtype) if x.ndim else gradient.sum()
            )
        return (*gradients, None)


def _forward(q: Tensor, k: Tensor, w: Tensor, fast: bool) -> Tensor:
    if not on_cpu(q):
        return _direct_forward(q, k, w, fast)
    scores, hard = q.new_empty(len(q), q.shape[1], k.shape[1]), out_of_range(q)
    if fast and (compiled := library("additive")) is not None:
        native("forward", compiled, *contiguous(q, k, w), scores, *sizes(q, k), *RANGE[q.dtype])
    else:
        factors = exponentials(q, k)
        for i, j in _tiles(q, k):
            r = _reciprocal(factors, i, j)
            scores[:, i, j] = (r @ w[:, None, :, None]).squeeze(-1)
        scores.mul_(-2).add_(w.sum(-1)[:, None, None])
    if hard is None:
        return scores
    for slice_, row in hard.nonzero().tolist():
        scores[slice_, row] = (q[slice_, row] + k[slice_]).tanh_() @ w[slice_]
    return scores


def _backward(
    q: Tensor, k: Tensor, w: Tensor, g: Tensor, fast: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if not on_cpu(q):
        return _direct_backward(q, k, w, g, fast)
    hard = out_of_range(q)
    upstream = g if hard is None else g.masked_fill(hard[..., None], 0)
    if fast and (compiled := library("additive")) is not None:
        parts = -(-torch.get_num_threads() // len(q))  # of the keys, a thread each
        some_q, some_w = q.new_empty(parts, *q.shape), w.new_empty(parts, *w.shape)
        given, of_k = contiguous(q, k, upstream), k.new_empty(k.shape)
        results = some_q, of_k, some_w
        native("backward", compiled, *given, *results, *sizes(q, k), parts, *RANGE[q.dtype])
        of_q, of_w = some_q.sum(0), some_w.sum(0)
    else:
        factors = exponentials(q, k)
        of_q, of_k, of_w = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(w)
        for i, j in _tiles(q, k):
            r, part = _reciprocal(factors, i, j), upstream[:, i, j]
            of_w += (part.flatten(1)[:, None] @ r.flatten(1, 2)).squeeze(1)
            slope = r.addcmul_(r, r, value=-1)
            of_q[:, i] += (part[:, :, None] @ slope).squeeze(2)
            of_k[:, j] += slope.mul_(part[..., None]).sum(1)
    of_w = upstream.sum((-2, -1))[:, None] - 2 * of_w
    of_q, of_k = of_q * (4 * w[:, None]), of_k * (4 * w[:, None])
    if hard is not None:
        for slice_, row in hard.nonzero().tolist():
            tanh = (q[slice_, row] + k[slice_]).tanh_()
            slope = (1 - tanh * tanh).mul_(w[slice_])
            of_w[slice_] += g[slice_, row] @ tanh
            of_q[slice_, row] += g[slice_, row] @ slope
            of_k[slice_] += g[slice_, row, :, None] * slope
    return of_q, of_k, of_w


def _direct_forward(q: Tensor, k: Tensor, w: Tensor, fast: bool) -> Tensor:
    """Compute the scores by tanh: on a GPU, where asking for rows out of range would wait."""
    if fast:
        made: Tensor = compile_once(_direct_score)(q, k, w)
        return made
    scores = q.new_empty(len(q), q.shape[1], k.shape[1])
    for i, j in _tiles(q, k, NUMBERS_ON_GPU):
        scores[:, i, j] = _direct_score(q[:, i], k[:, j], w)
    return scores


def _direct_backward(
    q: Tensor, k: Tensor, w: Tensor, g: Tensor, fast: bool
) -> tuple[Tensor, Tensor, Tensor]:
    if fast:
        slope_q, slope_k, slope_w = compile_once(_direct_gradients)(q, k, w, g)
        return slope_q, slope_k, slope_w
    of_q, of_k, of_w = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(w)
    for i, j in _tiles(q, k, NUMBERS_ON_GPU):
        slope_q, slope_k, slope_w = _direct_gradients(q[:, i], k[:, j], w, g[:, i, j])
        of_q[:, i] += slope_q
        of_k[:, j] += slope_k
        of_w += slope_w
    return of_q, of_k, of_w


def out_of_range(q: Tensor) -> Tensor | None:
    """Return which queries, (slices, rows), have e^{2q} out of range, or NaN, or None."""
    hard = ~(q.abs().amax(-1) <= RANGE[q.dtype][0])
    return hard if bool(hard.any()) else None


def exponentials(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Return e^{2q} and e^{2k}."""
    most, beyond = RANGE[q.dtype]
    near_q, near_k = q.clamp(-most, most), k.clamp(-beyond, beyond)
    return near_q.mul_(2).exp_(), near_k.mul_(2).exp_()


def contiguous(*tensors: Tensor) -> list[Tensor]:
    """Return the tensors as C++ reads them."""
    return [x.contiguous() for x in tensors]


def sizes(q: Tensor, k: Tensor) -> tuple[int, int, int, int]:
    """Return the numbers of slices, rows, columns and hidden units."""
    return len(q), q.shape[1], k.shape[1], q.shape[2]


def _reciprocal(factors: tuple[Tensor, Tensor], i: slice, j: slice) -> Tensor:
    """Return r = 1 / (1 + e^{2q} e^{2k}) for a tile: (slices, rows, columns, hidden)."""
    one = factors[0].new_ones(())
    product = torch.addcmul(one, factors[0][:, i, None], factors[1][:, None, j])
    return product.reciprocal_()


def _tiles(q: Tensor, k: Tensor, numbers: int = NUMBERS) -> Iterator[tuple[slice, slice]]:
    """Yield tiles of rows and columns with so many hidden units."""
    pairs = max(1, numbers // max(1, len(q) * q.shape[2]))
    rows = max(1, min(q.shape[1], int(pairs**0.5) // 2))
    columns = max(1, pairs // rows)
    for i in range(0, q.shape[1], rows):
        for j in range(0, k.shape[1], columns):
            yield slice(i, i + rows), slice(j, j + columns)


def together(
    queries: Tensor, keys: Tensor, weight: Tensor
) -> tuple[Tensor, Tensor, Tensor, torch.Size]:
    """Return all three with one flat batch axis and one dtype, and the shape of the batch.

    The dtype is at least float32, because exponentials overflow in half precision.
    """
    shape = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2], weight.shape[:-1])
    q = queries.expand(*shape, *queries.shape[-2:]).reshape(-1, *queries.shape[-2:])
    k = keys.expand(*shape, *keys.shape[-2:]).reshape(-1, *keys.shape[-2:])
    w = weight.expand(*shape, weight.shape[-1]).reshape(-1, weight.shape[-1])
    dtype = torch.float32
    for x in (q, k, w):
        dtype = torch.promote_types(dtype, x.dtype)
    return q.detach().to(dtype), k.detach().to(dtype), w.detach().to(dtype), shape


def _direct_score(q: Tensor, k: Tensor, w: Tensor) -> Tensor:
    hidden = torch.tanh(q[:, :, None] + k[:, None])
    return (hidden * w[:, None, None]).sum(-1)


def _direct_gradients(q: Tensor, k: Tensor, w: Tensor, g: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    hidden = torch.tanh(q[:, :, None] + k[:, None])
    slope = g[..., None] * (1 - hidden * hidden)
    of_w = (g[..., None] * hidden).sum(2).sum(1)
    return slope.sum(2) * w[:, None], slope.sum(1) * w[:, None], of_w
