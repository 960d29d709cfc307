"""Kernels of bounded support, 0 where u = w‖q − k‖ > 1, for the normaliser ``sum``."""

import torch
from torch import Tensor, nn

from regard.attention.acceleration import Acceleration
from regard.attention.prepared import Positions, Prepared
from regard.attention.score import Score
from regard.attention.tracing import on_cpu

NARROW = 8  # columns
#: The largest ‖wq‖² for which u² is a product in float32: its error is then below 1e-5 for the keys
#: in the support, whose norm is at most 1 larger.
NEAR = 64.0
#: Pairs with u² this close to 1 are compared by their differences where the kernel jumps there,
#: and how many such pairs at once.
EDGE, AT_ONCE = 1e-4, 2**14


class WindowAcceleration(Acceleration):
    """The acceleration of a `Window`: on a CPU, u² = ‖wq‖² + ‖wk‖² − 2 w²q·k by one product.

    Each row decides for itself whether its product needs float64, so that later rows change no bit
    of earlier results.
    """

    def fast_compare(
        self,
        score: "Window",  # type: ignore[override]
        queries: Prepared,
        keys: Prepared,
        positions: Positions,
    ) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        if queries.shape[-1] <= NARROW or not on_cpu(queries):
            return score.compare(queries, keys, positions)
        with torch.autocast("cpu", enabled=False):
            width: Tensor = score.inverse_width
            asking = width * queries
            squares = squared_distances(asking, width * keys)
            far = asking.detach().square().sum(-1, keepdim=True) > NEAR
            if squares.dtype != torch.float64 and bool(far.any()):
                q, k, width = queries.double(), keys.double(), width.double()
                finer = squared_distances(width * q, width * k).to(squares.dtype)
                squares = torch.where(far, finer, squares)
            if score.jumps:
                settle(squares.detach(), queries.detach(), keys.detach(), width.detach())
            return score.kernel(squares)

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
        # A CPU has a product, or too few columns for compiling to pay.
        width = super().numbers_per_pair(score, keys)
        first = keys if isinstance(keys, Tensor) else keys[0]
        return 1 if width <= NARROW or on_cpu(first) else width

    def needs_upcast(self, score: Score, queries: Prepared, keys: Prepared | None) -> bool:
        # In half precision the edge would be blurred over a hundredth of the support.
        assert isinstance(queries, Tensor)
        return queries.dtype in (torch.float16, torch.bfloat16)


def squared_distances(q: Tensor, k: Tensor) -> Tensor:
    """Return ‖qᵢ − kⱼ‖² of rows (…, n, width) and (…, m, width), by one product."""
    of_q, of_k = (x.square().sum(-1, keepdim=True) for x in (q, k))
    one, two = [-2 * q, torch.ones_like(of_q), of_q], [k, of_k, torch.ones_like(of_k)]
    return torch.cat(one, -1) @ torch.cat(two, -1).mT


def settle(squares: Tensor, queries: Tensor, keys: Tensor, width: Tensor) -> None:
    """Replace u² of the pairs near u = 1 by that of their differences, in place."""
    q, k = (x.expand(*squares.shape[:-2], *x.shape[-2:]) for x in (queries, keys))
    width = width.expand(*squares.shape[:-2], 1, 1)
    places = ((squares - 1).abs() <= EDGE).nonzero()
    for part in places.split(AT_ONCE):
        *batch, row, column = part.unbind(-1)
        apart = q[(*batch, row)] - k[(*batch, column)]
        exact = width[(*batch, *2 * [torch.zeros_like(row)])].square() * apart.square().sum(-1)
        squares[(*batch, row, column)] = exact.to(squares.dtype)


class Window(Score):
    """score(q, k) = K(u), u = w‖q − k‖, with an inverse width w; the support has radius 1 / w.

    Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); there is one w per head. w
    starts at ``inverse_width``; by default at 1 / √(4 · width), where two vectors of unit variance
    are at u = 0.7, or at 1 if ``query_width`` is not given. u² is summed from differences and not
    from ‖q‖² − 2 q·k + ‖k‖², whose rounding would decide whether a key near u = 1 counts. Raise a
    RegardError for two different widths.
    """

    acceleration = WindowAcceleration()
    same_width = True
    #: Whether K jumps at u = 1, so that the last digit of u² decides whether a key counts.
    jumps = False

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

    def compare(self, queries: Prepared, keys: Prepared, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        assert isinstance(keys, Tensor)
        if torch.compiler.is_compiling():  # a loop would be a statement for each column
            return self.acceleration.traced_compare(self, queries, keys, positions)
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
    jumps = True

    def kernel(self, squares: Tensor) -> Tensor:
        return 0.5 * (squares <= 1).to(squares.dtype).masked_fill(squares.isnan(), torch.nan)
