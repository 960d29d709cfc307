"""The score of a transformers model: a capped product, plus a bias set for one call."""

from torch import Tensor

from regard.attention import Acceleration, Score
from regard.attention.prepared import Positions, Prepared, alone, as_tuple
from regard.attention.scores.wrapper import Wrapper, WrapperAcceleration, plus
from regard.attention.scores.wrappers import soft_cap


class CappedAcceleration(WrapperAcceleration):
    """The acceleration of an `AddedBias` with a cap, whose scores are not inner products."""

    def __init__(self, score: "AddedBias") -> None:
        super().__init__(score)
        self.inner_product = self.linear = self.additive = False

    def fast_compare(
        self,
        score: "AddedBias",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        bias, queries = score.split_queries(queries)
        scores = score.capped(self.inner.fast_compare(score.inner, queries, keys, positions))
        return plus(scores, score.added(bias, None, positions))


class AddedBias(Wrapper):
    """c · tanh(score(q, k) / c) + b, with the cap c of a model and a bias b set for one call.

    Gemma 2 has a cap, for example, and T5 a bias (…, queries, keys). Without both it equals the
    inner score, and is an inner product if that is one.
    """

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        self.bias: Tensor | None = None
        self.cap: float | None = None
        self.parts = 1  # tensors that the inner score prepares of queries

    @property
    def acceleration(self) -> Acceleration:  # type: ignore[override]
        return super().acceleration if self.cap is None else CappedAcceleration(self)

    def capped(self, scores: Tensor) -> Tensor:
        """Return the capped scores."""
        return scores if self.cap is None else soft_cap(scores, self.cap)

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        bias, queries = self.split_queries(queries)
        scores = self.capped(self.inner.compare(queries, keys, positions))
        return plus(scores, self.added(bias, None, positions))

    def set_bias(self, bias: Tensor | None) -> None:
        """Set the bias of the next call."""
        self.bias = bias
        self.adds = bias is not None

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        inner = as_tuple(self.inner.prepare_queries(queries, positions))
        self.parts = len(inner)
        if self.bias is None:
            return alone(inner)
        return (self.bias.to(queries.dtype).expand(*queries.shape[:-1], -1), *inner)

    def split_queries(self, queries: Prepared) -> tuple[Prepared, Prepared]:
        parts = as_tuple(queries)
        if len(parts) == self.parts:
            return (), queries
        return parts[0], alone(parts[1:])

    def added(
        self, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor | None:
        if not isinstance(queries, Tensor):
            return None
        columns = positions[1]
        return queries if len(columns) == queries.shape[-1] else queries.index_select(-1, columns)
