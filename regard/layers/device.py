"""Where a model computes, and in which mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

B = TypeVar("B")


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's parameters; the processor for a model without any."""
    parameter = next(model.parameters(), None)
    return torch.device("cpu") if parameter is None else parameter.device


def to_device(model: nn.Module, batch: B) -> B:
    """Return a batch, a dataclass of tensors, on the device of the model's parameters."""
    device = device_of(model)
    if device.type == "cpu":
        return batch
    value: Any = batch
    parts = {x.name: getattr(value, x.name) for x in fields(value)}
    moved = {name: part.to(device) for name, part in parts.items() if part is not None}
    found: B = replace(value, **moved)
    return found


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put the model into evaluation mode; it gets its own mode back at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
