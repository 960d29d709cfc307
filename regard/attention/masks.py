"""Masks: which keys a query may look at. True = may look, everywhere; joined by ``& | ~``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import RegardError

Predicate = Callable[[Tensor, Tensor], Tensor]
Kind = Literal["keys", "causal", "pairs"]


class Mask:
    """A predicate on positions: may the query at a row look at the key at a column?

    The function gets the positions of queries (\\*batch, n) and keys (\\*batch, m) and answers with
    a bool tensor that broadcasts to (\\*batch, n, m); heads are no part of it. Written with
    ``[..., :, None]`` and ``[..., None, :]`` it serves positions of any batch shape.

    >>> every_other = Mask(lambda rows, columns: columns[..., None, :] % 2 == 0)
    >>> (every_other & causal()).allows(torch.arange(3), torch.arange(3)).int().tolist()
    [[1, 0, 0], [1, 0, 0], [1, 0, 1]]
    """

    def __init__(
        self, predicate: Predicate, *, kind: Kind = "pairs", over_heads: bool = False
    ) -> None:
        self.predicate, self.kind, self.has_heads = predicate, kind, over_heads

    def allows(
        self, rows: Int[Tensor, "... queries"], columns: Int[Tensor, "... keys"]
    ) -> Bool[Tensor, "..."]:
        """The answers for these positions, broadcastable to (\\*batch, n, m)."""
        answers = self.predicate(rows, columns)
        if not isinstance(answers, Tensor) or answers.dtype != torch.bool:
            what = answers.dtype if isinstance(answers, Tensor) else type(answers).__name__
            raise RegardError(f"a mask answers with a bool tensor, True = may look, not {what}")
        return answers

    def over_heads(self) -> Mask:
        """The same mask for scores (\\*batch, heads, n, m): the head axis is put at −3."""
        if self.has_heads:
            return self

        def headed(rows: Tensor, columns: Tensor) -> Tensor:
            answers = self.allows(rows, columns)
            return answers.unsqueeze(-3) if answers.ndim > 2 else answers

        return Mask(headed, kind=self.kind, over_heads=True)

    def __and__(self, other: object) -> Mask:
        return _join(self, other, torch.logical_and)

    def __or__(self, other: object) -> Mask:
        return _join(self, other, torch.logical_or)

    def __invert__(self) -> Mask:
        kind: Kind = "keys" if self.kind == "keys" else "pairs"
        return Mask(lambda r, c: ~self.allows(r, c), kind=kind, over_heads=self.has_heads)


def _join(one: Mask, two: object, how: Callable[[Tensor, Tensor], Tensor]) -> Mask:
    if not isinstance(two, Mask):
        raise RegardError(f"masks join with masks, not with {type(two).__name__}; see dense(...)")
    if one.has_heads or two.has_heads:
        one, two = one.over_heads(), two.over_heads()
    kind: Kind = "keys" if one.kind == two.kind == "keys" else "pairs"
    return Mask(
        lambda rows, columns: how(one.allows(rows, columns), two.allows(rows, columns)),
        kind=kind,
        over_heads=one.has_heads,
    )


def causal() -> Mask:
    """Each position sees itself and the past."""
    return Mask(lambda rows, columns: columns[..., None, :] <= rows[..., :, None], kind="causal")


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

    return Mask(allows, kind="keys")


def lengths_per_query(valid: Int[Tensor, "*batch queries"] | Sequence[Sequence[int]]) -> Mask:
    """The i-th query of the call sees the keys at positions 0 … valid[i] − 1."""
    valid = _integers(valid)

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        if valid.shape[-1] != rows.shape[-1]:
            raise RegardError(
                f"lengths_per_query tells of {valid.shape[-1]} queries; the call has "
                f"{rows.shape[-1]}"
            )
        columns = columns[..., None, :]
        return (columns >= 0) & (columns < valid.to(columns.device)[..., :, None])

    return Mask(allows)


def prefix(size: Int[Tensor, "*batch"] | Sequence[int] | int) -> Mask:
    """The first ``size`` keys may be seen by all: ``causal() | prefix(k)`` is a prefix model."""
    return lengths(size)


def others() -> Mask:
    """Every position but one's own: leave one out."""
    return Mask(lambda rows, columns: columns[..., None, :] != rows[..., :, None])


def dense(allowed: Bool[Tensor, "*batch queries keys"] | Tensor) -> Mask:
    """A mask from a tensor, True = may look, by place in the call and not by position."""
    if allowed.dtype != torch.bool:
        raise RegardError(_remedy(allowed))

    def allows(rows: Tensor, columns: Tensor) -> Tensor:
        size = (rows.shape[-1], columns.shape[-1])
        if any(have not in (1, want) for have, want in zip(allowed.shape[-2:], size, strict=True)):
            raise RegardError(
                f"a dense mask of {allowed.shape[-2]} × {allowed.shape[-1]} does not fit "
                f"{size[0]} queries and {size[1]} keys"
            )
        return allowed

    return Mask(allows, kind="keys" if allowed.shape[-2] == 1 else "pairs")


def as_mask(given: object) -> Mask | None:
    """A mask or none; anything else is refused with the remedy."""
    if given is None or isinstance(given, Mask):
        return given
    raise RegardError(_remedy(given))


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
