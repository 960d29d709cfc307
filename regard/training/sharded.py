"""Sharded tensors, of which each process holds some rows, and plain tensors.

FSDP2 turns parameters, gradients and results computed from them into DTensors: process r of w
holds the r-th part of ``torch.chunk(x, w)`` along axis 0. Plain tensors are complete in every
process.
"""

from typing import Any, cast

import torch
from torch import Tensor


def is_sharded(x: Tensor) -> bool:
    """Return whether this process holds only some rows of a tensor."""
    return hasattr(x, "device_mesh")


def local(x: Tensor) -> Tensor:
    """Return the rows of a tensor that this process holds, sharing its memory."""
    return cast(Tensor, cast(Any, x)._local_tensor) if is_sharded(x) else x


def whole(x: Tensor) -> Tensor:
    """Return all rows of a tensor. If it is sharded, all processes must call this."""
    return cast(Tensor, cast(Any, x).full_tensor()) if is_sharded(x) else x


def rows(x: Tensor, rank: int, world: int) -> Tensor:
    """Return the rows of a full tensor that process ``rank`` of ``world`` holds, maybe none.

    A scalar is a row of the first process; other processes hold none.

    >>> [rows(torch.arange(5), rank, 4).tolist() for rank in range(4)]
    [[0, 1], [2, 3], [4], []]
    """
    if not x.ndim:
        return x if not rank else x.new_zeros(0)
    size = -(-len(x) // world)
    return x[rank * size : (rank + 1) * size]


def own_rows(x: Tensor, like: Tensor) -> Tensor:
    """Return the rows of a full tensor that this process holds of ``like``."""
    if not is_sharded(like):
        return x
    mesh = cast(Any, like).device_mesh
    return rows(x, mesh.get_local_rank(), mesh.size())


def gathered(x: Tensor, like: Tensor) -> Tensor:
    """Return the full tensor of which this process holds the rows ``x``, sharded as ``like``.

    If it is sharded, all processes must call this.
    """
    if not is_sharded(like):
        return x
    copy = torch.empty_like(like, requires_grad=False)
    local(copy).copy_(x)
    return whole(copy)


@torch.no_grad()
def put(target: Tensor, source: Tensor) -> None:
    """Copy a tensor into another one of the same shape; either may be sharded.

    If only ``source`` is sharded, all processes must call this.
    """
    if is_sharded(target):
        local(target).copy_(local(source) if is_sharded(source) else own_rows(source, target))
    else:
        target.copy_(whole(source))
