"""Whether the numbers in a tensor can be read.

They cannot while torch.compile or torch.export makes a graph of a call, on the meta device and in a
FakeTensorMode, where there are none, and under torch.func, where a tensor stands for many.
"""

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad


def without_numbers(x: Tensor) -> bool:
    """Whether a tensor has a shape and a dtype, and no numbers yet."""
    return torch.compiler.is_compiling() or x.is_meta or isinstance(x, FakeTensor)


def readable(x: Tensor) -> bool:
    """Whether the numbers of a tensor can be read, if perhaps after waiting for a GPU.

    >>> readable(torch.zeros(2)), readable(torch.zeros(2, device="meta"))
    (True, False)
    """
    return not (without_numbers(x) or torch._C._are_functorch_transforms_active())


def on_cpu(x: Tensor) -> bool:
    """Whether reading a number of a tensor costs no waiting."""
    return x.device.type == "cpu" and readable(x)


def transformed(*given: Tensor | nn.Module) -> str | None:
    """What is at work that has rules for torch's own operations alone, or None.

    >>> _ = torch.func.vmap(lambda x: print(transformed(x)) or x)(torch.zeros(2))
    torch.func
    """
    if torch._C._are_functorch_transforms_active():
        return "torch.func"
    if not torch.compiler.is_compiling() and forward_ad._current_level >= 0:
        for x in given:
            tensors = [x] if isinstance(x, Tensor) else x.parameters()
            if any(forward_ad.unpack_dual(y).tangent is not None for y in tensors):
                return "forward-mode AD"
    return None
