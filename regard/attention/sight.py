"""Who may look at whom in one call, from where."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from regard.attention.mask import WHOLE, Kind, Mask, Tile
from regard.attention.score import Where
from regard.errors import RegardError

#: Answers of a mask that are looked at together when all are.
SEEN = 2**22


@dataclass(frozen=True)
class Sight:
    """Who may look at whom in one call."""

    mask: Mask | None
    kind: Kind | None
    rows: Tensor
    columns: Tensor
    heads: int | None
    shape: torch.Size

    @property
    def where(self) -> Where:
        """Positions as scores get them, broadcastable over heads."""
        return over_heads(self.rows, self.heads), over_heads(self.columns, self.heads)

    @cached_property
    def allowed(self) -> Tensor | None:
        """The mask's answers, broadcastable to the scores; made when first needed."""
        return None if self.mask is None else self.allows(WHOLE)

    def allows(self, tile: Tile) -> Tensor:
        """The mask's answers for a tile, broadcastable to its scores."""
        assert self.mask is not None
        mask = self.mask.over_heads() if self.heads else self.mask
        allowed = mask.allows(self.rows, self.columns, tile)
        pairs = zip(reversed(allowed.shape[:-2]), reversed(self.shape[:-2]), strict=False)
        if allowed.ndim > len(self.shape) or any(x not in (1, size) for x, size in pairs):
            raise RegardError(
                f"the mask answers for {tuple(allowed.shape)}, which does not broadcast to the "
                f"scores {tuple(self.shape)}; if those have heads, use mask.over_heads()"
            )
        return allowed

    @cached_property
    def seen(self) -> Tensor:
        """The keys that some query may see, (…, m)."""
        return _seen(self.allows, *self.shape[-2:])


def seen_of(mask: Mask, rows: Tensor, columns: Tensor) -> Tensor:
    """The keys that a mask lets some query see, (…, m), heads among the axes if it has them."""
    return _seen(lambda tile: mask.allows(rows, columns, tile), rows.shape[-1], columns.shape[-1])


def _seen(allows: Callable[[Tile], Tensor], n: int, m: int) -> Tensor:
    """Asked for a share of the queries at a time."""
    step, found = max(1, SEEN // max(m, 1)), None
    for row in range(0, n, step):
        part = allows(Tile(slice(row, row + step), slice(None))).any(-2)
        found = part if found is None else found | part
    return torch.zeros(m, dtype=torch.bool) if found is None else found


def over_heads(positions: Tensor, heads: int | None) -> Tensor:
    """Positions (\\*batch, n) as (\\*batch, 1, n) where scores have heads."""
    return positions.unsqueeze(-2) if heads and positions.ndim > 1 else positions
