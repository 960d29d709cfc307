"""Devices and modes of models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

B = TypeVar("B")


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters, or the CPU for a model without parameters."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def to_device(model: nn.Module, batch: B) -> B:
    """Move a batch, a dataclass of tensors, to the device of the model's parameters."""
    device = device_of(model)
    if device.type == "cpu":
        return batch
    value: Any = batch
    parts = {x.name: getattr(value, x.name) for x in fields(value)}
    moved = {name: part.to(device) for name, part in parts.items() if part is not None}
    result: B = replace(value, **moved)
    return result


#: Functions of initial weights whose result has the shape of their broadcast arguments.
ELEMENTWISE = set("add sub __rsub__ mul div neg exp expm1 log log1p pow __rpow__".split())


class _ShapesAlone(TorchFunctionMode):
    """Skip the computation of initial weights; other functions are torch's own."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if func is torch.Tensor.normal_ or func is nn.init.normal_:
            return args[0] if args else kwargs["tensor"]
        if func in (torch.randn, torch.rand):
            func = torch.empty
        tensors = [x for x in args if isinstance(x, torch.Tensor)]
        known = getattr(func, "__name__", "") in ELEMENTWISE and "out" not in kwargs
        if known and tensors and all(x.is_meta for x in tensors):
            shape = numpy.broadcast_shapes(
                *(tuple(x.shape) for x in tensors)
            )  # torch's own function imports sympy
            return torch.empty(shape, dtype=tensors[0].dtype)
        return func(*args, **kwargs)


@contextmanager
def without_numbers() -> Iterator[None]:
    """Build networks without memory within the context: tensors only have shapes.

    Nothing is computed, since torch's functions for the meta device take seconds to import. The
    dtype of an operation is that of its first argument.

    >>> with without_numbers():
    ...     layer = nn.Embedding(10**9, 10**9)
    >>> layer.weight.device.type
    'meta'
    """
    with torch.device("meta"), _ShapesAlone():
        yield


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode, and restore the mode of each module at the end."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
