"""Normalisers: from the scores of whole rows to weights. A string names one in ``NORMALIZERS``."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.kernels.compiled import quick, wanted
from regard.errors import RegardError

#: Most steps of Newton's method, and how many a compiled function takes at once.
NEWTON, COMPILED_STEPS = 60, 4


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
    exponential: ClassVar[bool] = False
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
        weights: Tensor = self(scores)
        return weights

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        """Gradients of the scores and of each parameter, from that of the weights."""
        names = [name for name, _ in self.named_parameters()]
        leaves = [scores, *parameters]
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in leaves]
            again = torch.func.functional_call(
                self, dict(zip(names, leaves[1:], strict=True)), (leaves[0],)
            )
            found = torch.autograd.grad(again, leaves, upstream, allow_unused=True)
        made = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        made[0] = made[0].masked_fill(scores == -torch.inf, 0)
        return tuple(made)

    def extra_repr(self) -> str:
        return "" if self.heads is None else f"heads={self.heads}"


class Softmax(Normalizer):
    """weight_j = exp(s_j) / Σ exp(s_i); zeros where nothing may be seen.

    >>> Softmax()(torch.tensor([[0.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]
    """

    name = "softmax"
    shift_invariant = True
    exponential = True

    def forward(self, scores: Tensor) -> Tensor:
        empty = nothing(scores)
        return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        weights = scores.softmax(-1)
        if bool(weights[..., :1].isnan().any()):  # rarely: what torch makes of a row of −inf
            weights = weights.masked_fill(nothing(scores), 0)
        return weights

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return (of_softmax(weights, upstream),)


class TopK(Softmax):
    """Softmax over the ``k`` largest scores of a row, and over what equals the k-th; else 0.

    Zhao et al. 2019, explicit sparse transformer, section 2. The choice itself has no gradient.
    With ``equal`` all that are kept weigh alike, so that with a distance as the score it is the
    mean of the k nearest neighbours, and no score has a gradient.

    >>> TopK(k=2)(torch.tensor([[0.0, 5.0, 5.0, -1.0]])).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    >>> TopK(k=2, equal=True)(torch.tensor([[0.0, 5.0, 9.0, -1.0]])).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    """

    name = "top-k"

    def __init__(self, heads: int | None = None, *, k: int = 16, equal: bool = False) -> None:
        super().__init__(heads)
        if k < 1:
            raise RegardError(f"top-k keeps at least one key, not {k}")
        self.k, self.equal = k, equal

    def forward(self, scores: Tensor) -> Tensor:
        return super().forward(self._kept(scores, self.statistics(scores)))

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        k = min(self.k, scores.shape[-1])
        return (largest(scores.detach(), k)[0][..., -1:],) if k else ()

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return super().weights(self._kept(scores, statistics), statistics)

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        if self.equal:
            return (torch.zeros_like(scores),)
        return super().gradient(weights, upstream, scores, statistics, parameters)

    def _kept(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        if not statistics:
            return scores
        kept = scores.masked_fill(scores < statistics[0], -torch.inf)
        return kept.masked_fill(kept > -torch.inf, 0) if self.equal else kept


class Sum(Normalizer):
    """weight_j = max(s_j, 0) / Σ max(s_i, 0): scores are kernels. Nadaraya 1964; Watson 1964.

    A row with no score above 0 has nothing in reach: zeros, as where nothing may be seen.

    >>> Sum()(torch.tensor([[0.75, 0.25, 0.0, -torch.inf], [0.0, 0.0, 0.0, -1.0]])).tolist()
    [[0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    name = "sum"

    def forward(self, scores: Tensor) -> Tensor:
        return scores.relu() / self.total(scores)

    # Summed anew where it is needed: a few numbers kept between large blocks that come and go
    # leave holes in the C library's heap that no later block fits (1.4 GB at 2,000 × 100,000).
    def total(self, scores: Tensor) -> Tensor:
        """The sum of each row, (…, rows, 1); 1 where nothing is in reach."""
        total = scores.relu().sum(-1, keepdim=True)
        return total.masked_fill(total == 0, 1)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return scores.relu().div_(self.total(scores))

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        mean = (weights * upstream).sum(-1, keepdim=True)
        return ((upstream - mean).div_(self.total(scores)).masked_fill_(scores <= 0, 0),)


class SoftmaxPlusOne(Normalizer):
    """weight_j = exp(s_j) / (1 + Σ exp(s_i)): a query may look at nothing. Miller 2023.

    >>> SoftmaxPlusOne()(torch.tensor([[0.0, 0.0]]))
    tensor([[0.3333, 0.3333]])
    """

    name = "softmax-plus-one"
    exponential = True

    def sunk(self) -> Tensor | None:
        """The score of looking at nothing, broadcastable to (…, rows, 1); None for 0."""
        return None

    def forward(self, scores: Tensor) -> Tensor:
        sink, given = torch.zeros_like(scores[..., :1]), self.sunk()
        if given is not None:
            sink = sink + given.to(scores.dtype)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        sink = self.sunk()
        sink = scores.new_zeros(()) if sink is None else sink.detach().to(scores.dtype)
        return (torch.logaddexp(scores.logsumexp(-1, keepdim=True), sink),)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return (scores - statistics[0]).exp_()

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        mean = (weights * upstream).sum(-1, keepdim=True)
        of_scores = (upstream - mean).mul_(weights)
        if not parameters:
            return (of_scores,)
        (sink,) = parameters
        to_nothing = (sink.to(scores.dtype) - statistics[0]).exp_()
        return of_scores, (-to_nothing * mean).sum_to_size(sink.shape).to(sink.dtype)


class Sink(SoftmaxPlusOne):
    """weight_j = exp(s_j) / (exp(b) + Σ exp(s_i)), b learned, one a head; it begins at 0.

    Xiao et al. 2024 (attention sinks); gpt-oss 2025 has it in this form.
    """

    name = "sink"

    def __init__(self, heads: int | None = None) -> None:
        super().__init__(heads)
        self.sink = nn.Parameter(torch.zeros((heads, 1, 1) if heads else ()))

    def sunk(self) -> Tensor | None:
        return self.sink


class Sigmoid(Normalizer):
    """weight_j = σ(s_j + b): each key by itself, no competition. Ramapuram et al. 2024.

    ``bias`` b is −log n by default, as there, n being the keys that the row sees.

    >>> Sigmoid(bias=0.0)(torch.tensor([[0.0, -torch.inf]])).tolist()
    [[0.5, 0.0]]
    """

    name = "sigmoid"

    def __init__(self, heads: int | None = None, *, bias: float | None = None) -> None:
        super().__init__(heads)
        self.bias = bias

    def forward(self, scores: Tensor) -> Tensor:
        return torch.sigmoid(scores + self.statistics(scores)[0])

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        if self.bias is not None:
            return (scores.new_full((1, 1), self.bias),)
        seen = (scores > -torch.inf).sum(-1, keepdim=True)
        return (-seen.clamp(min=1).to(scores.dtype).log(),)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return (scores + statistics[0]).sigmoid_()

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return ((weights - weights * weights).mul_(upstream),)


class Sparsemax(Normalizer):
    """The nearest point of the simplex: weight_j = max(s_j − τ, 0), τ such that they sum to 1.

    Martins and Astudillo 2016, algorithm 1. Far keys get exactly 0.

    >>> Sparsemax()(torch.tensor([[1.0, 0.5, -1.0]])).tolist()
    [[0.75, 0.25, 0.0]]
    """

    name = "sparsemax"
    shift_invariant = True
    searches = True

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = without_nothing(scores)
        scores = scores - scores.detach().amax(-1, keepdim=True)
        ranked = scores.detach().sort(-1, descending=True).values
        inside = 1 + ranks(ranked) * ranked > ranked.cumsum(-1)
        size = inside.sum(-1, keepdim=True)
        support = scores >= ranked.gather(-1, size - 1)
        kept = scores.masked_fill(~support, 0)
        threshold = (kept.sum(-1, keepdim=True) - 1) / support.sum(-1, keepdim=True)
        return torch.relu(scores - threshold).masked_fill(empty, 0)

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        return newton(scores, 1.0, 1)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return quick(over)(scores, 1.0, *statistics)

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return (quick(of_sparsemax)(weights, upstream),)


class Entmax15(Normalizer):
    """weight_j = max(s_j / 2 − τ, 0)², τ such that they sum to 1. Peters et al. 2019, algorithm 2.

    Between softmax and sparsemax: α = 1.5.

    >>> Entmax15()(torch.tensor([[1.0, 1.0, -3.0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """

    name = "entmax15"
    shift_invariant = True
    searches = True

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = without_nothing(scores)
        halves = (scores - scores.detach().amax(-1, keepdim=True)) / 2
        ranked = halves.detach().sort(-1, descending=True).values
        # Where a masked score is ranked, this is NaN, and so not inside.
        size = ranks(ranked)
        mean, square = ranked.cumsum(-1) / size, ranked.square().cumsum(-1) / size
        gap = (1 - size * (square - mean.square())) / size
        inside = (mean - gap.clamp(min=0).sqrt()) <= ranked
        count = inside.sum(-1, keepdim=True)
        support = halves >= ranked.gather(-1, count - 1)
        number = support.sum(-1, keepdim=True)
        kept = halves.masked_fill(~support, 0)
        mean = kept.sum(-1, keepdim=True) / number
        square = (kept - mean).masked_fill(~support, 0).square().sum(-1, keepdim=True)
        threshold = mean - ((1 - square) / number).clamp(min=0).sqrt()
        return torch.relu(halves - threshold).square().masked_fill(empty, 0)

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        return newton(scores, 0.5, 2)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return quick(squared)(scores, *statistics)

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        return (quick(of_entmax15)(weights, upstream),)


class Entmax(Normalizer):
    """α-entmax with a learned α in (1, 2), one a head: max((α − 1) s_j − τ, 0)^(1/(α − 1)).

    Correia et al. 2019, equations 5 and 13. α = 1 + σ(a) begins at ``alpha``; near 1 it is
    softmax, at 2 sparsemax.
    """

    name = "entmax"
    shift_invariant = True
    searches = True

    def __init__(self, heads: int | None = None, *, alpha: float = 1.5) -> None:
        super().__init__(heads)
        if not 1 < alpha < 2:
            raise RegardError(f"a learned alpha begins between 1 and 2, not at {alpha}")
        start = torch.full((heads, 1, 1) if heads else (), alpha - 1).logit()
        self.steepness = nn.Parameter(start)

    @property
    def alpha(self) -> Tensor:
        """α of each head."""
        return 1 + self.steepness.sigmoid()

    def forward(self, scores: Tensor) -> Tensor:
        scores, empty = without_nothing(scores)
        less, hidden = (self.alpha - 1).to(scores.dtype), scores == -torch.inf
        scaled = less * (scores - scores.detach().amax(-1, keepdim=True)).masked_fill(hidden, 0)
        scaled = scaled.masked_fill(hidden, -torch.inf)
        _, threshold = newton(scaled.detach(), 1.0, 1 / less.detach())
        # One more step of Newton's, with gradients, gives the threshold its own.
        rest = power(torch.relu(scaled - threshold), 1 / less)
        slope = power(torch.relu(scaled - threshold), 1 / less - 1).detach()
        slope = (slope / less.detach()).sum(-1, keepdim=True)
        threshold = threshold + (rest.sum(-1, keepdim=True) - 1) / slope
        return power(torch.relu(scaled - threshold), 1 / less).masked_fill(empty, 0)

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        less = (self.alpha.detach() - 1).to(scores.dtype)
        return *newton(scores, less, 1 / less), less

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        top, threshold, less = statistics
        return quick(raised)(scores, less, top, threshold)

    def gradient(
        self,
        weights: Tensor,
        upstream: Tensor,
        scores: Tensor,
        statistics: tuple[Tensor, ...],
        parameters: tuple[Tensor, ...],
    ) -> tuple[Tensor, ...]:
        less, (steepness,) = statistics[2], parameters
        slope = power(weights, 1 - less)
        share = slope / slope.sum(-1, keepdim=True).clamp(min=torch.finfo(slope.dtype).tiny)
        entropy = torch.special.entr(weights)
        of_alpha = (weights - share) / less.square()
        of_alpha += (entropy - share * entropy.sum(-1, keepdim=True)) / less
        total = (of_alpha * upstream).sum_to_size(steepness.shape)
        sigma = steepness.sigmoid()
        of_scores = slope.mul_(upstream - (share * upstream).sum(-1, keepdim=True))
        return of_scores, (total * sigma * (1 - sigma)).to(steepness.dtype)


NORMALIZERS: dict[str, type[Normalizer]] = {
    "softmax": Softmax,
    "sum": Sum,
    "softmax-plus-one": SoftmaxPlusOne,
    "sink": Sink,
    "sigmoid": Sigmoid,
    "sparsemax": Sparsemax,
    "entmax15": Entmax15,
    "entmax": Entmax,
    "top-k": TopK,
}


def nothing(scores: Tensor) -> Tensor:
    """The rows, (…, rows, 1), that may see nothing."""
    return (scores == -torch.inf).all(-1, keepdim=True)


def without_nothing(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The scores with such rows at 0, and which these are."""
    empty = nothing(scores)
    return scores.masked_fill(empty, 0), empty


def ranks(x: Tensor) -> Tensor:
    """1, 2, … along the last axis."""
    return torch.arange(1, x.shape[-1] + 1, dtype=x.dtype, device=x.device)


def of_softmax(weights: Tensor, upstream: Tensor) -> Tensor:
    """w (g − Σ w g), in one pass."""
    made: Tensor = torch.ops.aten._softmax_backward_data(upstream, weights, -1, weights.dtype)
    return made


def centred_by(slope: Tensor, upstream: Tensor) -> Tensor:
    """slope · (g − Σ slope g / Σ slope), for slopes of 0 outside the support."""
    total = slope.sum(-1, keepdim=True)
    mean = (slope * upstream).sum(-1, keepdim=True) / total.masked_fill(total == 0, 1)
    return slope * (upstream - mean)


def of_sparsemax(weights: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of scores from that of sparsemax's weights."""
    return centred_by((weights > 0).to(weights.dtype), upstream)


def of_entmax15(weights: Tensor, upstream: Tensor) -> Tensor:
    """The gradient of scores from that of entmax-1.5's weights."""
    return centred_by(weights.sqrt(), upstream)


def over(scores: Tensor, factor: float | Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """max(factor · s − max − τ, 0), subtracted one by one: the largest may be very large."""
    return torch.relu(factor * scores - top - threshold)


def squared(scores: Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """max(s / 2 − max − τ, 0)²."""
    return over(scores, 0.5, top, threshold).square()


def raised(scores: Tensor, less: Tensor, top: Tensor, threshold: Tensor) -> Tensor:
    """max((α − 1) s − max − τ, 0)^(1/(α − 1)), for ``less`` = α − 1."""
    return power(over(scores, less, top, threshold), 1 / less)


def power(base: Tensor, exponent: Tensor | float) -> Tensor:
    """base^exponent for base ≥ 0, with 0^x = 0 and a gradient of 0 there."""
    if isinstance(exponent, float):
        return base.pow(exponent)
    inside = base > 0
    safe = torch.where(inside, base, torch.ones_like(base))
    return torch.where(inside, safe.pow(exponent), torch.zeros_like(base))


def newton(scores: Tensor, factor: float | Tensor, exponent: int | Tensor) -> tuple[Tensor, Tensor]:
    """max x and τ with Σ max(x_j − max x − τ, 0)^p = 1, (…, rows, 1), for x = ``factor`` · scores.

    p is the ``exponent``, 1 or more. Newton's method from the left, where the sum is convex and
    falling, so that no step passes τ; a sort, which the papers use, reads a row more often. From
    −1, where the largest alone makes 1. Of a row of −inf alone max x is 0.
    """
    top = factor * scores.amax(-1, keepdim=True)
    top = top.masked_fill(top == -torch.inf, 0)
    tau = torch.full_like(top, -1.0)
    small = 4 * torch.finfo(scores.dtype).eps
    times = COMPILED_STEPS if wanted() else 1
    for _ in range(NEWTON // times):
        if isinstance(exponent, Tensor):
            tau, last = quick(step_power)(scores, factor, top, tau, times, exponent)
        else:
            step = step_linear if exponent == 1 else step_square
            tau, last = quick(step)(scores, factor, top, tau, times)
        if float(last) <= small:
            break
    return top, tau


def step_linear(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """Steps of `newton` for p = 1, and the largest of the last."""
    step = tau
    for _ in range(times):
        x = factor * scores - top - tau
        step = newtons(
            torch.relu(x).sum(-1, keepdim=True), (x > 0).to(x.dtype).sum(-1, keepdim=True)
        )
        tau = tau + step
    return tau, step.abs().amax()


def step_square(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int
) -> tuple[Tensor, Tensor]:
    """The same for p = 2."""
    step = tau
    for _ in range(times):
        x = over(scores, factor, top, tau)
        step = newtons((x * x).sum(-1, keepdim=True), 2 * x.sum(-1, keepdim=True))
        tau = tau + step
    return tau, step.abs().amax()


def step_power(
    scores: Tensor, factor: float | Tensor, top: Tensor, tau: Tensor, times: int, exponent: Tensor
) -> tuple[Tensor, Tensor]:
    """The same for any p."""
    step = tau
    for _ in range(times):
        x = over(scores, factor, top, tau)
        lower = power(x, exponent - 1)
        slope = (exponent * lower).sum(-1, keepdim=True)
        step = newtons((lower * x).sum(-1, keepdim=True), slope)
        tau = tau + step
    return tau, step.abs().amax()


def newtons(total: Tensor, slope: Tensor) -> Tensor:
    """(Σ − 1) / slope, and 0 where nothing is above the threshold."""
    inside = slope > 0
    return torch.where(inside, (total - 1) / torch.where(inside, slope, 1.0), 0.0)


def largest(scores: Tensor, k: int, group: int = 16) -> tuple[Tensor, Tensor]:
    """The k largest numbers of each row, falling, and where they are.

    Only groups whose own largest is among the k largest can hold one: two small sorts and not one
    of the whole row. A group is every so-many-th number, so that its largest is found for many
    groups at once.
    """
    size = scores.shape[-1]
    if size < 4 * k * group or size % group:
        return scores.topk(k, -1)
    number = size // group
    groups = scores.unflatten(-1, (group, number)).amax(-2).topk(k, -1, sorted=False).indices
    members = groups.unsqueeze(-1) + number * torch.arange(group, device=scores.device)
    members = members.flatten(-2)
    values, places = scores.gather(-1, members).topk(k, -1)
    return values, members.gather(-1, places)
