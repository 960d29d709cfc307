"""Kernels of bounded support, 0 where u = w‖q − k‖ > 1, for the normaliser ``sum``."""

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.prepared import Positions, Prepared
from regard.attention.score import Score
from regard.core.errors import RegardError

NARROW = 8  # columns


class WindowAcceleration(Acceleration):
    """The acceleration of a `Window`."""

    def traced_compare(
        self,
        score: "Window",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        squares = (queries[..., :, None, :] - keys[..., None, :, :]).square().sum(-1)
        return score.kernel(score.inverse_width.square() * squares)

    def numbers_per_pair(self, score: Score, keys: Prepared) -> int:
        # With few columns a compiled function is no faster, and compiling takes seconds.
        width = super().numbers_per_pair(score, keys)
        return width if width > NARROW else 1

    def needs_upcast(self, score: Score, queries: Prepared, keys: Prepared | None) -> bool:
        # In half precision the edge would be blurred over a hundredth of the support.
        assert isinstance(queries, Tensor)
        return queries.dtype in (torch.float16, torch.bfloat16)


class Window(Score):
    """score(q, k) = K(u), u = w‖q − k‖, with an inverse width w; the support has radius 1 / w.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); there is one w per head. w
    starts at ``inverse_width``; by default at 1 / √(4 · width), where two vectors of unit variance
    are at u = 0.7, or at 1 if ``query_width`` is not given. u² is summed from differences and not
    from ‖q‖² − 2 q·k + ‖k‖², whose rounding would decide whether a key near u = 1 counts. Raise a
    RegardError for two different widths.
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
                f"score {self.name!r} needs queries and keys of the same width, not {query_width} "
                f"and {key_width}; use 'general' or 'additive'"
            )
        super().check(query_width, key_width)

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        # Column by column, which is 2 to 4 times faster than one tensor of all differences.
        differences = (
            q[..., :, None] - k[..., None, :]
            for q, k in zip(queries.unbind(-1), keys.unbind(-1), strict=True)
        )
        squares = sum((x.square() for x in differences), start=queries.new_zeros(()))
        return self.kernel(self.inverse_width.square() * squares)

    def kernel(self, squares: Tensor) -> Tensor:
        """Return K(u) from u²."""
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

    All keys within the support weigh the same. The kernel is piecewise constant, so w, queries and
    keys have no gradient; choose w by a search.

    >>> score = Boxcar(inverse_width=2.0)
    >>> q, k = torch.zeros(1, 1), torch.tensor([[0.0], [0.5], [0.6]])
    >>> score.compare(q, k, (torch.arange(1), torch.arange(3))).tolist()
    [[0.5, 0.5, 0.0]]
    """

    name = "boxcar"

    def kernel(self, squares: Tensor) -> Tensor:
        return 0.5 * (squares <= 1).to(squares.dtype).masked_fill(squares.isnan(), torch.nan)
