"""Masks: which keys a query may look at. True = may look, everywhere; joined by ``& | ~``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import RegardError

Predicate = Callable[[Tensor, Tensor], Tensor]
Kind = Literal["keys", "causal", "pairs"]


class Tile(NamedTuple):
    """Some queries and some keys of a call, by their places in it."""

    rows: slice
    columns: slice | Tensor


WHOLE = Tile(slice(None), slice(None))


class Blocks(NamedTuple):
    """Queries, or keys, cut into blocks: the first and last position in each, (blocks,)."""

    positions: Tensor
    size: int
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, positions: Int[Tensor, "... n"], size: int) -> Blocks:
        """Blocks of ``size`` neighbours; over a batch, the first and last of any row."""
        low, high = extremes(positions, size)
        return cls(positions, size, low, high)


class Reach(NamedTuple):
    """What a mask says of whole blocks of queries × keys, (blocks, blocks), without looking inside.

    ``may``: a pair in it may be allowed; ``must``: all pairs in it are. Kleene's three values.
    """

    may: Tensor
    must: Tensor


class Mask:
    """A predicate on positions: may the query at a row look at the key at a column?

    The function gets the positions of queries (\\*batch, n) and keys (\\*batch, m) and answers with
    a bool tensor that broadcasts to (\\*batch, n, m); heads are no part of it. It is asked for
    tiles too, so it answers from the positions alone. Written with ``[..., :, None]`` and
    ``[..., None, :]`` it serves positions of any batch shape. ``reach``, if it is known, tells
    which blocks need not be computed; ``grain`` is the size of blocks in which it answers alike.

    >>> every_other = Mask(lambda rows, columns: columns[..., None, :] % 2 == 0)
    >>> (every_other & causal()).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 0, 0], [1, 0, 0], [1, 0, 1]]
    """

    def __init__(
        self,
        predicate: Predicate,
        *,
        kind: Kind = "pairs",
        reach: Callable[[Blocks, Blocks], Reach] | None = None,
        grain: int | None = None,
        over_heads: bool = False,
    ) -> None:
        self.predicate, self.kind, self.has_heads = predicate, kind, over_heads
        self._reach, self.grain = reach, grain

    def allows(
        self,
        rows: Int[Tensor, "... queries"],
        columns: Int[Tensor, "... keys"],
        tile: Tile = WHOLE,
    ) -> Bool[Tensor, "..."]:
        """The answers for these positions, or a tile of them, broadcastable to (\\*batch, n, m)."""
        answers = self._answer(rows, columns, tile)
        if not isinstance(answers, Tensor) or answers.dtype != torch.bool:
            what = answers.dtype if isinstance(answers, Tensor) else type(answers).__name__
            raise RegardError(f"a mask answers with a bool tensor, True = may look, not {what}")
        return answers

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return self.predicate(rows[..., tile.rows], columns[..., tile.columns])

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        """Of each block of queries × keys, whether pairs may be allowed, and whether all are."""
        if self._reach is not None:
            return self._reach(rows, columns)
        size = (len(rows.low), len(columns.low))
        return Reach(torch.ones(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool))

    def over_heads(self) -> Mask:
        """The same mask for scores (\\*batch, heads, n, m): the head axis is put at −3."""
        return self if self.has_heads else _OverHeads(self)

    def __and__(self, other: object) -> Mask:
        return _Joined(self, other, torch.logical_and)

    def __or__(self, other: object) -> Mask:
        return _Joined(self, other, torch.logical_or)

    def __invert__(self) -> Mask:
        return _Inverse(self)

    def _repr_html_(self) -> str:
        import regard

        return regard.html(self)


class _OverHeads(Mask):
    def __init__(self, inner: Mask) -> None:
        super().__init__(inner.predicate, kind=inner.kind, reach=inner.reach, over_heads=True)
        self.grain = inner.grain
        self.inner = inner

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        answers = self.inner.allows(rows, columns, tile)
        return answers.unsqueeze(-3) if answers.ndim > 2 else answers


class _Joined(Mask):
    def __init__(self, one: Mask, two: object, how: Callable[[Tensor, Tensor], Tensor]) -> None:
        if not isinstance(two, Mask):
            raise RegardError(
                f"masks join with masks, not with {type(two).__name__}; see dense(...)"
            )
        if one.has_heads or two.has_heads:
            one, two = one.over_heads(), two.over_heads()
        kind: Kind = "keys" if one.kind == two.kind == "keys" else "pairs"
        super().__init__(lambda r, c: how(one.predicate(r, c), two.predicate(r, c)), kind=kind)
        self.has_heads, self.one, self.two, self.how = one.has_heads, one, two, how
        self.grain = one.grain or two.grain

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return self.how(self.one.allows(rows, columns, tile), self.two.allows(rows, columns, tile))

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        one, two = self.one.reach(rows, columns), self.two.reach(rows, columns)
        return Reach(self.how(one.may, two.may), self.how(one.must, two.must))


class _Inverse(Mask):
    def __init__(self, inner: Mask) -> None:
        kind: Kind = "keys" if inner.kind == "keys" else "pairs"
        super().__init__(lambda r, c: ~inner.predicate(r, c), kind=kind, over_heads=inner.has_heads)
        self.inner, self.grain = inner, inner.grain

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return ~self.inner.allows(rows, columns, tile)

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        inner = self.inner.reach(rows, columns)
        return Reach(~inner.must, ~inner.may)


class _Placed(Mask):
    """A mask that answers by place in the call and not by position."""

    def __init__(
        self,
        answer: Callable[[Tensor, Tensor, Tile], Tensor],
        *,
        kind: Kind = "pairs",
        reach: Callable[[Blocks, Blocks], Reach] | None = None,
    ) -> None:
        super().__init__(lambda r, c: answer(r, c, WHOLE), kind=kind, reach=reach)
        self.answer = answer

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return self.answer(rows, columns, tile)


def causal() -> Mask:
    """Each position sees itself and the past."""
    return Mask(
        lambda rows, columns: columns[..., None, :] <= rows[..., :, None],
        kind="causal",
        reach=lambda rows, columns: Reach(
            columns.low <= rows.high[:, None], columns.high <= rows.low[:, None]
        ),
    )


def lengths(valid: Int[Tensor, "*batch"] | Tensor | Sequence[int] | int) -> Mask:
    """Keys at positions 0 … valid − 1 may be seen; the rest is padding.

    >>> lengths([1, 3]).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[[1, 0, 0]], [[1, 1, 1]]]
    """
    valid = _integers(valid)

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        limit = valid.to(columns.device)[..., None, None]
        columns = columns[..., None, :]
        return (columns >= 0) & (columns < limit)

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        if not valid.numel():
            return _nowhere(rows, columns)
        may = (columns.high >= 0) & (columns.low < valid.max().cpu())
        must = (columns.low >= 0) & (columns.high < valid.min().cpu())
        return Reach(*(x.expand(len(rows.low), -1) for x in (may, must)))

    return Mask(allows, kind="keys", reach=reach)


def lengths_per_query(valid: Int[Tensor, "*batch queries"] | Sequence[Sequence[int]]) -> Mask:
    """The i-th query of the call sees the keys at positions 0 … valid[i] − 1."""
    valid = _integers(valid)

    def answer(rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        _fits("lengths_per_query", valid, rows, "queries")
        columns = columns[..., None, tile.columns]
        return (columns >= 0) & (columns < valid.to(columns.device)[..., tile.rows, None])

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        if not valid.numel():
            return _nowhere(rows, columns)
        least, most = (x[:, None] for x in extremes(valid, rows.size))
        return Reach(
            (columns.high >= 0) & (columns.low < most), (columns.low >= 0) & (columns.high < least)
        )

    return _Placed(answer, reach=reach)


def prefix(size: Int[Tensor, "*batch"] | Sequence[int] | int) -> Mask:
    """The first ``size`` keys may be seen by all: ``causal() | prefix(k)`` is a prefix model."""
    return lengths(size)


def others() -> Mask:
    """Every position but one's own: leave one out."""

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        apart = (columns.low > rows.high[:, None]) | (columns.high < rows.low[:, None])
        same = columns.low.eq(columns.high) & rows.low.eq(rows.high)[:, None]
        return Reach(~(same & columns.low.eq(rows.low[:, None])), apart)

    return Mask(lambda rows, columns: columns[..., None, :] != rows[..., :, None], reach=reach)


