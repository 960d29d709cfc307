"""Cut a call into strips, and select the parts of tensors that belong to one.

A strip is some queries × all keys that any of them may see: whole rows, as normalisers need. Its
size does not depend on the number of keys: a strip of longer rows has fewer of them, down to a
minimum number. Blocks of keys that the mask hides from a whole strip are omitted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from regard.attention.mask import Blocks, Tile
from regard.attention.mask_context import MaskContext
from regard.attention.prepared import Consecutive, Positions
from regard.attention.tracing import on_cpu

Share = tuple[slice, ...]

#: Minimum rows of a strip of products: with fewer, rearranging the keys costs too much.
PRODUCT_ROWS = 128
#: Keys from which a faster product outweighs a gradient that is transposed in memory.
TURNED = 1024


class Strip(NamedTuple):
    """A part of the batch, some rows, and the columns they may see.

    ``batch`` has a slice for each of the first batch axes; the other axes are complete. ``whole``
    means that all pairs are allowed, so that the mask is not needed.
    """

    batch: Share
    tile: Tile
    whole: bool


@dataclass(frozen=True)
class Sizes:
    """Sizes of strips: numbers in a strip of scores, and rows and columns of a mask's blocks.

    ``least`` is the minimum number of rows, for scores that do work per key of a strip.
    """

    numbers: int = 2**19
    rows: int = 128
    columns: int = 64
    least: int = 1


def strips_of(
    context: MaskContext, sizes: Sizes, split: bool = True, same_heads: bool = False
) -> list[Strip]:
    """Return the strips of a call, from its shape and its mask's reach.

    Rows are cut by the mask's regions, then, if not even sixteen rows fit, the batch (only with
    ``split``), then the rows again. With ``same_heads`` the head axis is treated like a batch
    axis, and scores are products, which are efficient with many rows.
    """
    *batch, n, m = context.shape
    axes = len(batch) - (1 if context.heads and not same_heads else 0) if split else 0
    strips = []
    for rows, columns, whole in regions(context, sizes):
        width = m if isinstance(columns, slice) and columns.stop is None else count(columns)
        part = len(range(*rows.indices(n)))
        # Each part of the batch evaluates a mask of pairs again, which costs more than it saves.
        cheap = same_heads and (whole or context.kind == "keys")
        least = min(part, PRODUCT_ROWS if cheap else 16) * width
        room = max(
            2 if cheap else 1, sizes.numbers // max(1, least)
        )  # a product for each of 2 cores
        shares, each = shares_of(batch, axes, room)
        step = max(1, min(part, max(sizes.least, sizes.numbers // max(1, each * width))))
        for share in shares:
            for first in range(rows.start, rows.start + part, step):
                piece = slice(first, min(first + step, rows.start + part))
                strips.append(Strip(share, Tile(piece, columns), whole))
    return strips


def shares_of(batch: Sequence[int], axes: int, room: int) -> tuple[list[Share], int]:
    """Cut the first ``axes`` of a batch into parts of ``room`` slices; return them and their size.

    >>> shares_of([2, 4], 2, 2)
    ([(slice(0, 1, None), slice(0, 2, None)), (slice(0, 1, None), slice(2, 4, None)), ...], 2)
    """
    pieces: list[list[slice]] = []
    each = prod(batch)
    for size in batch[:axes]:
        if each <= room:
            break
        take = max(1, room // (each // size))
        pieces.append([slice(i, min(i + take, size)) for i in range(0, size, take)])
        each = each // size * take
    return list(product(*pieces)), each


def regions(context: MaskContext, sizes: Sizes) -> Iterator[tuple[slice, slice | Tensor, bool]]:
    """Yield rows, the columns that any of them may see, and whether all pairs are allowed.

    Rows that see nothing are omitted. The mask is not asked for positions that only a GPU knows.
    """
    n, m = context.shape[-2:]
    everything = slice(None)
    if 0 in context.shape:
        return
    if context.mask is None:
        yield slice(0, n), everything, True
        return
    known = context.on_host
    if context.mask.kind == "keys" or known is None:
        yield slice(0, n), everything, False
        return
    if context.mask.grain:  # whole blocks need no mask
        sizes = replace(sizes, rows=context.mask.grain, columns=context.mask.grain)
    blocks = Blocks.of(known[0], sizes.rows), Blocks.of(known[1], sizes.columns)
    may, must = context.mask.reach(*blocks)
    whole = ((must | ~may).all(1)).tolist()
    count, first = may.sum(1).tolist(), may.int().argmax(1).tolist()
    last = (may.shape[1] - 1 - may.flip(1).int().argmax(1)).tolist()
    for i, number in enumerate(count):
        if not number:
            continue
        rows = slice(i * sizes.rows, min((i + 1) * sizes.rows, n))
        columns: slice | Tensor = slice(
            first[i] * sizes.columns, min((last[i] + 1) * sizes.columns, m)
        )
        if number < last[i] + 1 - first[i]:
            places = may[i].repeat_interleave(sizes.columns)[:m].nonzero().flatten()
            columns = places.to(context.columns.device, non_blocking=True)
        yield rows, columns, whole[i]


def taken(columns: slice | Tensor, chunk: slice) -> slice | Tensor:
    """Return a chunk of a strip's columns."""
    if isinstance(columns, Tensor):
        return columns[chunk]
    start = columns.start or 0
    return slice(start + chunk.start, start + chunk.stop)


