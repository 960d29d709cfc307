"""Normalisers by name: ``NORMALIZERS``."""

import torch
from torch import Tensor, nn

from regard.attention.normalizer import Normalizer, nothing
from regard.attention.sparse import Entmax, Entmax15, Sparsemax
from regard.attention.tracing import readable
from regard.errors import RegardError


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
        self.k, self.equal, self.exponential = k, equal, not equal

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


def of_softmax(weights: Tensor, upstream: Tensor) -> Tensor:
    """w (g − Σ w g), in one pass."""
    made: Tensor = torch.ops.aten._softmax_backward_data(upstream, weights, -1, weights.dtype)
    return made


def largest(scores: Tensor, k: int, group: int = 16) -> tuple[Tensor, Tensor]:
    """The k largest numbers of each row, falling, and where they are.

    Only groups whose own largest is among the k largest can hold one: two small sorts and not one
    of the whole row. A group is every so-many-th number, so that its largest is found for many
    groups at once.
    """
    size = scores.shape[-1]
    if not readable(scores) or size < 4 * k * group or size % group:
        return scores.topk(k, -1)
    number = size // group
    groups = scores.unflatten(-1, (group, number)).amax(-2).topk(k, -1, sorted=False).indices
    members = groups.unsqueeze(-1) + number * torch.arange(group, device=scores.device)
    members = members.flatten(-2)
    values, places = scores.gather(-1, members).topk(k, -1)
    return values, members.gather(-1, places)
