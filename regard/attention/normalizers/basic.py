"""Softmax and its relatives, sums, sigmoid and top-k: weights from rows of scores."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.attention.kernels.native import of_rows, row_by_row
from regard.attention.normalizer import Backward, Normalizer, empty_rows
from regard.attention.tracing import on_cpu, readable
from regard.core.errors import RegardError


class Softmax(Normalizer):
    """weight_j = exp(s_j) / Σ exp(s_i), and 0 in rows that may see nothing.

    Scores (…, rows, keys) give weights of the same shape that sum to 1.

    >>> Softmax()(torch.tensor([[0.0, 0.0], [0.0, -torch.inf], [-torch.inf, -torch.inf]])).tolist()
    [[0.5, 0.5], [1.0, 0.0], [0.0, 0.0]]
    """

    name = "softmax"
    shift_invariant = True
    exponential = True

    def forward(self, scores: Tensor) -> Tensor:
        empty = empty_rows(scores)
        return scores.masked_fill(empty, 0).softmax(-1).masked_fill(empty, 0)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        weights = scores.softmax(-1)
        # Torch returns NaN for a row of −inf, which is rare; a GPU is not asked, as it would wait.
        if not on_cpu(weights) or bool(weights[..., :1].isnan().any()):
            weights = weights.masked_fill(empty_rows(scores), 0)
        return weights

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        return (softmax_gradient(given.weights, given.upstream),)


class TopK(Softmax):
    """Softmax over the ``k`` largest scores of a row and those equal to the k-th; other weights 0.

    Zhao et al. 2019, explicit sparse transformer, section 2. Scores (…, rows, keys) give weights of
    the same shape. The choice of keys has no gradient. With ``equal`` the chosen keys have equal
    weights and no score has a gradient: with a distance as the score, the output is the mean of
    the k nearest neighbours. Raise a RegardError for a k below 1.

    >>> TopK(k=2)(torch.tensor([[0.0, 5.0, 5.0, -1.0]])).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    >>> TopK(k=2, equal=True)(torch.tensor([[0.0, 5.0, 9.0, -1.0]])).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    """

    name = "top-k"
    searches = True
    options: ClassVar[Mapping[str, int]] = {"k": 1}

    def __init__(self, heads: int | None = None, *, k: int = 16, equal: bool = False) -> None:
        super().__init__(heads)
        if k < 1:
            raise RegardError(f"top-k: k must be at least 1, not {k}")
        self.k, self.equal, self.exponential = k, equal, not equal

    def forward(self, scores: Tensor) -> Tensor:
        return super().forward(self._kept(scores, self.statistics(scores)))

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        if of_rows(scores) is not None:
            return ()
        k = min(self.k, scores.shape[-1])
        return (largest(scores.detach(), k)[0][..., -1:],) if k else ()

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        if (compiled := of_rows(scores)) is not None:
            return row_by_row("top", compiled, scores, numbers=(self.k, int(self.equal)))
        return super().weights(self._kept(scores, statistics), statistics)

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        if self.equal:
            return (torch.zeros_like(given.scores),)
        return super().gradient(given)

    def _kept(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        if not statistics:
            return scores
        supported = scores.masked_fill(scores < statistics[0], -torch.inf)
        return supported.masked_fill(supported > -torch.inf, 0) if self.equal else supported


class Sum(Normalizer):
    """weight_j = max(s_j, 0) / Σ max(s_i, 0), for scores that are kernels.

    Nadaraya 1964; Watson 1964. Scores (…, rows, keys) give weights of the same shape. A row
    without a score above 0 has weights of 0.

    >>> Sum()(torch.tensor([[0.75, 0.25, 0.0, -torch.inf], [0.0, 0.0, 0.0, -1.0]])).tolist()
    [[0.75, 0.25, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """

    name = "sum"

    def forward(self, scores: Tensor) -> Tensor:
        return scores.relu() / total_of(scores.relu())

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        weights = scores.relu()
        return weights.div_(total_of(weights))

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        weights, upstream, scores, _, _ = given
        mean = (weights * upstream).sum(-1, keepdim=True)
        # Computed again: small tensors kept between large temporary blocks fragment the heap of
        # the C library (1.4 GB at 2,000 × 100,000).
        slope = (upstream - mean).div_(total_of(scores.relu()))
        return (torch.ops.aten.threshold_backward(slope, scores, 0),)


def total_of(positive: Tensor) -> Tensor:
    """Return the sum of each row, (…, rows, 1), with 1 in place of 0."""
    total = positive.sum(-1, keepdim=True)
    return total.masked_fill(total == 0, 1)


class SoftmaxPlusOne(Normalizer):
    """weight_j = exp(s_j) / (1 + Σ exp(s_i)), so that a query can ignore all keys. Miller 2023.

    Scores (…, rows, keys) give weights of the same shape that sum to less than 1.

    >>> SoftmaxPlusOne()(torch.tensor([[0.0, 0.0]]))
    tensor([[0.3333, 0.3333]])
    """

    name = "softmax-plus-one"
    exponential = True

    def sink_score(self) -> Tensor | None:
        """Return the score of ignoring all keys, broadcastable to (…, rows, 1); None for 0."""
        return None

    def forward(self, scores: Tensor) -> Tensor:
        sink, learned = torch.zeros_like(scores[..., :1]), self.sink_score()
        if learned is not None:
            sink = sink + learned.to(scores.dtype)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]

    def statistics(self, scores: Tensor) -> tuple[Tensor, ...]:
        sink = self.sink_score()
        sink = scores.new_zeros(()) if sink is None else sink.detach().to(scores.dtype)
        return (torch.logaddexp(scores.logsumexp(-1, keepdim=True), sink),)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return (scores - statistics[0]).exp_()

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        weights, upstream, scores, statistics, parameters = given
        mean = (weights * upstream).sum(-1, keepdim=True)
        of_scores = (upstream - mean).mul_(weights)
        if not parameters:
            return (of_scores,)
        (sink,) = parameters
        to_nothing = (sink.to(scores.dtype) - statistics[0]).exp_()
        return of_scores, (-to_nothing * mean).sum_to_size(sink.shape).to(sink.dtype)


class Sink(SoftmaxPlusOne):
    """weight_j = exp(s_j) / (exp(b) + Σ exp(s_i)), with a learned b per head that starts at 0.

    Xiao et al. 2024 (attention sinks); gpt-oss 2025 uses this form. Scores (…, [heads,] rows, keys)
    give weights of the same shape that sum to less than 1.

    >>> Sink()(torch.tensor([[0.0, 0.0]]))
    tensor([[0.3333, 0.3333]], grad_fn=...)
    """

    name = "sink"

    def __init__(self, heads: int | None = None) -> None:
        super().__init__(heads)
        self.sink = nn.Parameter(torch.zeros((heads, 1, 1) if heads else ()))

    def sink_score(self) -> Tensor | None:
        return self.sink


class Sigmoid(Normalizer):
    """weight_j = σ(s_j + b), each key independently of the others. Ramapuram et al. 2024.

    Scores (…, rows, keys) give weights of the same shape. ``bias`` b defaults to −log n, as in the
    paper, with n the number of keys that the row may see.

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
        visible = (scores > -torch.inf).sum(-1, keepdim=True)
        return (-visible.clamp(min=1).to(scores.dtype).log(),)

    def weights(self, scores: Tensor, statistics: tuple[Tensor, ...]) -> Tensor:
        return (scores + statistics[0]).sigmoid_()

    def gradient(self, given: Backward) -> tuple[Tensor, ...]:
        return (torch.ops.aten.sigmoid_backward(given.upstream, given.weights),)


def softmax_gradient(weights: Tensor, upstream: Tensor) -> Tensor:
    """Return w (g − Σ w g), the gradient of the scores, in one pass."""
    gradient: Tensor = torch.ops.aten._softmax_backward_data(upstream, weights, -1, weights.dtype)
    return gradient


def largest(scores: Tensor, k: int, group: int = 16) -> tuple[Tensor, Tensor]:
    """Return the k largest numbers of each row in descending order, and their indices.

    Only the k groups with the largest maxima can contain them: two small sorts instead of one of
    the whole row. The members of a group are equally spaced, so that the maxima of many groups are
    computed at once.
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
