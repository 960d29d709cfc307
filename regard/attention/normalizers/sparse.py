"""Sparse normalisers: powers of the excess over a threshold, exactly 0 for low scores."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.kernels.compiled import quick, wanted
from regard.attention.kernels.native import call, of_rows, per_row, row_by_row, rows_and_columns
from regard.attention.normalizer import Backward, Normalizer, fill_empty_rows
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError

#: Maximum steps of Newton's method, and steps per call of a compiled function.
NEWTON, COMPILED_STEPS = 60, 4


class Sparsemax(Normalizer):
    """weight_j = max(s_j − τ, 0), with τ such that the weights sum to 1.

    The projection onto the simplex: Martins and Astudillo 2016, algorithm 1. Scores (…, rows, keys)
    give weights of the same shape; low scores get exactly 0.

    >>> Sparsemax()(torch.tensor([[1.0, 0.5, -1.0]])).tolist()
    [[0.75, 0.25, 0.0]]
    """

    name = "sparsemax"
    shift_invariant = True
    searches = True
    #: The weights are max(factor · s − τ, 0)^exponent.
    factor: ClassVar[float] = 1.0
    exponent: ClassVar[int] = 1

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = fill_empty_rows(scores)
        scores = scores - scores.detach().amax(-1, keepdim=True)
        ranked = scores.detach().sort(-1, descending=True).values
        inside = 1 + ranks(ranked) * ranked > ranked.cumsum(-1)
        size = inside.sum(-1, keepdim=True).clamp(min=1)  # 0 for a row that is not finite
        support = scores >= ranked.gather(-1, size - 1)
        supported = scores.masked_fill(~support, 0)
        threshold = (supported.sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
        return torch.relu(scores - threshold).masked_fill(empty, 0)

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        return newton(scores, self.factor, self.exponent)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return raise_rows(scores, self.factor, self.exponent, *statistics)

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        weights, upstream, *_ = given
        if (compiled := of_rows(weights)) is None:
            return (quick(self.slope)(weights, upstream),)
        exponents = per_row(self.exponent, weights)
        return (row_by_row("slopes", compiled, weights, upstream, exponents, None),)

    @staticmethod
    def slope(weights: Tensor, upstream: Tensor) -> Tensor:
        """Return the gradient of the scores from that of the weights."""
        return centred_by((weights > 0).to(weights.dtype), upstream)


class Entmax15(Sparsemax):
    """weight_j = max(s_j / 2 − τ, 0)², with τ such that the weights sum to 1.

    Peters et al. 2019, algorithm 2: α-entmax with α = 1.5, between softmax and sparsemax. Scores
    (…, rows, keys) give weights of the same shape; low scores get exactly 0.

    >>> Entmax15()(torch.tensor([[1.0, 1.0, -3.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    name = "entmax15"
    factor: ClassVar[float] = 0.5
    exponent: ClassVar[int] = 2

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = fill_empty_rows(scores)
        halves = (scores - scores.detach().amax(-1, keepdim=True)) / 2
        ranked = halves.detach().sort(-1, descending=True).values
        # NaN at the ranks of masked scores, and so not inside.
        size = ranks(ranked)
        mean, square = ranked.cumsum(-1) / size, ranked.square().cumsum(-1) / size
        gap = (1 - size * (square - mean.square())) / size
        inside = (mean - gap.clamp(min=0).sqrt()) <= ranked
        count = inside.sum(-1, keepdim=True).clamp(min=1)
        support = halves >= ranked.gather(-1, count - 1)
        number = support.sum(-1, keepdim=True)
        supported = halves.masked_fill(~support, 0)
        mean = supported.sum(-1, keepdim=True) / number
        square = (supported - mean).masked_fill(~support, 0).square().sum(-1, keepdim=True)
        threshold = mean - ((1 - square) / number).clamp(min=0).sqrt()
        return torch.relu(halves - threshold).square().masked_fill(empty, 0)

    @staticmethod
    def slope(weights: Tensor, upstream: Tensor) -> Tensor:
        return centred_by(weights.sqrt(), upstream)


class Entmax(Normalizer):
    """weight_j = max((α − 1) s_j − τ, 0)^(1/(α − 1)), with a learned α in (1, 2) per head.

    Correia et al. 2019, equations 5 and 13; τ is such that the weights sum to 1. Scores
    (…, [heads,] rows, keys) give weights of the same shape. α = 1 + σ(a) starts at ``alpha``; the
    limit at 1 is softmax, at 2 sparsemax. Raise a RegardError for an alpha outside (1, 2).

    >>> Entmax(alpha=1.5)(torch.tensor([[1.0, 1.0, -3.0]])).detach()
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    name = "entmax"
    shift_invariant = True
    searches = True

    def __init__(self, heads: int | None = None, *, alpha: float = 1.5) -> None:
        super().__init__(heads)
        if not 1 < alpha < 2:
            raise RegardError(f"alpha must lie between 1 and 2, both excluded, not be {alpha}")
        start = torch.full((heads, 1, 1) if heads else (), alpha - 1).logit()
        self.steepness = nn.Parameter(start)

    @property
    def alpha(self) -> Tensor:
        """Return α of each head."""
        return 1 + self.steepness.sigmoid()

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = fill_empty_rows(scores)
        less, hidden = (self.alpha - 1).to(scores.dtype), scores == -torch.inf
        scaled = less * (scores - scores.detach().amax(-1, keepdim=True)).masked_fill(hidden, 0)
        scaled = scaled.masked_fill(hidden, -torch.inf)
        _, threshold = newton(scaled.detach(), 1.0, 1 / less.detach())
        for _ in range(2):  # a step with gradients gives the threshold's own; two, the second ones
            above = torch.relu(scaled - threshold)
            rest = power(above, 1 / less).sum(-1, keepdim=True) - 1
            slope = (power(above, 1 / less - 1) / less).sum(-1, keepdim=True)
            threshold = threshold + rest / slope
        return power(torch.relu(scaled - threshold), 1 / less).masked_fill(empty, 0)

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        less = (self.alpha.detach() - 1).to(scores.dtype)
        return *newton(scores, less, 1 / less), less

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        top, threshold, less = statistics
        return raise_rows(scores, less, 1 / less, top, threshold)

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        weights, upstream, _, (_, _, less), (steepness,) = given
        sigma = steepness.sigmoid()
        if (compiled := of_rows(weights)) is not None:
            of_rows_alpha = weights.new_empty(*weights.shape[:-1], 1)
            exponents = per_row(1 / less, weights)
            of_scores = row_by_row("slopes", compiled, weights, upstream, exponents, of_rows_alpha)
            total = of_rows_alpha.sum_to_size(steepness.shape)
            return of_scores, (total * sigma * (1 - sigma)).to(steepness.dtype)
        slope = power(weights, 1 - less)
        share = slope / slope.sum(-1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
        entropy = torch.special.entr(weights)
        of_alpha = (weights - share) / less.square()
        of_alpha += (entropy - share * entropy.sum(-1, keepdim=True)) / less
        total = (of_alpha * upstream).sum_to_size(steepness.shape)
        of_scores = slope.mul_(upstream - (share * upstream).sum(-1, keepdim=True))
        return of_scores, (total * sigma * (1 - sigma)).to(steepness.dtype)


def raise_rows(
    scores: Tensor, factor: float | Tensor, exponent: float | Tensor, top: Tensor, threshold: Tensor
) -> Tensor:
    """Return max(factor · s − max − τ, 0)^exponent."""
    if (compiled := of_rows(scores)) is not None:
        numbers = [per_row(x, scores) for x in (factor, exponent, top, threshold)]
        return row_by_row("raised", compiled, scores, *numbers)
    if isinstance(exponent, Tensor) and isinstance(factor, Tensor):
        return quick(raised)(scores, factor, top, threshold)
    return quick(over if exponent == 1 else squared)(scores, factor, top, threshold)


def ranks(x: Tensor) -> Tensor:
    """Return 1, 2, … for the last axis."""
    return torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)


def centred_by(slope: Tensor, upstream: Tensor) -> Tensor:
    """Return slope · (g − Σ slope g / Σ slope), for slopes of 0 outside the support."""
    total = slope.sum(-1, keepdim=True)
    mean = (slope * upstream).sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
    return slope * (upstream - mean)


def over(scores: Tensor, factor: float | Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """Return max(factor · s − max − τ, 0), subtracting τ last: the maximum may be very large."""
    return torch.relu(factor * scores - top - threshold)


def squared(scores: Tensor, factor: float | Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """Return max(factor · s − max − τ, 0)²."""
    return over(scores, factor, top, threshold).square()


def raised(scores: Tensor, less: Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """Return max((α − 1) s − max − τ, 0)^(1/(α − 1)), for ``less`` = α − 1."""
    return power(over(scores, less, top, threshold), 1 / less)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """Return base^exponent for base ≥ 0, with 0^x = 0 and a gradient of 0 there; NaN stays NaN."""
    if isinstance(exponent, float):
        return base.pow(exponent)
    inside = ~(base <= 0)
    safe = torch.where(inside, base, torch.ones_like(base))
    return torch.where(inside, safe.pow(exponent), torch.zeros_like(base))


def newton(scores: Tensor, factor: float | Tensor, exponent: int | Tensor) -> tuple[Tensor, Tensor]:
    """Return max x and τ with Σ max(x_j − max x − τ, 0)^p = 1, for x = ``factor`` · scores.

    Both are (…, rows, 1); p is the ``exponent``, 1 or more. Newton's method from the left, where
    the sum is convex and decreasing, so that no step passes τ; the sort of the papers reads a row
    more often. It starts at −1, where the largest score alone contributes 1. For a row of −inf
    max x is 0. On a GPU it takes all steps: asking whether one was the last would wait.
    """
    small = 4 * torch.finfo(scores.dtype).eps
    if (compiled := of_rows(scores)) is not None:
        numbers = [per_row(x, scores) for x in (factor, exponent)]
        found = [torch.empty_like(numbers[0]) for _ in range(2)]
        given = [scores.contiguous(), *numbers, *found]
        call("newton", compiled, *given, *rows_and_columns(scores), NEWTON, small)
        return found[0], found[1]
    top = factor * scores.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    tau = torch.full_like(top, -1.0)
    times = COMPILED_STEPS if wanted() else 1
    for _ in range(NEWTON // times):
        if isinstance(exponent, Tensor):
            tau, last = quick(step_power)(scores, factor, top, tau, times, exponent)
        else:
            step = step_linear if exponent == 1 else step_square
            tau, last = quick(step)(scores, factor, top, tau, times)
        if on_cpu(last) and float(last) <= small:
            break
    return top, tau


def step_linear(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """Take steps of `newton` for p = 1; return τ and the size of the largest last step."""

    def sums(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.sum(-1, keepdim=True), (x > 0).to(x.dtype).sum(-1, keepdim=True)

    return steps(sums, scores, factor, top, tau, times)


def step_square(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """Take steps of `newton` for p = 2; return τ and the size of the largest last step."""

    def sums(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x * x).sum(-1, keepdim=True), 2 * x.sum(-1, keepdim=True)

    return steps(sums, scores, factor, top, tau, times)


def step_power(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int, exponent: Tensor
) -> tuple[Tensor, Tensor]:
    """Take steps of `newton` for any p; return τ and the size of the largest last step."""

    def sums(x: Tensor) -> tuple[Tensor, Tensor]:
        lower = power(x, exponent - 1)
        return (lower * x).sum(-1, keepdim=True), (exponent * lower).sum(-1, keepdim=True)

    return steps(sums, scores, factor, top, tau, times)


def steps(
    sums: Callable[[Tensor], tuple[Tensor, Tensor]],
    scores: Tensor,
    factor: float | Tensor,
    top: Tensor,
    tau: Tensor,
    times: int,
) -> tuple[Tensor, Tensor]:
    """Take steps by Σ x^p and its slope, for x above the threshold; 0 where nothing is above."""
    step = tau
    for _ in range(times):
        total, slope = sums(over(scores, factor, top, tau))
        inside = slope > 0
        step = torch.where(inside, (total - 1) / torch.where(inside, slope, 1.0), 0.0)
        tau = tau + step
    return tau, step.abs().amax() if step.numel() else step.new_zeros(())
