"""Self-attention blocks of the course: without a residual, and with one around f only.

Each block maps (x, mask) to an x of the same shape. The ``attention`` has no output projection; g
replaces it. `regard.nn.layers.sublayers.EncoderBlock` is a transformer's block.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mask, Mechanism
from regard.attention.arguments import must_suit
from regard.nn.layers.stream import Stream, of_first


class Plain(nn.Module):
    """x' = g(f(x)) with self-attention f and g = ReLU(Linear)."""

    def __init__(self, width: int, attention: Mechanism) -> None:
        super().__init__()
        self.attention = attention
        self.to_next = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "batch time width"], mask: Mask, *, stream: Stream | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the input of the next layer."""
        first = of_first(self.attention, (stream or Stream()).values)
        return F.relu(self.to_next(self.attention(x, mask=mask, **first)))


class Residual(nn.Module):
    """x' = g(x + f(LayerNorm x)) with self-attention f and g = ReLU(Linear), applied to the sum."""

    def __init__(self, width: int, attention: Mechanism) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = attention
        self.to_next = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "batch time width"], mask: Mask, *, stream: Stream | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the input of the next layer."""
        must_suit("inputs", x, self.to_next)
        first = of_first(self.attention, (stream or Stream()).values)
        return F.relu(self.to_next(x + self.attention(self.norm(x), mask=mask, **first)))
