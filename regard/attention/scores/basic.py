"""Inner products, distances and additive scores s(q, k) of queries against keys."""

import math

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration, ProductAcceleration
from regard.attention.kernels import additive
from regard.attention.prepared import Positions, Prepared, repeat_kv
from regard.attention.score import InnerProduct, Score
from regard.attention.tracing import readable
from regard.core.errors import RegardError

#: Largest acceptable error of a score that is a difference of two rounded squares.
DIGITS = 5e-5


class Dot(InnerProduct):
    """score(q, k) = q·k. Luong et al. 2015, equation 8.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m). Raise a RegardError for
    two different widths.

    >>> score = Dot()
    >>> q, k = torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    >>> score.compare(q, k, (torch.arange(1), torch.arange(2))).tolist()
    [[11.0, 2.0]]
    """

    name = "dot"
    same_width = True


class ScaledDot(Dot):
    """score(q, k) = q·k / √width. Vaswani et al. 2017, equation 1.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m).

    >>> ScaledDot().scale(64)
    0.125
    """

    name = "scaled-dot"

    def scale(self, width: int) -> float:
        return float(width**-0.5)


class Cosine(Dot):
    """score(q, k) = q·k / (‖q‖ ‖k‖). Graves et al. 2014, equation 6.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m) in [−1, 1]; a zero vector
    scores 0.

    >>> from regard import attend
    >>> q, k = torch.tensor([[2.0, 0.0]]), torch.tensor([[5.0, 0.0], [9.0, 0.0]])
    >>> attend(q, k, k, "cosine").weights.tolist()
    [[0.5, 0.5]]
    """

    name = "cosine"

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        return direction(queries)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        return direction(keys)


