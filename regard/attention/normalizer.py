"""What a normaliser is: from the scores of whole rows to weights."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.twin import twin


class Normalizer(nn.Module):
    """weights = normalize(scores), row by row: (…, rows, keys) to the same shape.

    A score of −inf is masked: weight 0, gradient 0; a row of nothing else has no weight at all.
    A new one is a class with ``forward``, of differentiable torch operations: a kernel hands it
    strips of whole rows, so it may sort them, or look at them as often as it likes.

    The other three methods are for speed. ``statistics`` are a few numbers per row, kept between
    the passes; ``weights`` makes the weights from them; ``gradient`` is the backward by hand.
    """

    name: ClassVar[str] = "normalizer"
    #: normalize(scores + c) = normalize(scores) for a number c per row.
    shift_invariant: ClassVar[bool] = False
    #: A weight is exp(s_j − c) for a number c per row, or 0.
    exponential: bool = False
    #: It looks at a row many times, so that a large call is worth compiling for.
    searches: ClassVar[bool] = False

    def __init__(self, heads: int | None = None) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, scores: Float[Tensor, "... rows keys"]) -> Float[Tensor, "... rows keys"]:
        """The weights, by the definition."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(scores)")

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        """Numbers per row, (…, rows, 1) each; by default none."""
        return ()

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        """The weights, from scores and statistics."""
        return self.forward(scores)

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Gradients of the scores and of each parameter, from that of the weights."""
        leaves = [scores, *parameters]
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in leaves]
            again = twin(self, leaves[1:]).forward(leaves[0])
            found = torch.autograd.grad(again, leaves, upstream, allow_unused=True)
        made = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        made[0] = made[0].masked_fill(scores == -torch.inf, 0)
        return tuple(made)

    def extra_repr(self) -> str:
        return "" if self.heads is None else f"heads={self.heads}"


def nothing(scores: Tensor) -> Tensor:
    """The rows, (…, rows, 1), that may see nothing."""
    return (scores == -torch.inf).all(-1, keepdim=True)


def without_nothing(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores with such rows at 0, and which these are."""
    empty = nothing(scores)
    return scores.masked_fill(empty, 0), empty
