"""Position encodings: modules added to the input, and scores wrapped around another score."""

import math
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.prepared import Positions, Prepared, as_tuple, per_positions
from regard.attention.score import Score
from regard.attention.scores import SCORES
from regard.attention.sines import Sinusoidal
from regard.attention.tracing import readable
from regard.attention.trees import TreeDepth, TreeKeys
from regard.attention.wrapper import DistanceKeys, Wrapper, distance
from regard.errors import RegardError, look_up
from regard.plugins import one_line
from regard.tables import Table


class Learned(nn.Module):
    """x + P[i], with a learned row for each position i below ``length``. Gehring et al. 2017.

    x and the result are (\\*batch, n, width), P is (length, width). Raise a RegardError without a
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


class Rotary(Wrapper):
    """score(R_i q, R_j k), where R_i rotates the columns (h, h + ⌊w/2⌋) by i / 10000^(h / ⌊w/2⌋).

    Su et al. 2021, with width w. Queries (…, n, w) and keys (…, m, w) give scores (…, n, m); of a
    dot product only j − i remains. The last column of an odd width is not rotated.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    tensor([[0.5403, 0.8415]])
    """

    adds = False

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        turned = rotate(per_positions(queries, positions), positions)
        return self.inner.prepare_queries(turned, positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(rotate(per_positions(keys, positions), positions), positions)


def rotate(
    x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"]
) -> Float[Tensor, "*batch n width"]:
    """Return x with each pair of columns rotated by the angle of its position and column."""
    half = x.shape[-1] // 2
    speed = torch.arange(half, device=x.device).double() / max(half, 1)
    angles = positions[..., None].double() * torch.pow(10000.0, -speed)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


class Alibi(Wrapper):
    """score(q, k) − slope · |i − j|, slopes 2^(−8h/heads) for h = 1 … heads. Press et al. 2022.

    Scores are (…, [heads,] n, m). If the number of heads is not a power of two, the slopes follow
    the paper's code: those of the next lower power, then every other one of the next higher.

    >>> Alibi(make_score("dot", heads=2)).slopes.flatten().tolist()
    [0.0625, 0.00390625]
    """

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        self.slopes: Tensor
        slopes = torch.tensor(alibi_slopes(inner.heads or 1), dtype=torch.float32)
        self.register_buffer(
            "slopes", slopes[:, None, None] if inner.heads else slopes[0], persistent=False
        )

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        dtype = as_tuple(queries)[0].dtype
        return -self.slopes.to(dtype) * distance(positions).abs()


def alibi_slopes(heads: int) -> list[float]:
    """Return a slope per head.

    >>> alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2.0 ** (-8 * h / power) for h in range(1, power + 1)]
    between = [2.0 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]


