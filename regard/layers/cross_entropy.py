"""Cross entropy over a whole vocabulary, its logits never whole in memory."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

NUMBERS = 2**22  # logits that exist at a time: so many stay in a processor's cache


def vocabulary_cross_entropy(
    states: Float[Tensor, "rows width"],
    weight: Float[Tensor, "words width"],
    bias: Float[Tensor, " words"] | None,
    wanted: Int[Tensor, " rows"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """Mean over the rows of −Σ_v q_v log softmax(W h + b)_v, in nats; 0 for no rows.

    q is 1 − s at the word wanted and s/V spread over all V (Szegedy et al. 2016, section 7): the
    same as torch's ``cross_entropy(..., label_smoothing=s)`` of the logits. A few rows at a time
    are multiplied, normalised and, where gradients are asked for, multiplied back at once, so that
    logits, their logarithms and their gradients are never whole in memory (Hsu et al. 2024, Liger).
    Under autocast products are of its dtype; softmax, sums and the weight's gradient of float32.
    Gradients once, not gradients of gradients.

    >>> states, weight = torch.zeros(2, 4), torch.zeros(8, 4)
    >>> round(vocabulary_cross_entropy(states, weight, None, torch.tensor([3, 5])).item(), 4)
    2.0794
    """
    device = states.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    asked = torch.is_grad_enabled()
    with torch.autocast(device, enabled=False):
        loss: Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
            states, weight, bias, wanted, smoothing, dtype, asked
        )
    return loss


def word_loss(
    model: nn.Module,
    states: Float[Tensor, "rows width"],
    wanted: Int[Tensor, " rows"],
    smoothing: float = 0.0,
) -> Float[Tensor, ""]:
    """The same of the words that a model (its ``logit_parts``) reads out of its states."""
    return vocabulary_cross_entropy(*parts_of(model, states), wanted, smoothing)


def parts_of(
    model: nn.Module, states: Float[Tensor, "rows width"]
) -> tuple[Float[Tensor, "rows width"], Float[Tensor, "words width"], Tensor | None]:
    """What a model multiplies for its logits, by which matrix, and the bias."""
    logit_parts = cast(Callable[[Tensor], tuple[Tensor, Tensor, Tensor | None]], model.logit_parts)
    return logit_parts(states)


def rows_at_a_time(count: int, words: int) -> Iterator[slice]:
    """``count`` rows cut so that the logits of so many words stay in a processor's cache."""
    step = max(NUMBERS // max(words, 1), 1)
    return (slice(start, start + step) for start in range(0, count, step))


class _CrossEntropy(torch.autograd.Function):
    """The loss, and its gradients kept from the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        wanted: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        asked: bool,
    ) -> Tensor:
        """Chunk by chunk: logits, softmax, loss; (softmax − q)/rows and its two products."""
        sums = torch.promote_types(dtype, torch.float32)
        matrix, given = weight.to(dtype), states.to(dtype)
        offsets = None if bias is None else bias.to(dtype)
        total = torch.zeros((), dtype=sums, device=states.device)
        needed = [need and asked for need in ctx.needs_input_grad[:3]]
        of_states = torch.empty_like(given) if needed[0] else None
        of_weight = torch.zeros_like(weight, dtype=sums) if needed[1] else None
        of_bias = torch.zeros_like(bias, dtype=sums) if bias is not None and needed[2] else None
        words = weight.shape[0]
        if smoothing:  # the mean of a row's logits is what its state makes of the mean word
            mean = given.sum(0, dtype=sums) @ matrix.mean(0, dtype=sums)
            total -= smoothing * (mean if bias is None else mean + len(given) * bias.mean())
        for rows in rows_at_a_time(len(given), words):
            h, target = given[rows], wanted[rows, None]
            logits = torch.nn.functional.linear(h, matrix, offsets)
            shares = logits.softmax(-1, dtype=sums)
            found = logits.gather(1, target).to(sums)
            # log Σ exp, from the share of the likeliest word: a small one may be 0.
            spread = logits.amax(-1, keepdim=True).to(sums) - shares.amax(-1, keepdim=True).log()
            total += (spread - (1 - smoothing) * found).sum()
            if not any(needed):
                continue
            if smoothing:
                shares -= smoothing / words
            shares.scatter_add_(1, target, torch.full_like(found, smoothing - 1))
            slopes = shares.to(dtype)
            if of_states is not None:
                torch.mm(slopes, matrix, out=of_states[rows])
            if of_weight is not None:
                of_weight += slopes.mT @ h
            if of_bias is not None:
                of_bias += shares.sum(0)
        count = max(len(given), 1)
        kept = [of_states, of_weight, of_bias]
        ctx.save_for_backward(*(None if x is None else x.div_(count) for x in kept))
        ctx.dtypes = [x if x is None else x.dtype for x in (states, weight, bias)]
        return total / count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> Any:
        """The gradients that were kept, times what comes from above."""
        found = [
            None if x is None else (x * slope).to(dtype)
            for x, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        ]
        return *found, None, None, None, None
