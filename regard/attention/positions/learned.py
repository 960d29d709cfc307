"""Learned vectors: one added to the input at each position, one to the keys at each distance."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.kernels.distances import clipped
from regard.attention.prepared import Positions, Prepared
from regard.attention.scores.wrapper import DistanceKeys
from regard.attention.tracing import readable
from regard.core.errors import RegardError


class Learned(nn.Module):
    """x + P[i], with a learned row for each position i below ``length``. Gehring et al. 2017.

    x and the result are (*batch, n, width), P is (length, width). Raise a RegardError without a
    length, and for a position outside 0 … length − 1.

    >>> Learned(4, length=9)(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(self, width: int, *, length: int | None = None) -> None:
        super().__init__()
        if not length:
            raise RegardError("learned positions need length=, the maximum input length")
        self.table = nn.Parameter(torch.randn(length, width) * 0.02)

    def forward(
        self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"] | None = None
    ) -> Float[Tensor, "*batch n width"]:
        """Return x + P[i] for i = 0 … n − 1, or for these positions."""
        length, n = len(self.table), x.shape[-2]
        if positions is None:
            beyond = n > length
        else:
            beyond = readable(positions) and bool(((positions < 0) | (positions >= length)).any())
        if beyond:
            longest = n if positions is None else int(positions.max()) + 1
            raise RegardError(
                f"learned positions end at length={length}, but the input needs {longest}; use "
                "a larger length="
            )
        return x + (self.table[:n] if positions is None else self.table[positions])


class RelativeKeys(DistanceKeys):
    """score(q, k) + scale · q·a[clip(j − i)], a learned key for each distance up to ``farthest``.

    Shaw et al. 2018, equation 5, for a scaled dot product; for a score that is not an inner product
    the scale is 1/√width. Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); a is
    (2 · farthest + 1, width), shared by the heads as in the paper. Raise a RegardError if the inner
    score has no ``query_width``.

    >>> from regard.attention import make_score
    >>> RelativeKeys(make_score("scaled-dot", "none", 4, 4), farthest=2).distance_keys.shape
    torch.Size([5, 4])
    """

    name = "relative-keys"

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        return clipped(queries, positions, -2)
