"""A mask: which keys a query may look at. True = may look, everywhere; joined by ``& | ~``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import RegardError
from regard.shown import shown

Predicate = Callable[[Tensor, Tensor], Tensor]
Kind = Literal["keys", "causal", "pairs"]
Made = tuple[Callable[..., "Mask"], tuple[Any, ...]]
SHOWN = 16  # numbers of a tensor that a mask's repr writes out


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

    ``made``: the function and the arguments that make an equal mask, by which it is pickled, copied
    and shown; without them it is pickled if ``predicate`` and ``reach`` can be.

    >>> from regard.attention import causal
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
        made: Made | None = None,
        fits: Callable[[int], None] | None = None,
    ) -> None:
        self.predicate, self.kind, self.has_heads = predicate, kind, over_heads
        self._reach, self.grain, self._made, self._fits = reach, grain, made, fits

    def __reduce__(self) -> str | tuple[Any, ...]:
        return self._made or super().__reduce__()

    def __repr__(self) -> str:
        if self._made is None:
            return f"Mask({getattr(self.predicate, '__qualname__', self.predicate)})"
        function, arguments = self._made
        return f"{function.__name__}({', '.join(map(_written, arguments))})"

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

    def must_fit(self, keys: int) -> None:
        """Raise if the mask tells of more keys than a call has, whose keys stand at 0 … keys − 1.

        ``fits`` raises the RegardError.
        """
        if self._fits is not None:
            self._fits(keys)

    def over_heads(self) -> Mask:
        """The same mask for scores (\\*batch, heads, n, m): the head axis is put at −3."""
        return self if self.has_heads else _OverHeads(self)

    def __and__(self, other: object) -> Mask:
        return _Joined(self, other, torch.logical_and)

    def __or__(self, other: object) -> Mask:
        return _Joined(self, other, torch.logical_or)

    def __invert__(self) -> Mask:
        return _Inverse(self)

    _repr_html_ = shown


class _OverHeads(Mask):
    def __init__(self, inner: Mask) -> None:
        super().__init__(inner.predicate, kind=inner.kind, reach=inner.reach, over_heads=True)
        self.grain, self._made = inner.grain, (_OverHeads, (inner,))
        self.inner = inner

    def __repr__(self) -> str:
        return repr(self.inner)

    def must_fit(self, keys: int) -> None:
        self.inner.must_fit(keys)

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
        self._made = (_Joined, (one, two, how))
        self.has_heads, self.one, self.two, self.how = one.has_heads, one, two, how
        self.grain = one.grain or two.grain

    def __repr__(self) -> str:
        return f"({self.one!r} {'&' if self.how is torch.logical_and else '|'} {self.two!r})"

    def must_fit(self, keys: int) -> None:
        self.one.must_fit(keys)
        self.two.must_fit(keys)

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return self.how(self.one.allows(rows, columns, tile), self.two.allows(rows, columns, tile))

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        one, two = self.one.reach(rows, columns), self.two.reach(rows, columns)
        return Reach(self.how(one.may, two.may), self.how(one.must, two.must))


class _Inverse(Mask):
    def __init__(self, inner: Mask) -> None:
        kind: Kind = "keys" if inner.kind == "keys" else "pairs"
        super().__init__(lambda r, c: ~inner.predicate(r, c), kind=kind, over_heads=inner.has_heads)
        self.inner, self.grain, self._made = inner, inner.grain, (_Inverse, (inner,))

    def __repr__(self) -> str:
        return f"~{self.inner!r}"

    def must_fit(self, keys: int) -> None:
        self.inner.must_fit(keys)

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return ~self.inner.allows(rows, columns, tile)

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        inner = self.inner.reach(rows, columns)
        return Reach(~inner.must, ~inner.may)


class Placed(Mask):
    """A mask that answers by place in the call and not by position."""

    def __init__(
        self,
        answer: Callable[[Tensor, Tensor, Tile], Tensor],
        *,
        kind: Kind = "pairs",
        reach: Callable[[Blocks, Blocks], Reach] | None = None,
        over_heads: bool = False,
        made: Made | None = None,
    ) -> None:
        super().__init__(
            lambda r, c: answer(r, c, WHOLE),
            kind=kind,
            reach=reach,
            over_heads=over_heads,
            made=made,
        )
        self.answer = answer

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return self.answer(rows, columns, tile)


def _written(argument: object) -> str:
    """An argument of a mask, the same for equal ones: numbers, or of many their shape and a hash.

    >>> _written(torch.tensor([3, 2])), _written(torch.arange(99))
    ('[3, 2]', 'int64 (99,) #06af2b32')
    """
    if not isinstance(argument, Tensor):
        return repr(argument)
    if argument.numel() <= SHOWN:
        return str(argument.tolist())
    content = argument.detach().cpu().contiguous().numpy().tobytes()
    kind = str(argument.dtype).removeprefix("torch.")
    return f"{kind} {tuple(argument.shape)} #{hashlib.sha256(content).hexdigest()[:8]}"


def as_mask(given: object) -> Mask | None:
    """A mask or none; anything else is refused with the remedy."""
    if given is None or isinstance(given, Mask):
        return given
    raise RegardError(remedy(given))


def extremes(numbers: Int[Tensor, "... n"], size: int) -> tuple[Tensor, Tensor]:
    """The least and the greatest of each block of ``size`` neighbours, over the batch, on the CPU.

    >>> extremes(torch.tensor([3, 1, 4, 1, 5]), 2)
    (tensor([1, 1, 5]), tensor([3, 4, 5]))
    """
    if not numbers.numel():
        nothing = torch.zeros(-(-numbers.shape[-1] // size), dtype=numbers.dtype)
        return nothing, nothing
    numbers = numbers.reshape(-1, numbers.shape[-1])
    low, high = numbers.amin(0).cpu(), numbers.amax(0).cpu()
    whole = len(low) // size * size
    lows = [low[:whole].view(-1, size).amin(1)] if whole else []
    highs = [high[:whole].view(-1, size).amax(1)] if whole else []
    if whole < len(low):
        lows, highs = [*lows, low[whole:].amin()[None]], [*highs, high[whole:].amax()[None]]
    return torch.cat(lows), torch.cat(highs)


def remedy(given: object) -> str:
    """What to say to somebody who gives this for a mask."""
    if not isinstance(given, Tensor):
        return f"a mask is a regard Mask such as causal() & lengths(n), not {type(given).__name__}"
    if given.dtype == torch.bool:
        return "a bool tensor becomes a mask by dense(tensor), where True = may look"
    return (
        f"a mask is never added to the scores, so {given.dtype} is refused: say "
        "dense(tensor == 0) for a 0 / −inf mask, and make a bias part of the score"
    )
