"""Who may look at whom in one call, and at which positions."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attention.mask import WHOLE, Kind, Mask, Tile
from regard.attention.prepared import Positions
from regard.attention.tracing import readable
from regard.errors import RegardError

#: Answers of a mask that are looked at together when all are.
SEEN = 2**22


@dataclass(frozen=True)
class MaskContext:
    """Who may look at whom in one call."""

    mask: Mask | None
    kind: Kind | None
    rows: Tensor
    columns: Tensor
    heads: int | None
    shape: torch.Size
    #: Answers that were made before; torch.compile knows no cached_property.
    kept: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def positions(self) -> Positions:
        """Positions as scores get them, broadcastable over heads."""
        return over_heads(self.rows, self.heads), over_heads(self.columns, self.heads)

    def over(self, columns: Tensor) -> "MaskContext":
        """Return the same for keys at other positions."""
        return MaskContext(self.mask, self.kind, self.rows, columns, self.heads, self.shape)

    @property
    def allowed(self) -> Tensor | None:
        """The mask's answers, broadcastable to the scores; made when first needed."""
        if self.mask is not None and "allowed" not in self.kept:
            self.kept["allowed"] = self.allows(WHOLE)
        return self.kept.get("allowed")

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

    @property
    def seen(self) -> Tensor:
        """The keys that some query may see, (…, m)."""
        if "seen" not in self.kept:
            self.kept["seen"] = _seen(self.allows, self.rows, self.columns)
        return self.kept["seen"]


def seen_of(mask: Mask, rows: Tensor, columns: Tensor) -> Tensor:
    """The keys that a mask lets some query see, (…, m), heads among the axes if it has them."""
    return _seen(lambda tile: mask.allows(rows, columns, tile), rows, columns)


def _seen(allows: Callable[[Tile], Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """Asked for a share of the queries at a time, but in a graph, whose sizes may change."""
    if not readable(columns):
        return allows(WHOLE).any(-2)
    n, m = rows.shape[-1], columns.shape[-1]
    step, found = max(1, SEEN // max(m, 1)), None
    for row in range(0, n, step):
        part = allows(Tile(slice(row, row + step), slice(None))).any(-2)
        found = part if found is None else found | part
    return torch.zeros(m, dtype=torch.bool) if found is None else found


def over_heads(positions: Tensor, heads: int | None) -> Tensor:
    """Positions (\\*batch, n) as (\\*batch, 1, n) where scores have heads."""
    return positions.unsqueeze(-2) if heads and positions.ndim > 1 else positions
