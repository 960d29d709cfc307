"""Checks whether the numbers in a tensor can be read, and contexts for tensors without them.

They cannot while torch.compile or torch.export traces a graph, on the meta device and in a
FakeTensorMode, which have no numbers, and under torch.func, where one tensor stands for many.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad

from regard.core.errors import RegardError


def without_numbers(x: Tensor) -> bool:
    """Return whether a tensor has a shape and a dtype but no numbers."""
    return torch.compiler.is_compiling() or x.is_meta or isinstance(x, FakeTensor)


def readable(x: Tensor) -> bool:
    """Return whether the numbers of a tensor can be read, possibly after waiting for a GPU.

    >>> readable(torch.zeros(2)), readable(torch.zeros(2, device="meta"))
    (True, False)
    """
    return not (without_numbers(x) or torch._C._are_functorch_transforms_active())


def on_cpu(x: Tensor) -> bool:
    """Return whether a number can be read without a device synchronisation."""
    return x.device.type == "cpu" and readable(x)


def unrounded(x: Tensor) -> AbstractContextManager[object]:
    """Return a context without autocast, in which products keep the precision of x."""
    if x.device.type == "meta":  # torch has no autocast for it
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def refuse_second_derivative(what: str) -> None:
    """Raise a RegardError in the backward pass of a first derivative that is itself recorded."""
    if torch.is_grad_enabled():
        raise RegardError(
            f"{what} is differentiable once; for second derivatives compute inside `with "
            "regard.use('exact'):`"
        )


def transformed(*inputs: Tensor | nn.Module) -> str | None:
    """Return the active transform that supports only torch's own operations, or None.

    >>> _ = torch.func.vmap(lambda x: print(transformed(x)) or x)(torch.zeros(2))
    torch.func
    """
    if torch._C._are_functorch_transforms_active():
        return "torch.func"
    if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:
        for x in inputs:
            tensors = [x] if isinstance(x, Tensor) else x.parameters()
            if any(forward_ad.unpack_dual(y).tangent is not None for y in tensors):
                return "forward-mode AD"
    return None
