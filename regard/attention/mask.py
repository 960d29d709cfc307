"""Masks: which keys a query may see. True = may look, everywhere; combined with ``& | ~``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core.errors import RegardError
from regard.core.shown import shown

Predicate = Callable[..., Tensor]  # of (rows, columns), with ``by_index`` and a tile
Kind = Literal["keys", "causal", "pairs"]
Made = tuple[Callable[..., "Mask"], tuple[Any, ...]]
SHOWN = 16  # largest tensor that a mask's repr prints in full


class Tile(NamedTuple):
    """A part of a call: some queries and some keys, by index."""

    rows: slice
    columns: slice | Tensor


WHOLE = Tile(slice(None), slice(None))


class Blocks(NamedTuple):
    """Queries or keys in blocks: the lowest and highest position in each, (blocks,)."""

    positions: Tensor
    size: int
    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, positions: Int[Tensor, "... n"], size: int) -> Blocks:
        """Return blocks of ``size`` neighbours; over a batch, the extremes of all rows."""
        low, high = extremes(positions, size)
        return cls(positions, size, low, high)


class Reach(NamedTuple):
    """A mask's answers for whole blocks of queries × keys, (blocks, blocks), in three values.

    ``may``: some pair of the block may be allowed; ``must``: all pairs of it are.
    """

    may: Tensor
    must: Tensor


class Mask:
    """A predicate on positions: may the query at position i see the key at position j?

    allowed[…, i, j] = predicate(rows, columns), where rows are the positions of the queries and
    columns those of the keys. True = may look. Masks combine with ``&``, ``|`` and ``~``. Kernels
    call the predicate for tiles too, so it must depend on the positions alone. Use
    ``[..., :, None]`` and ``[..., None, :]`` to support positions of any batch shape.

    Args:
        predicate: A function of (rows, columns) that returns a bool tensor, without heads.
        kind: "keys" if the answer depends on the key alone, "causal" for j ≤ i, else "pairs".
        reach: A function that returns which blocks of pairs need no computation.
        grain: A block size within which all answers are equal.
        over_heads: Whether the answers have a head axis at −3.
        by_index: Whether the predicate answers by index in the call, not by position. It then gets
            all rows and columns, and the `Tile` that is asked for, by default `WHOLE`.
        made: The function and the arguments that build an equal mask, for its pickle, copies and
            repr. Without it the mask can be pickled if ``predicate`` and ``reach`` can.
        fits: A function of the number of keys that raises a RegardError if the mask needs more.

    Shape:
        rows: (*batch, n)
        columns: (*batch, m)
        allowed: broadcasts to (*batch, n, m)

    Returns:
        `allows` returns which pairs are allowed, as a bool tensor.

    Raises:
        RegardError: The predicate returns anything but a bool tensor; a mask is combined with
            something that is not a mask.

    Source:
        Vaswani et al. 2017, section 3.2.3.

    Example:
        >>> from regard.attention import causal
        >>> every_other = Mask(lambda rows, columns: columns[..., None, :] % 2 == 0)
        >>> (every_other & causal()).allows(torch.arange(3), torch.arange(3)).int().tolist()
        [[1, 0, 0], [1, 0, 0], [1, 0, 1]]
    """

    #: In beam search, the rows of the previous step that the rows continue, (batch, rows).
    parents: Tensor | None = None

    def __init__(
        self,
        predicate: Predicate,
        *,
        kind: Kind = "pairs",
        reach: Callable[[Blocks, Blocks], Reach] | None = None,
        grain: int | None = None,
        over_heads: bool = False,
        by_index: bool = False,
        made: Made | None = None,
        fits: Callable[[int], None] | None = None,
    ) -> None:
        self.predicate, self.kind, self.has_heads = predicate, kind, over_heads
        self._reach, self.grain, self._made, self._fits = reach, grain, made, fits
        self._by_index = by_index

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
        """Return which pairs are allowed, or those of a tile, broadcastable to (*batch, n, m)."""
        answers = self._answer(rows, columns, tile)
        if not isinstance(answers, Tensor) or answers.dtype != torch.bool:
            kind = answers.dtype if isinstance(answers, Tensor) else type(answers).__name__
            raise RegardError(
                f"a mask's predicate must return a bool tensor, True = may look, not {kind}"
            )
        return answers

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        if self._by_index:
            return self.predicate(rows, columns, tile)
        return self.predicate(rows[..., tile.rows], columns[..., tile.columns])

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        """Return for each block of queries × keys whether some pair may be allowed, and all are."""
        if self._reach is not None:
            return self._reach(rows, columns)
        return anywhere(rows, columns)

    def must_fit(self, keys: int) -> None:
        """Raise a RegardError if the mask needs more keys than those at positions 0 … keys − 1."""
        if self._fits is not None:
            self._fits(keys)

    def over_heads(self) -> Mask:
        """Return the same mask for scores (*batch, heads, n, m), with a head axis at −3."""
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
        super().__init__(
            inner.predicate,
            kind=inner.kind,
            reach=inner.reach,
            grain=inner.grain,
            over_heads=True,
            made=(_OverHeads, (inner,)),
            fits=inner.must_fit,
        )
        self.inner = inner

    def __repr__(self) -> str:
        return repr(self.inner)

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        answers = self.inner.allows(rows, columns, tile)
        return answers.unsqueeze(-3) if answers.ndim > 2 else answers


class _Joined(Mask):
    def __init__(self, one: Mask, two: object, how: Callable[[Tensor, Tensor], Tensor]) -> None:
        if not isinstance(two, Mask):
            raise RegardError(
                f"a mask combines only with masks, not with {type(two).__name__}; use dense(...) "
                "for a tensor"
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
        super().__init__(
            lambda r, c: ~inner.predicate(r, c),
            kind="keys" if inner.kind == "keys" else "pairs",
            grain=inner.grain,
            over_heads=inner.has_heads,
            made=(_Inverse, (inner,)),
            fits=inner.must_fit,
        )
        self.inner = inner

    def __repr__(self) -> str:
        return f"~{self.inner!r}"

    def _answer(self, rows: Tensor, columns: Tensor, tile: Tile) -> Tensor:
        return ~self.inner.allows(rows, columns, tile)

    def reach(self, rows: Blocks, columns: Blocks) -> Reach:
        inner = self.inner.reach(rows, columns)
        return Reach(~inner.must, ~inner.may)


def _written(argument: object) -> str:
    """Return a text for an argument of a mask, equal for equal arguments.

    A large tensor is shown by its shape and a hash.

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


