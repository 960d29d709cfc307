"""The mask of one call together with its positions, heads and shape."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from regard.attention.mask import WHOLE, Kind, Mask, Tile, conjuncts
from regard.attention.prepared import Consecutive, Positions
from regard.attention.tracing import on_cpu, readable
from regard.core.errors import RegardError

#: Pairs per tile when all answers of a mask are read.
SEEN = 2**22


@dataclass(frozen=True)
class MaskContext:
    """The mask of one call, with positions of queries and keys and the shape of the scores."""

    mask: Mask | None
    kind: Kind | None
    rows: Tensor
    columns: Tensor
    heads: int | None
    shape: torch.Size
    #: The first positions of queries and keys that are counted up from there; else None.
    counted: tuple[int, int] | None = None
    #: Cached answers; torch.compile does not support cached_property.
    kept: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def positions(self) -> Positions:
        """Return the positions for scores, broadcastable over heads."""
        positions = over_heads(self.rows, self.heads), over_heads(self.columns, self.heads)
        known = self.counted is not None and 0 not in self.shape[-2:] and readable(self.rows)
        return Consecutive(positions) if known else positions

    def over(self, columns: Tensor) -> "MaskContext":
        """Return the same context for keys at other positions."""
        return MaskContext(self.mask, self.kind, self.rows, columns, self.heads, self.shape)

    @property
    def on_host(self) -> Positions | None:
        """Return the positions on the CPU if reading them waits for no GPU, else None."""
        if on_cpu(self.rows) and on_cpu(self.columns):
            return self.rows, self.columns
        if self.counted is None:
            return None
        (row, column), (n, m) = self.counted, self.shape[-2:]
        return (
            torch.arange(row, row + n, device="cpu"),
            torch.arange(column, column + m, device="cpu"),
        )

    @property
    def allowed(self) -> Tensor | None:
        """Return which pairs are allowed, broadcastable to the scores, or None; cached."""
        if self.mask is not None and "allowed" not in self.kept:
            self.kept["allowed"] = self.allows(WHOLE)
        return self.kept.get("allowed")

    def allows(self, tile: Tile) -> Tensor:
        """Return which pairs of a tile are allowed, broadcastable to its scores.

        Raise a RegardError if the mask does not broadcast to the scores.
        """
        assert self.mask is not None
        mask = self.mask.over_heads() if self.heads else self.mask
        allowed = mask.allows(self.rows, self.columns, tile)
        pairs = zip(reversed(allowed.shape[:-2]), reversed(self.shape[:-2]), strict=False)
        if allowed.ndim > len(self.shape) or any(x not in (1, size) for x, size in pairs):
            raise RegardError(
                f"the mask's shape {tuple(allowed.shape)} does not broadcast to the scores "
                f"{tuple(self.shape)}; if those have heads, use mask.over_heads()"
            )
        return allowed

    @property
    def seen(self) -> Tensor:
        """Return which keys some query may see, (…, m)."""
        if "seen" not in self.kept:
            self.kept["seen"] = _seen(self.allows, self.rows, self.columns)
        return self.kept["seen"]

    @property
    def counts(self) -> Tensor:
        """Return how many keys each query may see, (…, n, 1); asks for a few queries at a time."""
        n, m = self.shape[-2:]
        if self.mask is None:
            return torch.full((1, 1), m, device=self.columns.device)
        step = max(1, SEEN // max(m, 1))
        parts = []
        for row in range(0, n, step):
            allowed = self.allows(Tile(slice(row, row + step), slice(None)))
            size = (*allowed.shape[:-2], min(step, n - row), m)
            parts.append(allowed.expand(size).sum(-1, keepdim=True))
        return torch.cat(parts, -2)


def seen_of(mask: Mask, rows: Tensor, columns: Tensor) -> Tensor:
    """Return which keys a mask lets some query see, (…, m), with its head axis if it has one."""
    return _seen(lambda tile: mask.allows(rows, columns, tile), rows, columns)


def hidden_keys(mask: Mask | None, columns: Tensor, past: int) -> Tensor | None:
    """Return which keys at these positions, (…, m), a part of the mask hides from all queries.

    They follow ``past`` cached keys. Only the parts without heads that read keys alone, such as
    lengths, and that ``&`` joins are asked. Return None if there are none.
    """
    hidden, n = None, columns.shape[-1]
    parts = [part for part in conjuncts(mask) if part.kind == "keys" and not part.has_heads]
    if past and parts:
        before = torch.arange(past, device=columns.device)
        columns = torch.cat([before.expand(*columns.shape[:-1], past), columns], -1)
    for part in parts:
        more = ~part.allows(columns[..., :1], columns).squeeze(-2)[..., past : past + n]
        hidden = more if hidden is None else hidden | more
    return hidden


def _seen(allows: Callable[[Tile], Tensor], rows: Tensor, columns: Tensor) -> Tensor:
    """Return which keys are seen, asking for a few queries at a time, or in a graph for all."""
    if not readable(columns):
        return allows(WHOLE).any(-2)
    n, m = rows.shape[-1], columns.shape[-1]
    step, seen = max(1, SEEN // max(m, 1)), None
    for row in range(0, n, step):
        part = allows(Tile(slice(row, row + step), slice(None))).any(-2)
        seen = part if seen is None else seen | part
    return columns.new_zeros(m, dtype=torch.bool) if seen is None else seen


def over_heads(positions: Tensor, heads: int | None) -> Tensor:
    """Return positions (*batch, n) as (*batch, 1, n) if the scores have heads."""
    return positions.unsqueeze(-2) if heads and positions.ndim > 1 else positions
