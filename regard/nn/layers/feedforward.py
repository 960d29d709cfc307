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
    """The position-wise feed-forward layer of a transformer's block.

    output = W₂ f(W₁ x + b₁) + b₂; with a gate W₂ (f(W₁ x + b₁) ∘ (V x + c)) + b₂.

    Args:
        width: The width of input and output.
        inner: The width between the two maps.
        activation: The name of f: gelu, gelu-tanh (the approximation in GPT-2), relu or silu. The
            prefix "gated-" adds the gate.
        bias: Whether the maps have biases; T5 has none.

    Shape:
        x: (*batch, width)
        output: (*batch, width)

    Returns:
        The same map of every vector.

    Raises:
        RegardError: The activation is unknown; the input has another width or is not
            floating-point.

    Source:
        Vaswani et al. 2017, equation 2; Hendrycks & Gimpel 2016 (GELU); Shazeer 2020, equation 6
        (gates).

    Example:
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
