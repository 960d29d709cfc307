"""What the prepare methods of a score give, and the positions that they are given."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

Prepared = Tensor | tuple[Tensor, ...]
Positions = tuple[Int[Tensor, "... queries"], Int[Tensor, "... keys"]]


def as_tuple(prepared: Prepared) -> tuple[Tensor, ...]:
    """What a prepare method gave, as a tuple."""
    return prepared if isinstance(prepared, tuple) else (prepared,)


def alone(parts: Sequence[Tensor]) -> Prepared:
    """Return what a prepare method gave: a tensor if it is one, else a tuple."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def repeat_kv(keys: Tensor, heads: int | None) -> Tensor:
    """Give each query head its own copy of the key head that it shares with its neighbours.

    Grouped keys (\\*batch, groups, m, width) become (\\*batch, heads, m, width).
    """
    if heads is None or keys.shape[-3] in (1, heads):
        return keys
    return keys.repeat_interleave(heads // keys.shape[-3], -3)


def repeat_all_kv(prepared: Prepared, heads: int | None) -> Prepared:
    """`repeat_kv` over what a prepare method gave."""
    if isinstance(prepared, Tensor):
        return repeat_kv(prepared, heads)
    return tuple(repeat_kv(x, heads) for x in prepared)


def per_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Rows that several texts share, (…, n, width), once for each of the texts' positions (…, n).

    >>> per_positions(torch.zeros(1, 5, 8), torch.zeros(3, 5)).shape
    torch.Size([3, 5, 8])
    """
    if positions.ndim == 1:
        return x
    return x.expand(*torch.broadcast_shapes(x.shape[:-2], positions.shape[:-1]), *x.shape[-2:])
