"""A module with other parameters, beside the module itself, which other threads may be using."""

from collections.abc import Iterable, Mapping
from types import MethodType
from typing import TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def twin(module: M, parameters: Iterable[Tensor]) -> M:
    """Return a module that computes as this one with these parameters, in the order of its own.

    The module is left alone, where `torch.func.functional_call` puts the tensors into it for the
    time of a call. Submodules are twins, too; a parameter that stands in two places is replaced in
    both, and its own methods that it keeps as attributes are the twin's. What else is no parameter
    (buffers, hooks, plain attributes) is shared.

    >>> import torch
    >>> line = nn.Linear(1, 1, bias=False)
    >>> twin(line, [torch.tensor([[3.0]])])(torch.tensor([2.0])).item()
    6.0
    """
    given = dict(zip(map(id, module.parameters()), parameters, strict=True))
    copied: M = _twin(module, given, {})  # type: ignore[assignment]
    return copied


def _twin(module: nn.Module, given: Mapping[int, Tensor], made: dict[int, nn.Module]) -> nn.Module:
    if id(module) in made:
        return made[id(module)]
    other = made[id(module)] = object.__new__(type(module))
    other.__dict__ = {
        name: MethodType(value.__func__, other)
        if isinstance(value, MethodType) and value.__self__ is module
        else value
        for name, value in module.__dict__.items()
    }
    kept = {name: value if value is None else given.get(id(value), value)
            for name, value in module._parameters.items()}  # fmt: skip
    children = {
        name: None if child is None else _twin(child, given, made)
        for name, child in module._modules.items()
    }
    other.__dict__.update(_parameters=kept, _modules=children, _buffers=module._buffers.copy())
    return other
