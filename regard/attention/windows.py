"""Kernels of bounded reach: beyond u = w‖q − k‖ = 1 they are 0. Made for the normaliser ``sum``."""

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.prepared import Positions, Prepared
from regard.attention.score import Score
from regard.errors import RegardError

NARROW = 8  # columns


class WindowAcceleration(Acceleration):
    """That of a `Window`."""

    def numbers_per_pair(self, score: Score, keys: Prepared) -> int:
        # Few columns are read as fast as a compiled function would, with no wait for a compiler.
        width = super().numbers_per_pair(score, keys)
        return width if width > NARROW else 1

    def needs_upcast(self, score: Score, queries: Prepared, keys: Prepared | None) -> bool:
        # The edge would be as broad as a hundredth of the reach.
        assert isinstance(queries, Tensor)
        return queries.dtype in (torch.float16, torch.bfloat16)


class Window(Score):
    """score(q, k) = K(u), u = w‖q − k‖, with an inverse width w: 1 / w is how far it reaches.

    w starts at 1, or at 1 / √(4 · width) when the width is told, where two vectors of unit variance
    are at u = 0.7. u² is summed from differences, taken before anything is rounded, and not from
    ‖q‖² − 2 q·k + ‖k‖²: which side of 1 it is on decides whether a key counts at all.
    """

    acceleration = WindowAcceleration()

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
        start = inverse_width
        if start is None:
            start = 1.0 if query_width is None else (4 * query_width) ** -0.5
        self.inverse_width = nn.Parameter(torch.full((heads, 1, 1) if heads else (), float(start)))
        if query_width is not None and key_width is not None:
            self.check(query_width, key_width)

    def check(self, query_width: int, key_width: int) -> None:
        if query_width != key_width:
            raise RegardError(
                f"{self.name} compares queries and keys of one width, not {query_width} and "
                f"{key_width}; 'general' and 'additive' take two"
            )
        super().check(query_width, key_width)

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        # Column by column: 2 to 4 times as fast as the sum of one tensor of all differences.
        apart = (
            q[..., :, None] - k[..., None, :]
            for q, k in zip(queries.unbind(-1), keys.unbind(-1), strict=True)
        )
        squares = sum((x.square() for x in apart), start=queries.new_zeros(()))
        return self.kernel(self.inverse_width.square() * squares)

    def kernel(self, squares: Tensor) -> Tensor:
        """K of u²."""
        raise NotImplementedError(f"{type(self).__name__} has no kernel(squares)")


class Epanechnikov(Window):
    """score(q, k) = ¾ max(1 − u², 0), u = w‖q − k‖, w learned. Epanechnikov 1969, equation 2.5.

    >>> score = Epanechnikov()
    >>> q, k = torch.zeros(1, 1), torch.tensor([[0.0], [0.5], [1.0], [7.0]])
    >>> score.compare(q, k, (torch.arange(1), torch.arange(4))).tolist()
    [[0.75, 0.5625, 0.0, 0.0]]
    """

    name = "epanechnikov"

    def kernel(self, squares: Tensor) -> Tensor:
        return 0.75 * (1 - squares).relu()


class Boxcar(Window):
    """score(q, k) = ½ where u = w‖q − k‖ ≤ 1, else 0. Rosenblatt 1956, section 2.

    All keys within reach alike. It is flat wherever it does not jump, so neither w nor queries nor
    keys get a gradient: choose w by a search.

    >>> score = Boxcar(inverse_width=2.0)
    >>> q, k = torch.zeros(1, 1), torch.tensor([[0.0], [0.5], [0.6]])
    >>> score.compare(q, k, (torch.arange(1), torch.arange(3))).tolist()
    [[0.5, 0.5, 0.0]]
    """

    name = "boxcar"

    def kernel(self, squares: Tensor) -> Tensor:
        return 0.5 * (squares <= 1).to(squares.dtype).masked_fill(squares.isnan(), torch.nan)
