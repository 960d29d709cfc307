"""How a call is cut into strips, and the parts of tensors that belong to one.

A strip is some queries by all the keys that any of them may see: whole rows, so that a normaliser
may do with them what it likes. Its size is a constant, whatever the number of keys: a strip of
longer rows has fewer of them. Blocks of keys that the mask hides from a whole strip are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

from regard.attention.masks import Blocks, Tile
from regard.attention.score import Where

if TYPE_CHECKING:
    from regard.attention.attend import Sight


class Strip(NamedTuple):
    """A part of the batch (None: all of it), some rows, and the columns they may see.

    ``whole``: every pair may be seen, so the mask need not be asked.
    """

    batch: slice | None
    tile: Tile
    whole: bool


@dataclass(frozen=True)
class Sizes:
    """How strips are cut: numbers in a strip of scores, rows and columns of a mask's blocks."""

    numbers: int = 2**19
    rows: int = 128
    columns: int = 64


def strips_of(sight: "Sight", sizes: Sizes, split: bool = True) -> list[Strip]:
    """How a call is cut, from its shape and its mask's reach; ``split``: the batch may be too.

    First rows, then, where not even sixteen rows fit, parts of the batch, then rows again.
    """
    *batch, n, m = sight.shape
    slices = sight.shape[:-2].numel()
    splits = split and batch and len(batch) > (1 if sight.heads else 0) and batch[0] > 1
    found = []
    for rows, columns, whole in regions(sight, sizes):
        seen = m if isinstance(columns, slice) and columns.stop is None else count(columns)
        part, per = len(range(*rows.indices(n))), slices
        chunks: list[slice | None] = [None]
        if splits and slices * min(part, 16) * seen > sizes.numbers:
            each = slices // batch[0]
            take = max(1, sizes.numbers // max(1, each * min(part, 16) * seen))
            chunks = [slice(i, min(i + take, batch[0])) for i in range(0, batch[0], take)]
            per = each * min(take, batch[0])
        step = max(1, min(part, sizes.numbers // max(1, per * seen)))
        for chunk in chunks:
            for first in range(rows.start, rows.start + part, step):
                piece = slice(first, min(first + step, rows.start + part))
                found.append(Strip(chunk, Tile(piece, columns), whole))
    return found


def regions(sight: "Sight", sizes: Sizes) -> Iterator[tuple[slice, slice | Tensor, bool]]:
    """Rows with the columns that the mask lets any of them see, and whether all see all of these.

    Rows that see nothing are left out.
    """
    n, m = sight.shape[-2:]
    everything = slice(None)
    if sight.mask is None:
        yield slice(0, n), everything, True
        return
    if sight.mask.kind == "keys":
        yield slice(0, n), everything, False
        return
    if sight.mask.grain:  # whole blocks need no mask
        sizes = replace(sizes, rows=sight.mask.grain, columns=sight.mask.grain)
    blocks = Blocks.of(sight.rows, sizes.rows), Blocks.of(sight.columns, sizes.columns)
    may, must = sight.mask.reach(*blocks)
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
            columns = places.to(sight.columns.device)
        yield rows, columns, whole[i]


def taken(columns: slice | Tensor, chunk: slice) -> slice | Tensor:
    """Some of a strip's columns."""
    if isinstance(columns, Tensor):
        return columns[chunk]
    start = columns.start or 0
    return slice(start + chunk.start, start + chunk.stop)


def where_of(sight: "Sight", strip: Strip) -> Where:
    """The positions of a strip."""
    rows, columns = sight.where
    axes = len(sight.shape) - 1
    return (
        part(rows, strip.batch, axes)[..., strip.tile.rows],
        part(columns, strip.batch, axes)[..., strip.tile.columns],
    )


def pick(tensors: Sequence[Tensor], strip: Strip, side: int, sight: "Sight") -> list[Tensor]:
    """The rows of queries (side −2) or of keys (side −1) that belong to a strip."""
    index = strip.tile.rows if side == -2 else strip.tile.columns
    axes = len(sight.shape)
    picked = [part(x, strip.batch, axes) for x in tensors]
    if isinstance(index, Tensor):
        return [x.index_select(-2, index) for x in picked]
    return [x[..., index, :] for x in picked]


def put(x: Tensor, strip: Strip, sight: "Sight") -> Tensor:
    """The rows of an output that belong to a strip, as a view."""
    return part(x, strip.batch, len(sight.shape))[..., strip.tile.rows, :]


def add(total: Tensor, strip: Strip, side: int, sight: "Sight", more: Tensor) -> None:
    """Add a strip's gradient to the whole one."""
    index = strip.tile.rows if side == -2 else strip.tile.columns
    target = part(total, strip.batch, len(sight.shape))
    wanted = (*target.shape[:-2], *more.shape[-2:])
    more = more.to(total.dtype)
    if more.shape != wanted:
        more = more.sum_to_size(wanted)
    if isinstance(index, Tensor):
        target.index_add_(-2, index, more)
    else:
        target[..., index, :] += more


def add_product(
    total: Tensor, strip: Strip, side: int, sight: "Sight", one: Tensor, two: Tensor
) -> None:
    """Add one @ two, in place where the shapes allow it."""
    index = strip.tile.rows if side == -2 else strip.tile.columns
    target = part(total, strip.batch, len(sight.shape))
    alike = one.shape[:-2] == two.shape[:-2] == target.shape[:-2]
    if isinstance(index, Tensor) or not alike or not target.is_contiguous():
        add(total, strip, side, sight, one @ two)
        return
    flat = target.view(-1, *target.shape[-2:])[:, index]
    flat.baddbmm_(one.reshape(-1, *one.shape[-2:]), two.reshape(-1, *two.shape[-2:]))


def part(x: Tensor, batch: slice | None, axes: int) -> Tensor:
    """Some of the batch's first axis, where x has it."""
    return x if batch is None or x.ndim < axes or x.shape[0] == 1 else x[batch]


def count(columns: slice | Tensor) -> int:
    return len(columns) if isinstance(columns, Tensor) else columns.stop - columns.start
