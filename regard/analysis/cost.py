"""Costs of a model: parameters, operations of a call, operations for one text."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from regard.nn.layers.device import device_of, evaluation_mode


def _recurrent(x: Any, input_weight: Any, state_weight: Any, *rest: Any, **named: Any) -> int:
    time, batch, _ = x
    return int(2 * time * batch * (math.prod(input_weight) + math.prod(state_weight)))


def _attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    return int(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _attention_backward(
    upstream: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any
) -> int:
    # Scores once more, and the gradients of values, weights, queries and keys.
    return int(2 * math.prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]))


def _added_products(total: Any, one: Any, two: Any, *rest: Any, **named: Any) -> int:
    return int(2 * math.prod(one) * two[-1])


def _products(one: Any, two: Any, *rest: Any, **named: Any) -> int:
    return int(2 * math.prod(one))


#: CPU kernels that torch's own counter does not know.
UNCOUNTED: dict[Any, Callable[..., int]] = {
    torch.ops.aten.mv: _products,
    torch.ops.aten.addmv: lambda total, one, two, *rest, **named: _products(one, two),
    torch.ops.aten.mkldnn_rnn_layer: _recurrent,
    torch.ops.aten.baddbmm_: _added_products,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


@cache
def formulas() -> dict[Any, Callable[..., int]]:
    """Return the operations of each kernel as a function of its inputs and its output."""
    from torch.utils.flop_counter import flop_registry, shape_wrapper  # imports triton

    uncounted = {kernel: shape_wrapper(formula) for kernel, formula in UNCOUNTED.items()}
    return {**uncounted, **flop_registry}


class _Counter(TorchDispatchMode):
    """Counts the operations that run.

    torch's FlopCounterMode also hooks modules, which fails inside custom autograd functions.
    """

    total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        out = func(*args, **(kwargs or {}))
        formula = formulas().get(func._overloadpacket)
        if formula is not None:
            self.total += formula(*args, **(kwargs or {}), out_val=out)
        return out


def operations(work: Callable[[], object]) -> int:
    """Return the floating-point operations of a call's products, convolutions and attentions.

    A multiplication and an addition are two operations. The count has every computed operation,
    forward and backward, also inside regard's tiles. It omits blocks that a mask skips, and
    includes hidden pairs that a kernel computes.

    >>> x = torch.ones(3, 5)
    >>> operations(lambda: x @ x.mT)
    90
    """
    with _Counter() as counter:  # type: ignore[no-untyped-call]
        work()
    return int(counter.total)


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters of a model, counting shared ones once.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def flops_per_example(model: nn.Module, length: int) -> int:
    """Return the operations of matrix products to classify one text of ``length`` tokens.

    A multiplication and an addition are two operations. This is the forward pass; a training step
    takes about three times as many. Look-ups and elementwise operations are not counted.
    """
    device = device_of(model)
    tokens = torch.ones(1, length, dtype=torch.long, device=device)
    with evaluation_mode(model), torch.no_grad():
        return operations(lambda: model(tokens, torch.tensor([length], device=device)))