class RelativeBias(Wrapper):
    """score(q, k) + b[bucket(j − i)], a learned bias per bucket and head. Raffel et al. 2020, 2.1.

    Scores are (…, [heads,] n, m), b is (heads, buckets). Half of the buckets are for each direction
    (``bidirectional``), or all for the past. Near distances have a bucket each, farther ones share
    buckets in logarithmic steps up to ``farthest``.

    >>> RelativeBias(make_score("dot", heads=2)).bias.shape
    torch.Size([2, 32])
    """

    def __init__(
        self,
        inner: Score,
        *,
        buckets: int = 32,
        farthest: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__(inner)
        self.buckets, self.farthest, self.bidirectional = buckets, farthest, bidirectional
        self.bias = nn.Parameter(torch.randn(inner.heads or 1, buckets) * 0.02)

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        rows, columns = positions
        bias = self.bias if self.heads else self.bias[0]
        if in_steps(rows) and in_steps(columns):
            # One number per diagonal, in the gradient too: no table of buckets, no scattering.
            n, m = len(rows), len(columns)
            apart = columns[0] - rows[-1] + torch.arange(n + m - 1, device=rows.device)
            return bias[..., self.buckets_of(apart)].unfold(-1, m, 1).flip(-2)
        bucket = self.buckets_of(distance(positions))
        if bucket.ndim == 2 or not self.heads:
            return bias[..., bucket]
        return bias.T[bucket].movedim(-1, -3).squeeze(-4)

    def buckets_of(self, apart: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
        """Return the bucket of each distance."""
        return t5_bucket(apart, self.buckets, self.farthest, self.bidirectional)


def in_steps(positions: Int[Tensor, "... n"]) -> bool:
    """Return whether these are known to be one row of consecutive positions."""
    if positions.ndim != 1 or not readable(positions):
        return False
    return len(positions) > 0 and bool((positions.diff() == 1).all())


def t5_bucket(
    distance: Int[Tensor, "..."], buckets: int, farthest: int, bidirectional: bool
) -> Int[Tensor, "..."]:
    """Return T5's bucket of j − i: exact if near, logarithmic up to ``farthest``, then the last.

    >>> t5_bucket(torch.tensor([-200, -9, -1, 0, 1, 9, 200]), 32, 128, True).tolist()
    [15, 8, 1, 0, 17, 24, 31]
    """
    first = torch.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    exact = buckets // 2
    steps = (distance.clamp(min=1).double() / exact).log() / math.log(farthest / exact)
    far = (exact + (steps * (buckets - exact)).long()).clamp(max=buckets - 1)
    return first + torch.where(distance < exact, distance, far)


class RelativeKeys(DistanceKeys):
    """score(q, k) + scale · q·a[clip(j − i)], a learned key for each distance up to ``farthest``.

    Shaw et al. 2018, equation 5, for a scaled dot product; for a score that is not an inner product
    the scale is 1/√width. Queries (…, n, width) and keys (…, m, width) give scores (…, n, m); a is
    (2 · farthest + 1, width), shared by the heads as in the paper. Raise a RegardError if the inner
    score has no ``query_width``.

    >>> RelativeKeys(make_score("scaled-dot", "none", 4, 4), farthest=2).distance_keys.shape
    torch.Size([5, 4])
    """

    name = "relative-keys"

    def added(self, queries: Prepared, keys: Prepared | None, positions: Positions) -> Tensor:
        assert isinstance(queries, Tensor)
        return self.by_distance(queries, distance(positions))


#: A name means a module that is added to the input, or a Score that wraps another.
POSITIONS: Table[type[nn.Module] | None] = Table(
    {
        "none": None,
        "sinusoidal": Sinusoidal,
        "learned": Learned,
        "rotary": Rotary,
        "alibi": Alibi,
        "t5-bias": RelativeBias,
        "relative-keys": RelativeKeys,
        "tree-depth": TreeDepth,
        "tree-keys": TreeKeys,
    },
    "regard.positions",
    (Wrapper, nn.Module),
    "position",
    classes=True,
)


def input_positions(
    name: str, width: int, *, length: int | None = None, sines: float = 1.0
) -> nn.Module | None:
    """Return the module that adds these positions to the input, or None if the score applies them.

    ``sines`` is the factor of sinusoidal positions, to match the size of the input vectors. Raise a
    RegardError for an unknown name.
    """
    kind = look_up(POSITIONS, name, "position")
    if kind is None or issubclass(kind, Score):
        return None
    if kind is Sinusoidal:
        return Sinusoidal(width, length=length, scale=sines)
    with built_as(name, f"{kind.__name__}(width, length=…)"):
        return kind(width, length=length)


def make_score(
    score: str | type[Score],
    position: str = "none",
    query_width: int | None = None,
    key_width: int | None = None,
    *,
    heads: int | None = None,
    length: int | None = None,
) -> Score:
    """Return a score by name, wrapped in the named positions if those are part of the score.

    A user's own part is ``FILE.py:Name``, a score also the class itself. Raise a RegardError for
    an unknown name and for a class with another constructor.

    >>> make_score("scaled-dot", "rotary", 8, 8)
    Rotary(
      query_width=8, key_width=8
      (inner): ScaledDot(query_width=8, key_width=8)
    )
    """
    kind = look_up(SCORES, score, "score") if isinstance(score, str) else score
    name = score if isinstance(score, str) else score.__name__
    arguments = "(query_width, key_width, heads=…, length=…)"
    with built_as(name, f"{kind.__name__}{arguments}"):
        built = kind(query_width, key_width, heads=heads, length=length)
    around = look_up(POSITIONS, position, "position")
    if around is None or not issubclass(around, Score):
        return built
    if not issubclass(around, Wrapper):
        raise RegardError(
            f"{position} is a score and no position: write "
            f"`class {around.__name__}(regard.attention.Wrapper):`"
        )
    with built_as(position, f"{around.__name__}(score)"):
        return around(built)


@contextmanager
def built_as(name: str, call: str) -> Iterator[None]:
    """Raise an error with the part's name if its class has another constructor."""
    try:
        yield
    except TypeError as error:
        raise RegardError(f"{name} cannot be built as {call}: {one_line(error)}") from error
