"""The results of a score's prepare methods, and the positions that they receive."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor

Prepared = Tensor | tuple[Tensor, ...]
Positions = tuple[Int[Tensor, "... queries"], Int[Tensor, "... keys"]]


class Consecutive(tuple[Tensor, Tensor]):
    """Positions, some on each side, that are known to be consecutive without reading them."""


def as_tuple(prepared: Prepared) -> tuple[Tensor, ...]:
    """Return a prepared side as a tuple."""
    return prepared if isinstance(prepared, tuple) else (prepared,)


def alone(parts: Sequence[Tensor]) -> Prepared:
    """Return one tensor as it is, several as a tuple: the inverse of `as_tuple`."""
    return parts[0] if len(parts) == 1 else tuple(parts)


def repeat_kv(keys: Tensor, heads: int | None) -> Tensor:
    """Return the keys with a copy of each key head for every query head that shares it.

    Grouped keys (*batch, groups, m, width) become (*batch, heads, m, width).
    """
    if heads is None or keys.shape[-3] in (1, heads):
        return keys
    return keys.repeat_interleave(heads // keys.shape[-3], -3)


def repeat_all_kv(prepared: Prepared, heads: int | None) -> Prepared:
    """Apply `repeat_kv` to all tensors of a prepared side."""
    if isinstance(prepared, Tensor):
        return repeat_kv(prepared, heads)
    return tuple(repeat_kv(x, heads) for x in prepared)


def per_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Repeat rows (…, n, width) that several texts share for each text's positions (…, n).

    >>> per_positions(torch.zeros(1, 5, 8), torch.zeros(3, 5)).shape
    torch.Size([3, 5, 8])
    """
    if positions.ndim == 1:
        return x
    return x.expand(*torch.broadcast_shapes(x.shape[:-2], positions.shape[:-1]), *x.shape[-2:])


def like(constant: Tensor, x: Tensor) -> Tensor:
    """Return fixed numbers on the device and in the dtype of x.

    A module keeps such numbers on the CPU, as a plain attribute: a buffer that no file holds is
    empty after ``to_empty``, and rounded by ``to``. The copy to a GPU waits for nothing.
    """
    return constant.to(x.device, non_blocking=True).to(x.dtype)


def distance(positions: Positions) -> Int[Tensor, "... queries keys"]:
    """Return j − i for every pair of positions, (…, queries, keys)."""
    rows, columns = positions
    return columns[..., None, :] - rows[..., :, None]
