"""Normalisers that scale a row by its number of keys, and one that reads keys in order."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from regard.attention.kernels.native import of_rows, row_by_row
from regard.attention.normalizer import Backward, Normalizer
from regard.attention.normalizers.basic import Softmax
from regard.attention.normalizers.sparse import Entmax15
from regard.attention.twin import twin


class Scaled(Normalizer):
    """weights = inner(factor · scores), with one factor per row; a base class.

    A subclass sets ``inner``, which is shift-invariant, and defines ``factor``. A row counts the
    keys that it may see.
    """

    scales: ClassVar[bool] = True

    def __init__(self, heads: int | None = None) -> None:
        super().__init__(heads)
        self.inner: Normalizer

    def factor(self, seen: Tensor) -> Tensor:
        """Return the factor of each row, (…, rows, 1), from its number of visible keys."""
        raise NotImplementedError(f"{type(self).__name__} has no factor(seen)")

    def forward(self, scores: Tensor) -> Tensor:
        weights: Tensor = self.inner(_times(scores, self.factor(_seen(scores)).to(scores.dtype)))
        return weights

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        factor = self.factor(_seen(scores)).detach().to(scores.dtype)
        return factor, *self.inner.statistics(_times(scores, factor))

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return self.inner.weights(_times(scores, statistics[0]), statistics[1:])

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        scores, (scale, *statistics) = given.scores, given.statistics
        inner = given._replace(
            scores=_times(scores, scale), statistics=tuple(statistics), parameters=()
        )
        (of_scaled,) = self.inner.gradient(inner)
        of_factor = (of_scaled * _less(scores)).sum(-1, keepdim=True)
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in given.parameters]
            factor = twin(self, leaves).factor(_seen(scores)).to(scores.dtype)
            partial = torch.autograd.grad(factor, leaves, of_factor.expand_as(factor))
        return of_scaled * scale, *partial


def _seen(scores: Tensor) -> Tensor:
    """Return how many keys each row may see, (…, rows, 1); at least 1."""
    return (scores > -torch.inf).sum(-1, keepdim=True).clamp(min=1)


def _less(scores: Tensor) -> Tensor:
    """Return the scores less the largest of their row; 0 for scores of −inf."""
    top = scores.detach().amax(-1, keepdim=True)
    return (scores - top.masked_fill(top == -torch.inf, 0)).masked_fill(scores == -torch.inf, 0)


def _times(scores: Tensor, factor: Tensor) -> Tensor:
    """Return factor · (scores − max), with −inf where they are −inf, also for a factor of 0."""
    return (factor * _less(scores)).masked_fill(scores == -torch.inf, -torch.inf)


class ScalableSoftmax(Scaled):
    """weight_j = n^(a s_j) / Σ n^(a s_i), with n visible keys and a learned a per head.

    Softmax of a · ln n · s: it does not flatten as rows get longer. Nakanishi 2025. Scores
    (…, [heads,] rows, keys) give weights of the same shape. a starts at 1.

    >>> ScalableSoftmax()(torch.tensor([[1.0, 0.0]])).detach()
    tensor([[0.6667, 0.3333]])
    """

    name = "scalable-softmax"
    shift_invariant = True

    def __init__(self, heads: int | None = None) -> None:
        super().__init__(heads)
        self.inner = Softmax(heads)
        self.slope = nn.Parameter(torch.ones((heads, 1, 1) if heads else ()))

    def factor(self, seen: Tensor) -> Tensor:
        return self.slope * seen.to(self.slope.dtype).log()


class AdaptiveEntmax(Scaled):
    """weights = entmax15((1 + β (ln n)^γ) s), with n visible keys, and β and γ learned per head.

    Adaptive-scalable entmax of Vasylenko et al. 2025 at α = 1.5; there β and γ are functions of the
    input, here numbers of a head: β = softplus(b) > 0 and γ = 3 tanh(c), which start at 0.13 and 0.
    n is taken as at least 2. Scores (…, [heads,] rows, keys) give weights of the same shape.

    >>> AdaptiveEntmax()(torch.tensor([[1.0, 0.0, -9.0]])).detach()
    tensor([[0.8654, 0.1346, 0.0000]])
    """

    name = "adaptive-entmax"
    shift_invariant = True
    searches = True

    def __init__(self, heads: int | None = None) -> None:
        super().__init__(heads)
        self.inner = Entmax15(heads)
        shape = (heads, 1, 1) if heads else ()
        self.amount = nn.Parameter(torch.full(shape, -2.0))
        self.exponent = nn.Parameter(torch.zeros(shape))

    def factor(self, seen: Tensor) -> Tensor:
        logs = seen.clamp(min=2).to(self.amount.dtype).log()
        return 1 + softplus(self.amount) * logs.pow(3 * self.exponent.tanh())


class StickBreaking(Normalizer):
    """weight_j = σ(s_j) Π (1 − σ(s_k)), over the visible keys k behind j.

    Each key, from the last to the first, takes the share σ(s_j) of what is left. Weights sum to at
    most 1 and depend on the order of the keys, so that a causal mask needs no positions. Tan et
    al. 2024. Scores (…, rows, keys) give weights of the same shape.

    >>> StickBreaking()(torch.zeros(1, 3))
    tensor([[0.1250, 0.2500, 0.5000]])
    """

    name = "stick-breaking"
    ordered: ClassVar[bool] = True
    searches = True

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        if (compiled := of_rows(scores)) is None:
            return self.forward(scores)
        return row_by_row("stick", compiled, scores)

    def forward(self, scores: Tensor) -> Tensor:
        taken = softplus(scores)
        left = taken.flip(-1).cumsum(-1).flip(-1)
        return (scores - left).exp()

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        weights, upstream, scores, _, _ = given
        if (compiled := of_rows(weights)) is not None:
            return (row_by_row("unstick", compiled, weights, upstream, scores),)
        products = weights * upstream
        return (products - scores.sigmoid() * products.cumsum(-1),)
