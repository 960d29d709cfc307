"""Blocks of self-attention without a residual, and with that of the course's seed.

Each maps (x, mask) to an x of the same shape. Their ``attention`` has no output projection: g takes
its place. A transformer's block is `regard.layers.sublayers.EncoderBlock`.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mask, Mechanism


class Plain(nn.Module):
    """x' = g(f(x)), f self-attention, g Linear then ReLU."""

    def __init__(self, width: int, attention: Mechanism) -> None:
        super().__init__()
        self.attention = attention
        self.to_next = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "batch time width"], mask: Mask
    ) -> Float[Tensor, "batch time width"]:
        """The next layer's representation."""
        return F.relu(self.to_next(self.attention(x, mask=mask)))


class Residual(nn.Module):
    """x' = g(x + f(LayerNorm x)), g Linear then ReLU: what is added goes through g too."""

    def __init__(self, width: int, attention: Mechanism) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = attention
        self.to_next = nn.Linear(width, width)

    def forward(
        self, x: Float[Tensor, "batch time width"], mask: Mask
    ) -> Float[Tensor, "batch time width"]:
        """The next layer's representation."""
        return F.relu(self.to_next(x + self.attention(self.norm(x), mask=mask)))
