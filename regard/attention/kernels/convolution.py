"""The short causal convolution of each column, as a sum of shifted products."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.attention.tracing import on_cpu, transformed


def convolve(x: Tensor, taps: Tensor) -> Tensor:
    """Return y_t = Σ_i taps_i x_{t+i}, (*batch, n, columns), of x (*batch, n + i − 1, columns).

    Torch's own convolution takes channels before times. On a CPU its gradient, and that of a
    function of its output, read numbers that are not neighbours, three times as long as this.
    """
    if on_cpu(x) and transformed(x, taps) is None:
        y: Tensor = _Shifted.apply(x, taps)  # type: ignore[no-untyped-call]
        return y
    flat = x.reshape(-1, *x.shape[-2:]).mT
    y = F.conv1d(flat, taps.T.unsqueeze(1), groups=x.shape[-1]).mT
    return y.reshape(*x.shape[:-2], *y.shape[-2:])


class _Shifted(torch.autograd.Function):
    """The sum of shifted products, with one buffer for it and one for the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor) -> Tensor:
        ctx.save_for_backward(x, taps)
        n = x.shape[-2] - len(taps) + 1
        y = x[..., :n, :] * taps[0]
        for i in range(1, len(taps)):
            y.addcmul_(x[..., i : i + n, :], taps[i])
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, Tensor]:
        (slope,), (x, taps) = upstream, ctx.saved_tensors
        n, of_x, of_taps = slope.shape[-2], torch.zeros_like(x), []
        for i, tap in enumerate(taps):
            of_x[..., i : i + n, :].addcmul_(slope, tap)
            of_taps.append((x[..., i : i + n, :] * slope).flatten(0, -2).sum(0))
        return of_x, torch.stack(of_taps)
