"""Blocks of self-attention: without a residual, with the seed's, and a transformer's pre-norm.

Each takes (x, mask) to an x of the same shape. ``attention`` is self-attention without an output
projection in the first two: their g does that work.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mask, Mechanism
from regard.layers.dropout import drop
from regard.layers.feedforward import FeedForward


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


class PreNorm(nn.Module):
    """x ← x + f(LayerNorm x), then x ← x + FeedForward(LayerNorm x). Xiong et al. 2020.

    In training the two added terms lose entries with probability ``dropout``. Both begin at zero,
    so a stack of blocks begins as the identity and learns what to add (Zhang et al. 2019, Fixup).
    """

    def __init__(self, width: int, attention: Mechanism, inner: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = attention
        self.feedforward_norm = nn.LayerNorm(width)
        self.feedforward = FeedForward(width, inner)
        self.dropout = dropout
        for last in (attention.output, self.feedforward.narrow):
            if last is not None:
                nn.init.zeros_(last.weight)
                nn.init.zeros_(last.bias)

    def forward(
        self, x: Float[Tensor, "batch time width"], mask: Mask
    ) -> Float[Tensor, "batch time width"]:
        """The next layer's representation."""
        seen = self.attention(self.attention_norm(x), mask=mask)
        x = x + drop(seen, self.dropout, self.training)
        thought = self.feedforward(self.feedforward_norm(x))
        return x + drop(thought, self.dropout, self.training)
