"""The part of a transformer's block that looks at one position at a time."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class FeedForward(nn.Module):
    """W₂ GELU(W₁ x + b₁) + b₂, from width to ``inner`` and back. Vaswani et al. 2017, 3.3."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, inner)
        self.narrow = nn.Linear(inner, width)

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """One vector in, one out, the same map at every position."""
        narrowed: Tensor = self.narrow(F.gelu(self.widen(x)))
        return narrowed
