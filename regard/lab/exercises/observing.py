"""Call a student's function on the cases of a part and record what it does, as plain values.

This runs beside the student's code. Only values leave it: `faults.judge` compares them elsewhere.
The functions of torch that it needs are bound before the student's code runs.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from regard.lab.exercises.part import Arguments, Part

Observation = dict[str, Any]
LARGEST = 10_000  # numbers of an answer
_grad, _cos, _arange, _deepcopy = torch.autograd.grad, torch.cos, torch.arange, copy.deepcopy


def observe_all(part: Part, function: object) -> list[Observation]:
    """Return what a function does in each case of a part; one observation if it is missing."""
    if function is None:
        return [{"error": "there is no function of this name"}]
    if not callable(function):
        return [{"error": f"it is a {type(function).__name__}, not a function"}]
    return [observe(function, arguments) for arguments in part.cases()]


def observe(function: Callable[..., Any], arguments: Arguments) -> Observation:
    """Return the answer, the answer of a second call, the arguments afterwards and the gradients.

    Gradients are those of Σ cos(i) answer[i] by each tensor of numbers among the arguments.
    """
    seen: Observation = {}
    try:
        given = [_copied(one) for one in arguments]
        seen["value"] = encode(function(*given))
        seen["after"] = [encode(one) if isinstance(one, Tensor) else None for one in given]
        given = [_copied(one, grad=True) for one in arguments]
        # not the leaves: they refuse changes in place
        output = function(*(one.clone() if isinstance(one, Tensor) else one for one in given))
        seen |= {"again": encode(output), "grads": _gradients(output, given)}
    except NotImplementedError:
        return {"error": "it is still blank"}
    except BaseException as error:  # whatever a student's code raises, SystemExit too
        words = " ".join(str(error).split())[:200]
        problem = f"raises {type(error).__name__}{f' ({words})' if words else ''}"
        return seen | {"second": problem} if "after" in seen else {"error": problem}
    return seen


def _copied(value: Any, grad: bool = False) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(grad and value.is_floating_point())
    return _deepcopy(value) if isinstance(value, nn.Module | list | dict) else value


def _gradients(output: Any, given: list[Any]) -> list[Any]:
    """Return the gradient by each argument, None where there is none."""
    outputs = output if isinstance(output, tuple | list) else [output]
    outputs = [one for one in outputs if isinstance(one, Tensor) and one.requires_grad]
    wanted = [i for i, one in enumerate(given) if isinstance(one, Tensor) and one.requires_grad]
    grads: list[Any] = [None] * len(given)
    if outputs and wanted:
        total = sum((y * _cos(_arange(y.numel()) + 0.5).view(y.shape)).sum() for y in outputs)
        found = _grad(total, [given[i] for i in wanted], allow_unused=True)
        for i, gradient in zip(wanted, found, strict=True):
            grads[i] = None if gradient is None else encode(gradient)
    return grads


def encode(value: Any) -> dict[str, Any]:
    """Return a value as JSON can hold it.

    >>> encode(torch.ones(2)), encode((1, "a"))
    ({'shape': [2], 'values': [1.0, 1.0]}, {'items': [{'plain': 1}, {'plain': 'a'}]})
    """
    if isinstance(value, Tensor):
        if value.numel() > LARGEST:
            return {"other": f"tensor of {value.numel():,} numbers"}
        flat = value.detach().reshape(-1).double().tolist()
        return {"shape": list(value.shape), "values": flat}
    if isinstance(value, tuple | list):
        return {"items": [encode(one) for one in value[:99]]}
    if isinstance(value, bool | int | float | str):
        return {"plain": value}
    return {"other": type(value).__name__}
