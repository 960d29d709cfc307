"""The part of a transformer's block that looks at one position at a time."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import look_up

#: What bends the line between the two maps, by name.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED = "gated-"


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂, from width to ``inner`` and back. Vaswani et al. 2017, 3.3.

    ``activation`` names f: gelu (Hendrycks & Gimpel 2016), gelu-tanh (near it, and GPT-2's), relu,
    silu. "gated-gelu-tanh" and the like gate it: W₂ (f(W₁ x + b₁) ∘ (V x + c)) + b₂ (Shazeer 2020,
    equation 6). Without ``bias`` the maps have none, as T5's.

    >>> import torch
    >>> FeedForward(4, 6, "gated-silu", bias=False)(torch.ones(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(
        self, width: int, inner: int, activation: str = "gelu", *, bias: bool = True
    ) -> None:
        super().__init__()
        self.widen = nn.Linear(width, inner, bias)
        gated = activation.startswith(GATED)
        self.gate = nn.Linear(width, inner, bias) if gated else None
        self.narrow = nn.Linear(inner, width, bias)
        self.bend = look_up(ACTIVATIONS, activation.removeprefix(GATED), "activation")

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """One vector in, one out, the same map at every position."""
        inner = self.bend(self.widen(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        narrowed: Tensor = self.narrow(inner)
        return narrowed
