"""What a model costs: parameters, and operations for one text."""

import math
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode


def _recurrent(x: Any, input_weight: Any, state_weight: Any, *rest: Any, **named: Any) -> int:
    time, batch, _ = x
    return int(2 * time * batch * (math.prod(input_weight) + math.prod(state_weight)))


def _attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    return int(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


#: Kernels of the CPU that torch's own counter does not know.
UNCOUNTED = {
    torch.ops.aten.mkldnn_rnn_layer: _recurrent,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
}


def count_parameters(model: nn.Module) -> int:
    """Trained numbers of a model, shared ones once.

    >>> count_parameters(nn.Linear(3, 2))
    8
    """
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def flops_per_example(model: nn.Module, length: int) -> int:
    """Floating-point operations of matrix products to classify one text of ``length`` tokens.

    A multiplication and an addition are two. The forward pass only: a training step is about
    three times that. Look-ups and what is done entry by entry are not counted.
    """
    device = next((parameter.device for parameter in model.parameters()), None)
    tokens = torch.ones(1, length, dtype=torch.long, device=device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False, custom_mapping=UNCOUNTED) as counter:
            model(tokens, torch.tensor([length], device=device))
    finally:
        model.train(training)
    return int(counter.get_total_flops())