def as_mask(mask: object) -> Mask | None:
    """Return a mask or None; raise a RegardError with the remedy for anything else."""
    if mask is None or isinstance(mask, Mask):
        return mask
    raise RegardError(remedy(mask))


def conjuncts(mask: Mask | None) -> list[Mask]:
    """Return the masks that a mask joins by ``&``, or the mask alone; without a mask none."""
    if mask is None:
        return []
    if isinstance(mask, _OverHeads):
        return conjuncts(mask.inner)
    if isinstance(mask, _Joined) and mask.how is torch.logical_and:
        return [*conjuncts(mask.one), *conjuncts(mask.two)]
    return [mask]


def anywhere(rows: Blocks, columns: Blocks) -> Reach:
    """Return the reach of a mask of which nothing is known: any pair may be allowed."""
    some = torch.ones(len(rows.low), len(columns.low), dtype=torch.bool, device="cpu")
    return Reach(some, ~some)


def extremes(numbers: Int[Tensor, "... n"], size: int) -> tuple[Tensor, Tensor]:
    """Return the minimum and maximum of each block of ``size`` neighbours, over the batch.

    Both are on the CPU.

    >>> extremes(torch.tensor([3, 1, 4, 1, 5]), 2)
    (tensor([1, 1, 5]), tensor([3, 4, 5]))
    """
    if not numbers.numel():
        zeros = torch.zeros(-(-numbers.shape[-1] // size), dtype=numbers.dtype, device="cpu")
        return zeros, zeros
    numbers = numbers.reshape(-1, numbers.shape[-1])
    low, high = numbers.amin(0).cpu(), numbers.amax(0).cpu()
    whole = len(low) // size * size
    lows = [low[:whole].view(-1, size).amin(1)] if whole else []
    highs = [high[:whole].view(-1, size).amax(1)] if whole else []
    if whole < len(low):
        lows, highs = [*lows, low[whole:].amin()[None]], [*highs, high[whole:].amax()[None]]
    return torch.cat(lows), torch.cat(highs)


def remedy(mask: object) -> str:
    """Return the error message for a value that is not a mask."""
    if not isinstance(mask, Tensor):
        return f"mask must be a Mask such as causal() & lengths(n), not {type(mask).__name__}"
    if mask.dtype == torch.bool:
        return "mask must be a Mask, not a bool tensor; use dense(tensor), where True = may look"
    return (
        f"mask must be a Mask, not a tensor of {mask.dtype}, which would be added to the scores; "
        "use dense(tensor == 0) for a 0 / −inf mask, and make a bias part of the score"
    )