def positions_of(context: MaskContext, strip: Strip) -> Positions:
    """Return the positions of a strip."""
    (rows, columns), axes = context.positions, len(context.shape) - 1
    positions = (
        part(rows, strip.batch, axes)[..., strip.tile.rows],
        part(columns, strip.batch, axes)[..., strip.tile.columns],
    )
    known = isinstance(context.positions, Consecutive) and isinstance(strip.tile.columns, slice)
    return Consecutive(positions) if known else positions


def pick(tensors: Sequence[Tensor], strip: Strip, side: int, context: MaskContext) -> list[Tensor]:
    """Return the rows of queries (side −2) or of keys (side −1) that belong to a strip."""
    index = strip.tile.rows if side == -2 else strip.tile.columns
    axes = len(context.shape)
    picked = [part(x, strip.batch, axes) for x in tensors]
    if isinstance(index, Tensor):
        return [x.index_select(-2, index) for x in picked]
    return [x[..., index, :] for x in picked]


def put(x: Tensor, strip: Strip, context: MaskContext) -> Tensor:
    """Return the rows of an output that belong to a strip, as a view."""
    return part(x, strip.batch, len(context.shape))[..., strip.tile.rows, :]


def add(total: Tensor, strip: Strip, side: int, context: MaskContext, more: Tensor) -> None:
    """Add a strip's gradient to the total."""
    index = strip.tile.rows if side == -2 else strip.tile.columns
    target = part(total, strip.batch, len(context.shape))
    wanted = (*target.shape[:-2], *more.shape[-2:])
    more = more.to(total.dtype)
    if more.shape != wanted:
        more = more.sum_to_size(wanted)
    if isinstance(index, Tensor):
        target.index_add_(-2, index, more)
    else:
        target[..., index, :] += more


def zeros(x: Tensor) -> Tensor:
    """Return zeros for the sum over strips of the gradient of x, at least in float32.

    A sum in bfloat16 no longer grows from 256 times its terms on.
    """
    return torch.zeros_like(x, dtype=torch.promote_types(x.dtype, torch.float32))


def rounded(totals: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """Return sums over strips in the dtypes of the tensors that they are gradients of."""
    return [total.to(x.dtype) for total, x in zip(totals, like, strict=True)]


def zeros_of_keys(x: Tensor, strips: Sequence[Strip]) -> Tensor:
    """Return zeros for the gradient of keys or values x, to which `add_to_keys` adds.

    For many keys on a CPU the last two axes are exchanged in memory: (qᵀ s)ᵀ is faster than sᵀ q.
    """
    scattered = any(isinstance(strip.tile.columns, Tensor) for strip in strips)
    if scattered or x.shape[-2] < TURNED or not on_cpu(x):
        return zeros(x)
    return zeros(x.new_empty(x.mT.shape)).mT


def add_to_keys(
    total: Tensor, strip: Strip, context: MaskContext, weights: Tensor, rows: Tensor,
    scale: float = 1.0,
) -> None:  # fmt: skip
    """Add scale · weightsᵀ rows to the total of the strip's keys, in place if the shapes allow it.

    ``weights`` are (…, n, m), ``rows`` (…, n, width), with a row for each query.
    """
    index = strip.tile.columns
    target = part(total, strip.batch, len(context.shape))
    same = weights.shape[:-2] == rows.shape[:-2] == target.shape[:-2]
    same = same and weights.dtype == rows.dtype == target.dtype  # they differ under autocast
    turned = not target.is_contiguous() and target.mT.is_contiguous()
    if isinstance(index, Tensor) or not same or not (turned or target.is_contiguous()):
        add(total, strip, -1, context, weights.mT @ (rows if scale == 1 else scale * rows))
        return
    sides = (target.mT, rows.mT, weights) if turned else (target, weights.mT, rows)
    flat, one, two = (x.reshape(-1, *x.shape[-2:]) for x in sides)
    (flat[..., index] if turned else flat[:, index]).baddbmm_(one, two, alpha=scale)


def materialised(x: Tensor) -> Tensor:
    """Return x, or a copy if its rows are not in one piece or share numbers, as of a sum."""
    return x if x.stride(-1) == 1 and 0 not in x.stride() else x.contiguous()


def part(x: Tensor, batch: Share, axes: int) -> Tensor:
    """Return a part of the batch, along the call's ``axes`` on which x is longer than 1."""
    if not batch:
        return x
    sizes = x.shape[: max(0, len(batch) + x.ndim - axes)]
    shared = zip(sizes, batch[len(batch) - len(sizes) :], strict=True)
    return x[tuple(slice(None) if size == 1 else piece for size, piece in shared)]


def count(columns: slice | Tensor) -> int:
    return len(columns) if isinstance(columns, Tensor) else columns.stop - columns.start
