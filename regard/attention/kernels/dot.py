"""Inner-product scores with softmax: torch's fused kernel, or plain matrix products.

Both need finite inputs; :func:`regard.attention.attend` uses other kernels for others.
"""

from contextlib import nullcontext
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from regard.attention.call import Call
from regard.attention.prepared import as_tuple, repeat_kv
from regard.attention.tracing import on_cpu, without_numbers
from regard.core.errors import RegardError

#: On a CPU torch's kernel is a third faster if narrower inputs are padded to this width.
NARROWEST = 16
#: With fewer keys it treats a row of NaN scores as one that sees nothing, and returns 0.
FEW = 16
#: Backends on a GPU. Not cuDNN, which plans again for each shape: with batches of many lengths a
#: training step on an H100 took 135 ms with it and 15 ms without.
ON_GPUS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def sides_of(call: Call) -> tuple[Tensor, Tensor, Tensor, float]:
    """Return queries, keys and values with all heads, and the scale of the product."""
    score, heads, keys = call.score, call.context.heads, as_tuple(call.keys)[0]
    queries = score.acceleration.product_queries(score, call.queries)
    scale = score.acceleration.scale(score, queries.shape[-1])
    return queries, repeat_kv(keys, heads), repeat_kv(call.values, heads), scale


def plain(call: Call) -> Tensor:
    """Compute softmax(scale · q kᵀ) v with all weights in memory; 0 for rows that see nothing."""
    queries, keys, values, scale = sides_of(call)
    # Keys of a cache are not contiguous: copying them before transposing is 2 × faster.
    scores, empty, allowed = (queries * scale) @ keys.contiguous().mT, None, call.context.allowed
    if allowed is not None:
        bias, empty = bias_of(allowed, scores.dtype)
        scores = scores + bias
    output = torch.softmax(scores, -1) @ values
    return output if empty is None else output.masked_fill(empty, 0)


def fused(call: Call) -> Tensor:
    """Compute softmax(scale · q kᵀ + bias) v by scaled_dot_product_attention.

    Memory is O(n), plus a mask and the bias of the score, as a table. A causal mask without a bias
    is the kernel's own. On a CPU the fused kernel needs 4-D inputs of equal width, so
    others are reshaped and padded with zeros.
    """
    queries, keys, values, scale = sides_of(call)
    bias = empty = None
    if not call.score.acceleration.inner_product:
        positions = call.context.positions
        bias = call.score.acceleration.bias(call.score, call.queries, positions)
    causal = call.context.kind == "causal" and bias is None
    allowed = None if causal else call.context.allowed
    if allowed is not None:
        hidden, empty = bias_of(allowed, queries.dtype)
        bias = hidden if bias is None else bias.to(queries.dtype) + hidden
    elif bias is not None:  # on a GPU the kernel reads rows in order
        bias = bias.to(queries.dtype).contiguous()
    batch = queries.shape[:-2]
    width = max(queries.shape[-1], values.shape[-1], NARROWEST if queries.shape[-2] > 1 else 1)
    if not keys.shape[:-2] == values.shape[:-2] == batch:
        batch = torch.broadcast_shapes(batch, keys.shape[:-2], values.shape[:-2])
    if bias is not None and bias.ndim != 2 and len(batch) != 2:
        bias = four_axes(bias, bias.shape[-1], batch)
    with sdpa_kernel(ON_GPUS) if queries.device.type == "cuda" else nullcontext():
        output = F.scaled_dot_product_attention(
            four_axes(queries, width, batch),
            four_axes(keys, width, batch),
            four_axes(values, width, batch),
            bias,
            is_causal=causal,
            scale=scale,
        )
    if not without_numbers(queries) and torch.is_grad_enabled():
        refuse_second(output)
    if width != values.shape[-1]:
        output = output[..., : values.shape[-1]]
    if len(batch) != 2:
        output = output.reshape(*batch, *output.shape[-2:])
    if queries.device.type == "cpu" and (without_numbers(queries) or keys.shape[-2] < FEW):
        output = output + (0 * queries.detach()).sum(-1, keepdim=True)
        if allowed is None and not causal:
            output = output + (0 * keys.detach()).sum((-2, -1)).unsqueeze(-1).unsqueeze(-1)
    return output if empty is None else output.masked_fill(empty, 0)


def refuse_second(output: Tensor) -> None:
    """Make a second derivative raise a RegardError, since torch's kernel has only a first one."""
    node = output.grad_fn
    if node is not None and node.name().startswith("ScaledDotProduct"):
        node.register_hook(_once)


def _once(gradients: tuple[Tensor | None, ...], _: object) -> tuple[Tensor | None, ...] | None:
    if not torch.is_grad_enabled():
        return None
    return tuple(None if g is None else _Once.apply(g) for g in gradients)  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """The identity on a gradient, whose own backward raises a RegardError."""

    @staticmethod
    def forward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> None:
        raise RegardError(
            "the fused kernel is differentiable once; for second derivatives compute inside "
            "`with regard.use('exact'):`"
        )


def four_axes(x: Tensor, width: int, batch: torch.Size) -> Tensor:
    """Return x expanded to the batch, as (_, heads, n, width), padded with columns of zeros."""
    if x.shape[-1] != width:
        x = F.pad(x, (0, width - x.shape[-1]))
    if x.shape[:-2] != batch:
        x = x.expand(*batch, *x.shape[-2:])
    return x if len(batch) == 2 else x.reshape(prod(batch), 1, *x.shape[-2:])


def bias_of(allowed: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Return 0 for True and −inf for False, and the rows (…, n, 1) that may see nothing, or None.

    The bias of those rows is 0, so that no kernel divides 0 by 0.
    """
    empty: Tensor | None = ~allowed.any(-1, keepdim=True)
    assert empty is not None
    if on_cpu(allowed) and not bool(empty.any()):
        empty = None
    hidden = ~(allowed if empty is None else allowed | empty)
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf), empty
