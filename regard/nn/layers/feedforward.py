"""The position-wise feed-forward layer of a transformer's block."""

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.arguments import must_be_wide
from regard.core.errors import look_up

#: Activation functions by name.
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}
GATED = "gated-"


class FeedForward(nn.Module):
    """W₂ f(W₁ x + b₁) + b₂, from ``width`` to ``inner`` and back. Vaswani et al. 2017, section 3.3.

    ``activation`` is the name of f: gelu (Hendrycks & Gimpel 2016), gelu-tanh (its approximation in
    GPT-2), relu or silu. The prefix "gated-" adds a gate: W₂ (f(W₁ x + b₁) ∘ (V x + c)) + b₂
    (Shazeer 2020, equation 6). ``bias=False`` removes the biases, as in T5.

    Raises: an unknown activation.

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
        self.activation = look_up(ACTIVATIONS, activation.removeprefix(GATED), "activation")

    def forward(self, x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """Apply the same map to every vector."""
        must_be_wide("inputs", x, getattr(self.widen, "in_features", None))
        inner = self.activation(self.widen(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        narrowed: Tensor = self.narrow(inner)
        return narrowed
