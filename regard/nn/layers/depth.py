"""Attention over depth, in place of the residual sum."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.nn.layers.stream import Stream

EPSILON = 1e-6


class DepthAttention(nn.Module):
    """h = Σᵢ weightᵢ vᵢ, weight = softmaxᵢ(w · vᵢ / rms(vᵢ)), w learned in each sublayer.

    The input h of a sublayer f is an average of the embedded words v₀ and of the outputs vᵢ of all
    sublayers before it, where a residual connection adds them up; the output is f(LayerNorm h). A
    last average is the output of the stack. w is zero at first, so that the weights are uniform.
    Each word has weights of its own, and none of another word.

    Source: Kimi Team 2026, Attention Residuals, 2603.15031, full form; the gain of their RMSNorm is
    a part of w.

    >>> stream, second = Stream(), DepthAttention(4, 1)
    >>> first = DepthAttention(4, 0)(torch.ones(2, 3, 4), stream)
    >>> second(torch.full((2, 3, 4), 5.0), stream)[0, 0]
    tensor([3., 3., 3., 3.], grad_fn=<SelectBackward0>)
    """

    def __init__(self, width: int, index: int) -> None:
        super().__init__()
        self.index = index
        self.query = nn.Parameter(torch.zeros(width)) if index else None

    def extra_repr(self) -> str:
        return f"index={self.index}"

    def forward(
        self, x: Float[Tensor, "*batch width"], stream: Stream
    ) -> Float[Tensor, "*batch width"]:
        """Return the average; x is the output of the sublayer before, and joins the stream."""
        # A recomputed block finds its outputs in the stream and must not add them again.
        own = x, x.square().mean(-1).add(EPSILON).rsqrt()
        stream.outputs.setdefault(self.index, own)
        if self.query is None:
            return x
        values = [*(stream.outputs[i] for i in range(self.index)), own]
        scores = [v @ self.query.to(v.dtype) * scale for v, scale in values]
        weights = torch.stack(scores).softmax(0).unsqueeze(-1)
        average = weights[0] * values[0][0]
        for weight, (v, _) in zip(weights[1:], values[1:], strict=True):
            average = torch.addcmul(average, weight, v)
        return average
