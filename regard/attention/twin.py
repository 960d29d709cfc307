"""Copies of a module with other parameters, safe while other threads use the module."""

from collections.abc import Iterable, Mapping
from types import MethodType
from typing import TypeVar

from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)


def twin(module: M, parameters: Iterable[Tensor]) -> M:
    """Return a copy of a module with these parameters, in the order of ``module.parameters()``.

    The module is unchanged; `torch.func.functional_call` would put the tensors into it during the
    call. Submodules are copied too; a parameter used in two places is replaced in both, and bound
    methods of the module among its attributes are bound to the copy. Everything else (buffers,
    hooks, plain attributes) is shared.

    >>> import torch
    >>> line = nn.Linear(1, 1, bias=False)
    >>> twin(line, [torch.tensor([[3.0]])])(torch.tensor([2.0])).item()
    6.0
    """
    replaced = dict(zip(map(id, module.parameters()), parameters, strict=True))
    copied: M = _twin(module, replaced, {})  # type: ignore[assignment]
    return copied


def _twin(
    module: nn.Module, replaced: Mapping[int, Tensor], twins: dict[int, nn.Module]
) -> nn.Module:
    if id(module) in twins:
        return twins[id(module)]
    other = twins[id(module)] = object.__new__(type(module))
    other.__dict__ = {
        name: MethodType(value.__func__, other)
        if isinstance(value, MethodType) and value.__self__ is module
        else value
        for name, value in module.__dict__.items()
    }
    arguments = {name: value if value is None else replaced.get(id(value), value)
            for name, value in module._parameters.items()}  # fmt: skip
    children = {
        name: None if child is None else _twin(child, replaced, twins)
        for name, child in module._modules.items()
    }
    other.__dict__.update(_parameters=arguments, _modules=children, _buffers=module._buffers.copy())
    return other