def window(size: int, step: int = 1) -> Mask:
    """Keys at most ``size`` steps away, on both sides; ``& causal()`` keeps the past.

    With a ``step`` the window is dilated: every step-th position, as far as size · step. Beltagy
    et al. 2020, figure 2.

    >>> window(1).allows(torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    """
    if size < 0 or step < 1:
        raise RegardError(f"a window reaches 0 steps or more, by steps of 1 or more, not {size}, "
                          f"{step}")  # fmt: skip
    far = size * step

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        apart = columns[..., None, :] - rows[..., :, None]
        near = apart.abs() <= far
        return near if step == 1 else near & (apart % step == 0)

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        low, high = rows.low[:, None], rows.high[:, None]
        may = (columns.low <= high + far) & (columns.high >= low - far)
        must = (columns.high <= low + far) & (columns.low >= high - far)
        return Reach(may, must & (step == 1))

    return Mask(allows, reach=reach)


def global_tokens(size: int) -> Mask:
    """The first ``size`` positions see all and are seen by all: ``window(64) | global_tokens(4)``.

    Beltagy et al. 2020, section 3.1; Zaheer et al. 2020 (BigBird-ITC).
    """
    if size < 0:
        raise RegardError(f"global tokens are 0 or more, not {size}")

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        low, high = rows.low[:, None], rows.high[:, None]
        return Reach((columns.low < size) | (low < size), (columns.high < size) | (high < size))

    return Mask(
        lambda rows, columns: (columns[..., None, :] < size) | (rows[..., :, None] < size),
        reach=reach,
    )


