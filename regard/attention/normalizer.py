"""The interface of normalisers, which turn rows of scores into weights."""

from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.twin import twin


class Backward(NamedTuple):
    """The argument of `Normalizer.gradient`, for some rows.

    ``upstream`` is the gradient of the weights; ``statistics`` are those of the forward pass.
    """

    weights: Tensor
    upstream: Tensor
    scores: Tensor
    statistics: tuple[Tensor, ...]
    parameters: tuple[Tensor, ...]


class Normalizer(nn.Module):
    """weights = normalize(scores), row by row, the base class.

    A score of −inf is masked: its weight and gradient are 0, and a row of −inf has only weights of
    0. A subclass defines ``forward`` with differentiable torch operations. Kernels pass strips of
    whole rows, so it may sort them or read them several times.

    The other three methods are for speed. ``statistics`` returns a few numbers per row, kept
    between the passes; ``weights`` computes the weights from them; ``gradient`` is the backward
    pass.

    Args:
        heads: The number of heads, for a normaliser with parameters for each head.

    Shape:
        scores: (..., rows, keys)
        weights: (..., rows, keys)

    Returns:
        The weights. They need not sum to 1.

    Raises:
        NotImplementedError: The subclass has no ``forward``.

    Source:
        Bahdanau et al. 2015, equation 6, for softmax; each subclass names its own source.

    Example:
        >>> class Squared(Normalizer):
        ...     def forward(self, scores):
        ...         return scores.relu().square()
        >>> from regard import attend
        >>> x = torch.tensor([[1.0], [2.0]])
        >>> attend(x, x, x, "dot", normalize=Squared()).weights.tolist()
        [[1.0, 4.0], [4.0, 16.0]]
    """

    name: ClassVar[str] = "normalizer"
    #: normalize(scores + c) = normalize(scores) for a number c per row.
    shift_invariant: ClassVar[bool] = False
    #: A weight is exp(s_j − c) for a number c per row, or 0.
    exponential: bool = False
    #: Weights depend on the order of the keys.
    ordered: ClassVar[bool] = False
    #: Weights may be negative.
    signed: ClassVar[bool] = False
    #: It reads a row many times, so that compiling pays for a large call.
    searches: ClassVar[bool] = False
    #: Its weights are ``inner(factor(n) · scores)``, for the number n of keys that a row may see.
    scales: ClassVar[bool] = False

    def __init__(self, heads: int | None = None) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, scores: Float[Tensor, "... rows keys"]) -> Float[Tensor, "... rows keys"]:
        """Compute the weights by the definition."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(scores)")

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        """Return statistics of each row, (…, rows, 1) each; by default none."""
        return ()

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        """Compute the weights from scores and statistics."""
        return self.forward(scores)

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        """Compute the gradients of the scores and of each parameter from that of the weights."""
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in (given.scores, *given.parameters)]
            again = twin(self, leaves[1:]).forward(leaves[0])
            partial = torch.autograd.grad(again, leaves, given.upstream, allow_unused=True)
        gradients = [
            torch.zeros_like(x) if g is None else g for x, g in zip(leaves, partial, strict=True)
        ]
        gradients[0] = gradients[0].masked_fill(given.scores == -torch.inf, 0)
        return tuple(gradients)

    def extra_repr(self) -> str:
        return "" if self.heads is None else f"heads={self.heads}"


def empty_rows(scores: Tensor) -> Tensor:
    """Return which rows have only scores of −inf, (…, rows, 1)."""
    return (scores == -torch.inf).all(-1, keepdim=True)


def fill_empty_rows(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scores with rows of −inf set to 0, and a mask of these rows."""
    empty = empty_rows(scores)
    return scores.masked_fill(empty, 0), empty
