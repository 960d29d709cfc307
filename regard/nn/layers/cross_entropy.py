"""Cross entropy over a large vocabulary without keeping all logits in memory."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.nn.layers.vocabulary import aligned, parts_of

CHUNK = 2**22  # logits computed at a time; as many fit into a processor's cache


def vocabulary_cross_entropy(
    states: Float[Tensor, "rows width"],
    weight: Float[Tensor, "words width"],
    bias: Float[Tensor, " words"] | None,
    wanted: Int[Tensor, " rows"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return the mean over the rows of −Σ_v q_v log softmax(W h + b)_v, in nats; 0 for no rows.

    q is 1 − s for the wanted word plus s/V for each of the V words (Szegedy et al. 2016, section
    7), as in torch's ``cross_entropy(..., label_smoothing=s)``. Logits and, if required, gradients
    are computed for a few rows at a time, so that all logits are never in memory together (Hsu et
    al. 2024, Liger). Under autocast, products have its dtype; softmax, sums and the gradient of the
    weight have float32. Gradients of gradients are not supported.

    >>> states, weight = torch.zeros(2, 4), torch.zeros(8, 4)
    >>> round(vocabulary_cross_entropy(states, weight, None, torch.tensor([3, 5])).item(), 4)
    2.0794
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    grad_enabled = torch.is_grad_enabled()
    with torch.autocast(device, enabled=False):
        loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            states, weight, bias, wanted, smoothing, dtype, grad_enabled
        )
    return loss


def word_loss(
    model: nn.Module,
    states: Float[Tensor, "rows width"],
    wanted: Int[Tensor, " rows"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Return `vocabulary_cross_entropy` for the output matrix of a model (its ``logit_parts``).

    Without it, the ``states`` are logits.
    """
    if not hasattr(model, "logit_parts"):
        return F.cross_entropy(states.float(), wanted, label_smoothing=smoothing)
    return vocabulary_cross_entropy(*parts_of(model, states), wanted, smoothing)


def rows_at_a_time(count: int, words: int) -> Iterator[slice]:
    """Split ``count`` rows into slices whose logits of ``words`` words fit into a cache."""
    step = max(CHUNK // max(words, 1), 1)
    return (slice(start, start + step) for start in range(0, count, step))


class _CrossEntropy(torch.autograd.Function):
    """The loss, with gradients that are computed in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        grad_enabled: bool,
    ) -> Tensor:
        """Compute the loss in chunks and save the products of (softmax − q)/rows for backward."""
        sums = torch.promote_types(dtype, torch.float32)
        matrix, inputs = weight.to(dtype), states.to(dtype)
        offsets = None if bias is None else bias.to(dtype)
        total = torch.zeros((), dtype=sums, device=states.device)
        needed = [need and grad_enabled for need in ctx.needs_input_grad[:3]]
        grad_states = torch.empty_like(inputs) if needed[0] else None
        grad_weight = torch.zeros_like(weight, dtype=sums) if needed[1] else None
        grad_bias = torch.zeros_like(bias, dtype=sums) if bias is not None and needed[2] else None
        words = weight.shape[0]
        if smoothing:  # the mean of a row's logits is the product of its state and the mean word
            mean = inputs.sum(0, dtype=sums) @ matrix.mean(0, dtype=sums)
            total -= smoothing * (mean if bias is None else mean + len(inputs) * bias.mean())
        matrix, offsets = aligned(matrix, offsets)
        for rows in rows_at_a_time(len(inputs), words):
            h, target = inputs[rows], wanted[rows, None]
            logits = torch.nn.functional.linear(h, matrix, offsets)
            grad_logits = logits.softmax(-1, dtype=sums)  # becomes softmax − q below
            target_logits = logits.gather(1, target).to(sums)
            # log Σ exp from the largest probability: a small one may be 0.
            largest = grad_logits.amax(-1, keepdim=True)
            log_sum = logits.amax(-1, keepdim=True).to(sums) - largest.log()
            total += (log_sum - (1 - smoothing) * target_logits).sum()
            if not any(needed):
                continue
            if smoothing:
                grad_logits -= smoothing / words
            grad_logits.scatter_add_(1, target, torch.full_like(target_logits, smoothing - 1))
            rounded = grad_logits.to(dtype)
            if grad_states is not None:
                torch.mm(rounded, matrix, out=grad_states[rows])
            if grad_weight is not None:
                grad_weight += (rounded.mT @ h)[:words]
            if grad_bias is not None:
                grad_bias += grad_logits.sum(0)[:words]
        count = max(len(inputs), 1)
        gradients = [grad_states, grad_weight, grad_bias]
        ctx.save_for_backward(*(None if x is None else x.div_(count) for x in gradients))
        ctx.dtypes = [x if x is None else x.dtype for x in (states, weight, bias)]
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Any:
        """Return the saved gradients, multiplied by the upstream gradient."""
        gradients = [
            None if x is None else (x * upstream).to(dtype)
            for x, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *gradients, None, None, None, None