def blocks(allowed: Bool[Tensor, "rows columns"] | Tensor, size: int) -> Mask:
    """Blocks of ``size`` positions: block i of queries sees block j of keys where allowed[i, j].

    Positions beyond the table see nothing and are not seen.

    >>> blocks(torch.tensor([[True, False], [True, True]]), 2).allows(
    ...     torch.arange(4), torch.arange(4)).int().tolist()
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]]
    """
    if allowed.dtype != torch.bool or allowed.ndim != 2 or size < 1:
        raise RegardError(
            f"blocks take a table of bools (blocks of queries, blocks of keys) and a size of 1 or "
            f"more, not {allowed.dtype} of shape {tuple(allowed.shape)} and {size}"
        )
    table = torch.nn.functional.pad(allowed, (0, 1, 0, 1))  # the last row and column: beyond
    edges = torch.tensor(allowed.shape)
    # Sums over all rectangles from the corner: a block of any extent is four of them.
    corner = torch.nn.functional.pad(allowed.long(), (1, 0, 1, 0)).cumsum(0).cumsum(1).cpu()

    def place(positions: Tensor, axis: int) -> Tensor:
        found = positions.div(size, rounding_mode="floor")
        return found.where((found >= 0) & (found < edges[axis]), edges[axis].to(found.device))

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        return table.to(columns.device)[
            place(rows, 0)[..., :, None], place(columns, 1)[..., None, :]
        ]

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        spans, whole = [], []
        for found, axis in ((rows, 0), (columns, 1)):
            low = found.low.div(size, rounding_mode="floor")
            high = found.high.div(size, rounding_mode="floor") + 1
            whole.append((low >= 0) & (high <= edges[axis]))
            spans.append((low.clamp(0, int(edges[axis])), high.clamp(0, int(edges[axis]))))
        (top, bottom), (left, right) = spans
        top, bottom = top[:, None], bottom[:, None]
        count = (
            corner[bottom, right] - corner[top, right] - corner[bottom, left] + corner[top, left]
        )
        full = (bottom - top) * (right - left)
        return Reach(count > 0, (count == full) & whole[0][:, None] & whole[1])

    return Mask(allows, reach=reach, grain=size * -(-16 // size))


def bigbird(
    length: int, *, block: int = 64, near: int = 1, first: int = 1, random: int = 2, seed: int = 0
) -> Mask:
    """Blocks of ``block`` positions see ``near`` neighbours on each side, the ``first`` blocks,
    and ``random`` others, drawn by ``seed`` alone; the first blocks see all.

    Zaheer et al. 2020, BigBird-ITC, section 2. For texts up to ``length``; O(n) in all.
    """
    if length < 1 or block < 1 or min(near, first, random) < 0:
        raise RegardError(
            "bigbird takes a length and a block of 1 or more, and counts of 0 or more"
        )
    number = -(-length // block)
    at = torch.arange(number)
    allowed = (at[:, None] - at).abs() <= near
    allowed[:, :first] = allowed[:first] = True
    draw = torch.Generator().manual_seed(seed)
    for row in range(number):
        left = torch.nonzero(~allowed[row]).flatten()
        allowed[row, left[torch.randperm(len(left), generator=draw)[:random]]] = True
    return blocks(allowed, block)


def documents(
    queries: Int[Tensor, "*batch queries"] | Tensor,
    keys: Int[Tensor, "*batch keys"] | Tensor | None = None,
) -> Mask:
    """Texts packed into one row: a query sees the keys of its own document, by place in the call.

    >>> documents(torch.tensor([0, 0, 1])).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    """
    ids = _integers(queries), _integers(queries if keys is None else keys)

    def answer(rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        _fits("documents", ids[0], rows, "queries")
        _fits("documents", ids[1], columns, "keys")
        ours, theirs = (x.to(columns.device) for x in ids)
        return ours[..., tile.rows, None] == theirs[..., None, tile.columns]

    def reach(rows: Blocks, columns: Blocks) -> Reach:
        low, high = (x[:, None] for x in extremes(ids[0], rows.size))
        left, right = extremes(ids[1], columns.size)
        return Reach(
            (left <= high) & (right >= low), (low == high) & (left == right) & (low == left)
        )

    return _Placed(answer, reach=reach)


def dense(allowed: Bool[Tensor, "*batch queries keys"] | Tensor) -> Mask:
    """A mask from a tensor, True = may look, by place in the call and not by position."""
    if allowed.dtype != torch.bool:
        raise RegardError(_remedy(allowed))

    def answer(rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        size = (rows.shape[-1], columns.shape[-1])
        if any(have not in (1, want) for have, want in zip(allowed.shape[-2:], size, strict=True)):
            raise RegardError(
                f"a dense mask of {allowed.shape[-2]} × {allowed.shape[-1]} does not fit "
                f"{size[0]} queries and {size[1]} keys"
            )
        found = allowed if allowed.shape[-2] == 1 else allowed[..., tile.rows, :]
        return found if allowed.shape[-1] == 1 else found[..., tile.columns]

    return _Placed(answer, kind="keys" if allowed.shape[-2] == 1 else "pairs")


def as_mask(given: object) -> Mask | None:
    """A mask or none; anything else is refused with the remedy."""
    if given is None or isinstance(given, Mask):
        return given
    raise RegardError(_remedy(given))


def extremes(numbers: Int[Tensor, "... n"], size: int) -> tuple[Tensor, Tensor]:
    """The least and the greatest of each block of ``size`` neighbours, over the batch, on the CPU.

    >>> extremes(torch.tensor([3, 1, 4, 1, 5]), 2)
    (tensor([1, 1, 5]), tensor([3, 4, 5]))
    """
    numbers = numbers.reshape(-1, numbers.shape[-1])
    low, high = numbers.amin(0).cpu(), numbers.amax(0).cpu()
    whole = len(low) // size * size
    lows = [low[:whole].view(-1, size).amin(1)] if whole else []
    highs = [high[:whole].view(-1, size).amax(1)] if whole else []
    if whole < len(low):
        lows, highs = [*lows, low[whole:].amin()[None]], [*highs, high[whole:].amax()[None]]
    return torch.cat(lows), torch.cat(highs)


def _nowhere(rows: Blocks, columns: Blocks) -> Reach:
    none = torch.zeros(len(rows.low), len(columns.low), dtype=torch.bool)
    return Reach(none, none)


def _fits(name: str, numbers: Tensor, positions: Tensor, what: str) -> None:
    if numbers.shape[-1] != positions.shape[-1]:
        raise RegardError(
            f"{name} tells of {numbers.shape[-1]} {what}; the call has {positions.shape[-1]}"
        )


def _remedy(given: object) -> str:
    if not isinstance(given, Tensor):
        return f"a mask is a regard Mask such as causal() & lengths(n), not {type(given).__name__}"
    if given.dtype == torch.bool:
        return "a bool tensor becomes a mask by dense(tensor), where True = may look"
    return (
        f"a mask is never added to the scores, so {given.dtype} is refused: say "
        "dense(tensor == 0) for a 0 / −inf mask, and make a bias part of the score"
    )


def _integers(valid: object) -> Tensor:
    numbers = torch.as_tensor(valid)
    if numbers.dtype.is_floating_point or numbers.dtype == torch.bool:
        raise RegardError(f"lengths are whole numbers, not {numbers.dtype}")
    return numbers
