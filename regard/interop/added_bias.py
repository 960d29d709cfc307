"""The score of a transformers model: a capped product, plus a bias set for one call."""

from torch import Tensor

from regard.attention import Score
from regard.attention.prepared import Positions, Prepared, alone, as_tuple
from regard.attention.scores.wrapper import Wrapper
from regard.attention.scores.wrappers import soft_cap


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
    def bends(self) -> bool:  # type: ignore[override]
        """Whether there is a cap, with which the scores are not inner products."""
        return self.cap is not None

    def changed(
        self, scores: Tensor, queries: Prepared, keys: Prepared | None, positions: Positions
    ) -> Tensor:
        capped = scores if self.cap is None else soft_cap(scores, self.cap)
        return super().changed(capped, queries, keys, positions)

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
