"""Devices and modes of models."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any, TypeVar

import torch
from torch import nn

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


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Set the model to evaluation mode, and restore its mode at the end."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)
