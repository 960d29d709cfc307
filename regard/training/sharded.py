"""Tensors of which each process holds some rows, beside whole ones.

FSDP2 makes parameters, gradients and what is computed from them DTensors: process r of w holds the
r-th part of ``torch.chunk(x, w)``, the rows of axis 0. A plain tensor is whole in every process.
"""

from typing import Any, cast

import torch
from torch import Tensor


def is_sharded(x: Tensor) -> bool:
    """Return whether this process holds only some rows of a tensor."""
    return hasattr(x, "device_mesh")


def local(x: Tensor) -> Tensor:
    """Return what this process holds of a tensor, sharing its memory."""
    return cast(Tensor, cast(Any, x)._local_tensor) if is_sharded(x) else x


def whole(x: Tensor) -> Tensor:
    """Return all rows of a tensor. All processes must call it alike if it is sharded."""
    return cast(Tensor, cast(Any, x).full_tensor()) if is_sharded(x) else x


def rows(x: Tensor, rank: int, world: int) -> Tensor:
    """Return the rows of a whole tensor that process ``rank`` of ``world`` holds, maybe none.

    A scalar belongs to the first process, as a row; `whole` ones of other processes are empty.

    >>> [rows(torch.arange(5), rank, 4).tolist() for rank in range(4)]
    [[0, 1], [2, 3], [4], []]
    """
    if not x.ndim:
        return x if not rank else x.new_zeros(0)
    size = -(-len(x) // world)
    return x[rank * size : (rank + 1) * size]


def own_rows(x: Tensor, like: Tensor) -> Tensor:
    """Return the rows of a whole tensor that this process holds of ``like``."""
    if not is_sharded(like):
        return x
    mesh = cast(Any, like).device_mesh
    return rows(x, mesh.get_local_rank(), mesh.size())


def gathered(x: Tensor, like: Tensor) -> Tensor:
    """Return the whole tensor of which this process holds the rows ``x`` of ``like``.

    All processes must call it alike if it is sharded.
    """
    if not is_sharded(like):
        return x
    copy = torch.empty_like(like, requires_grad=False)
    local(copy).copy_(x)
    return whole(copy)


@torch.no_grad()
def put(target: Tensor, source: Tensor) -> None:
    """Copy a tensor into another one of the same shape, where either may be sharded.

    All processes must call it alike if only ``source`` is sharded.
    """
    if is_sharded(target):
        local(target).copy_(local(source) if is_sharded(source) else own_rows(source, target))
    else:
        target.copy_(whole(source))