def direction(x: Tensor) -> Tensor:
    """Return x / max(‖x‖, 10⁻⁸) in the dtype of x, without overflow of the squares.

    >>> direction(torch.tensor([[3e30, 4e30], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    if not x.shape[-1]:
        return x
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    largest = wide.detach().abs().amax(-1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    scaled = wide / largest
    norm: Tensor = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
    return (scaled / norm.maximum(1e-8 * largest.reciprocal())).to(x.dtype)


class CosineTemperature(Cosine):
    """score(q, k) = eᵗ q·k / (‖q‖ ‖k‖), with a learned t per head. Henry et al. 2020.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m). eᵗ starts at √width, where
    vectors of unit variance have the scores of scaled-dot, or at 1 if ``query_width`` is not
    given. The logarithm is learned, as in Radford et al. 2021.

    >>> CosineTemperature(16, 16).temperature.exp().item()
    4.0
    """

    name = "cosine-temperature"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        start = 0.5 * math.log(query_width or 1)
        self.temperature = nn.Parameter(torch.full((heads, 1, 1) if heads else (), start))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        directions = super().prepare_queries(queries, positions)
        return self.temperature.exp().to(directions.dtype) * directions


class GaussianAcceleration(ProductAcceleration):
    """The acceleration of `Gaussian`: upcasts if the half norms are too large for the dtype."""

    translation_invariant = True

    def needs_upcast(self, score: Score, queries: Prepared, keys: Prepared | None) -> bool:
        # The score subtracts two half squared norms, each with a relative error of eps.
        assert isinstance(queries, Tensor)
        if queries.dtype == torch.float64:
            return False
        if keys is None or not readable(queries):
            return True
        assert isinstance(keys, Tensor)
        if not (queries.numel() and keys.numel()):
            return False
        limit = -DIGITS / torch.finfo(queries.dtype).eps
        smallest = torch.minimum(queries.detach()[..., -1].min(), keys.detach()[..., -2].min())
        return bool(smallest < limit)


class Gaussian(Dot):
    """score(q, k) = −‖w(q − k)‖² / 2, with a learned inverse width w. Nadaraya 1964; Watson 1964.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); there is one w per head. w
    starts at ``inverse_width``; by default at width^(−1/4), where w² is the 1/√width of
    scaled-dot, or at 1 if ``query_width`` is not given. The score is an inner product, so that
    torch's fused kernel computes it: q' = [wq, 1, −‖wq‖²/2], k' = [wk, −‖wk‖²/2, 1].

    >>> score, places = Gaussian(), (torch.arange(1), torch.arange(2))
    >>> q, k = torch.tensor([[1.0]]), torch.tensor([[1.0], [3.0]])
    >>> prepared = score.prepare_queries(q, places[0]), score.prepare_keys(k, places[1])
    >>> score.compare(*prepared, places).tolist()
    [[0.0, -2.0]]
    """

    name = "gaussian"
    acceleration = GaussianAcceleration()

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        inverse_width: float | None = None,
    ) -> None:
        super().__init__(query_width, key_width, heads=heads, length=length)
        start = (query_width or 1) ** -0.25 if inverse_width is None else inverse_width
        self.inverse_width = nn.Parameter(torch.full((heads, 1, 1) if heads else (), start))

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        queries = self.inverse_width * queries
        return torch.cat([queries, torch.ones_like(queries[..., :1]), -half_norm(queries)], -1)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        keys = self.inverse_width * repeat_kv(keys, self.heads)
        return torch.cat([keys, -half_norm(keys), torch.ones_like(keys[..., :1])], -1)


class General(InnerProduct):
    """score(q, k) = qᵀ W k, W learned. Luong et al. 2015, equation 8.

    Queries (…, n, query_width) and keys (…, m, key_width) give scores (…, n, m); W is
    (query_width, key_width), one per head. Raise a RegardError without a width.

    >>> General(3, 5).weight.shape
    torch.Size([3, 5])
    """

    name = "general"

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
    ) -> None:
        query_width, key_width = both_widths(self.name, query_width, key_width)
        super().__init__(query_width, key_width, heads=heads, length=length)
        shape = (heads or 1, query_width, key_width)
        # Queries and keys of unit variance have scores of unit variance.
        weight = torch.randn(shape) * (query_width * key_width) ** -0.5
        self.weight = nn.Parameter(weight if heads else weight[0])

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        return queries @ self.weight


class AdditiveAcceleration(Acceleration):
    """The acceleration of `Additive`: the rational form of `regard.attention.kernels.additive`."""

    additive = True

    def __init__(self) -> None:
        super().__init__(numbers=1)  # the kernel cuts its own, smaller tiles

    def fast_compare(
        self,
        score: "Additive",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        return additive.scores(queries, keys, score.weight)


class Additive(Score):
    """score(q, k) = w·tanh(W_q q + W_k k + b). Bahdanau et al. 2015, appendix A.1.2.

    Queries (…, n, query_width) and keys (…, m, key_width) give scores (…, n, m). The number of
    ``hidden`` units defaults to key_width; each head has its own parameters. Raise a RegardError
    without a width.

    >>> score = Additive(2, 4)
    >>> score.query_weight.shape, score.key_weight.shape, score.weight.shape
    (torch.Size([2, 4]), torch.Size([4, 4]), torch.Size([4, 1]))
    """

    name = "additive"
    acceleration = AdditiveAcceleration()

    def __init__(
        self,
        query_width: int | None = None,
        key_width: int | None = None,
        *,
        heads: int | None = None,
        length: int | None = None,
        hidden: int | None = None,
    ) -> None:
        query_width, key_width = both_widths(self.name, query_width, key_width)
        super().__init__(query_width, key_width, heads=heads, length=length)
        hidden = hidden or key_width
        of_heads = (heads,) if heads else ()

        def parameter(*shape: int, fan: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*of_heads, *shape).uniform_(-1, 1) * fan**-0.5)

        self.query_weight = parameter(query_width, hidden, fan=query_width)
        self.key_weight = parameter(key_width, hidden, fan=key_width)
        self.bias = nn.Parameter(torch.zeros(*of_heads, 1, hidden))
        self.weight = parameter(hidden, 1, fan=hidden)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Tensor:
        return queries @ self.query_weight + self.bias

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Tensor:
        return repeat_kv(keys, self.heads) @ self.key_weight

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        hidden = (queries[..., :, None, :] + keys[..., None, :, :]).tanh_()
        weight = self.weight[..., None, :, :] if self.heads else self.weight
        return (hidden @ weight).squeeze(-1)


def half_norm(x: Tensor) -> Tensor:
    """Return ‖x‖² / 2 of each row, (…, rows, 1)."""
    return x.square().sum(-1, keepdim=True) / 2


def both_widths(name: str, query_width: int | None, key_width: int | None) -> tuple[int, int]:
    """Return the two widths of a score with projections; a missing one equals the other.

    Raise a RegardError if both are missing.
    """
    if query_width is None or key_width is None:
        if query_width is None and key_width is None:
            raise RegardError(f"score {name!r} has parameters; pass query_width and key_width")
        return query_width or key_width or 0, key_width or query_width or 0
    return query_width, key_width
