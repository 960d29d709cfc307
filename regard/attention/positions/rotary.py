"""Rotary positions and their scalings, and positions that turn or scale queries and keys."""

import math
from collections.abc import Mapping
from ctypes import CDLL
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.kernels import choose
from regard.attention.kernels.native import call, in_cpp, library
from regard.attention.prepared import Prepared, per_positions, repeat_kv
from regard.attention.score import InnerProduct, Score
from regard.attention.scores.wrapper import ProductWrapper, Wrapper
from regard.attention.tracing import on_cpu, transformed
from regard.core.errors import RegardError

#: Minimum numbers that are rotated in C++.
MANY = 2**12
#: YaRN's rotations within the trained length: above, a column is unchanged; below, interpolated.
FAST, SLOW = 32.0, 1.0
#: The same for Llama 3.
HIGH, LOW = 4.0, 1.0
#: The steps in which xPos decays, and its least factor of a step. Sun et al. 2022, table 2.
XPOS_STEPS, XPOS_LEAST = 512.0, 0.4


class Rotary(Wrapper):
    """score(R_i q, R_j k), where R_i rotates the columns (h, h + ⌊w/2⌋) by i · speed_h.

    speed_h = base^(−h / ⌊w/2⌋) with width w. Su et al. 2021. Queries (…, n, width) and keys
    (…, m, width) give scores (…, n, m); of a dot product only j − i remains. ``part`` of the
    columns is rotated, w = ⌊part · width⌋, and the last one of an odd w is not.

    At most one scaling serves texts that are longer than those of the training, by a factor s:

    * ``linear=s``: speed_h / s. Chen et al. 2023.
    * ``ntk=s``: the base is base · s^(w / (w − 2)), for fast columns as before. bloc97 2023.
    * ``yarn=(s, length)``: unchanged speeds for columns with 32 rotations or more in the trained
      length, speed_h / s for those with at most 1, a ramp between them; queries and keys are
      multiplied by 0.1 ln s + 1. Peng et al. 2023, equations 17 to 22.
    * ``llama3=(s, length)``: unchanged speeds for columns with more than 4 rotations, speed_h / s
      for those with less than 1, a mean weighted by rotations between them. Llama 3.1 (2024).

    As a name: ``rotary``, ``rotary-base-500000-part-0.25``, ``rotary-yarn-4-2048``. Raise a
    RegardError for values out of range and for two scalings.

    >>> rotate(torch.tensor([[1.0, 0.0]]), torch.tensor([1]))
    tensor([[0.5403, 0.8415]])
    """

    adds = False
    options: ClassVar[Mapping[str, int]] = {
        "base": 1, "part": 1, "linear": 1, "ntk": 1, "yarn": 2, "llama3": 2,
    }  # fmt: skip

    def __init__(
        self,
        inner: Score,
        *,
        base: float = 10_000.0,
        part: float = 1.0,
        linear: float | None = None,
        ntk: float | None = None,
        yarn: tuple[float, float] | None = None,
        llama3: tuple[float, float] | None = None,
    ) -> None:
        super().__init__(inner)
        if base <= 1 or not 0 < part <= 1:
            raise RegardError(
                f"rotary needs a base above 1 and a part above 0 and at most 1, not {base:g} and "
                f"{part:g}"
            )
        scalings = {"linear": linear, "ntk": ntk, "yarn": yarn, "llama3": llama3}
        chosen = {name: value for name, value in scalings.items() if value is not None}
        if len(chosen) > 1:
            raise RegardError(f"rotary takes one scaling, not {' and '.join(chosen)}")
        self.base, self.part = base, part
        self.scaling, value = next(iter(chosen.items()), ("", 1.0))
        self.factor, self.trained = value if isinstance(value, tuple) else (value, 1.0)
        if self.factor < 1 or self.trained < 1:
            raise RegardError(
                f"{self.scaling} scaling needs a factor and a length of at least 1, not "
                f"{self.factor:g} and {self.trained:g}"
            )

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_queries(self.turn(queries, positions), positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(self.turn(keys, positions), positions)

    def turn(self, x: Float[Tensor, "*batch n width"], positions: Int[Tensor, "... n"]) -> Tensor:
        """Return x with the columns of each row rotated by its position."""
        x = per_positions(x, positions)
        width = int(self.part * x.shape[-1])
        speeds = self.speeds(width // 2 * 2).to(x.device, non_blocking=True)
        longer = 0.1 * math.log(self.factor) + 1.0 if self.scaling == "yarn" else 1.0
        turned = rotate(x[..., :width], positions, speeds, longer)
        return torch.cat([turned, x[..., width:]], -1) if width < x.shape[-1] else turned

    def speeds(self, width: int) -> Float[Tensor, " pairs"]:
        """Return the radians per position of each pair of columns, for this even width."""
        if self.scaling == "ntk" and width > 2:
            return speeds_of(width, self.base * self.factor ** (width / (width - 2)))
        speeds = speeds_of(width, self.base)
        if self.scaling == "linear":
            return speeds / self.factor
        if self.scaling == "yarn" and width:
            low = math.floor(self._column(FAST, width))
            high = math.ceil(self._column(SLOW, width))
            low, high = max(low, 0), min(high, width - 1)
            steps = torch.arange(width // 2, dtype=torch.float64, device="cpu") - low
            slow = (steps / (high - low if high > low else 0.001)).clamp(0, 1)
            return speeds / self.factor * slow + speeds * (1 - slow)
        if self.scaling == "llama3":
            rotations = self.trained * speeds / (2 * math.pi)
            fast = ((rotations - LOW) / (HIGH - LOW)).clamp(0, 1)
            return speeds / self.factor * (1 - fast) + speeds * fast
        return speeds

    def _column(self, rotations: float, width: int) -> float:
        """Return the pair of columns with so many rotations within the trained length."""
        periods = self.trained / (rotations * 2 * math.pi)
        return width * math.log(periods) / (2 * math.log(self.base))

    def extra_repr(self) -> str:
        more = {"base": self.base, "part": self.part, self.scaling: self.factor}
        usual = {"base": 10_000.0, "part": 1.0, "": 1.0}
        shown = [f"{key}={value:g}" for key, value in more.items() if usual.get(key) != value]
        return ", ".join([super().extra_repr(), *shown])


def speeds_of(width: int, base: float = 10_000.0) -> Float[Tensor, " pairs"]:
    """Return base^(−h / ⌊width/2⌋) for h = 0 … ⌊width/2⌋ − 1, in float64.

    >>> speeds_of(4).tolist()
    [1.0, 0.01]
    """
    half = width // 2
    return torch.pow(base, -torch.arange(half, dtype=torch.float64, device="cpu") / max(half, 1))


def rotate(
    x: Float[Tensor, "*batch n width"],
    positions: Int[Tensor, "... n"],
    speeds: Float[Tensor, " pairs"] | None = None,
    factors: Float[Tensor, "... n pairs"] | float = 1.0,
) -> Float[Tensor, "*batch n width"]:
    """Return x with each pair of columns rotated by its position, and times ``factors``."""
    half = x.shape[-1] // 2
    speeds = speeds_of(x.shape[-1]).to(x.device) if speeds is None else speeds
    angles = positions[..., None].double() * speeds
    cos, sin = (factors * angles.cos()).to(x.dtype), (factors * angles.sin()).to(x.dtype)
    if (compiled := library_for(x, cos)) is not None:
        turned: Tensor = _Rotated.apply(x, cos, sin, 1, compiled)  # type: ignore[no-untyped-call]
        return turned
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


def library_for(x: Tensor, cos: Tensor) -> CDLL | None:
    """Return the library that rotates these rows, or None."""
    if not in_cpp(x) or x.ndim > 4 or x.numel() < MANY:
        return None
    if cos.requires_grad or transformed(x) is not None:
        return None
    if torch.broadcast_shapes(x.shape[:-1], cos.shape[:-1]) != x.shape[:-1]:
        return None
    return None if choose.asked() == "exact" else library("rows")


class _Rotated(torch.autograd.Function):
    """`rotate` in C++, by the angles times ``sign``: the gradient is rotated back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, sign: int, of: CDLL) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.how = -sign, of
        x = x if x.stride(-1) == 1 else x.contiguous()
        y, half = torch.empty_like(x), cos.shape[-1]
        if y.stride(-1) != 1:  # x overlaps itself, as windows of a series do
            y = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows, result = (z[(None,) * (4 - z.ndim)] for z in (x, y))
        angles = [z.contiguous().expand(*rows.shape[:-1], half) for z in (cos, sin)]
        steps = (step for z in (rows, result, angles[0]) for step in z.stride()[:3])
        sizes = *rows.shape[:-1], half, x.shape[-1]
        call("turn", of, rows, *angles, result, *sizes, *steps, sign)
        return y

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        of_x = _Rotated.apply(upstream[0], *ctx.saved_tensors, *ctx.how)  # type: ignore[no-untyped-call]
        return of_x, None, None, None, None


class XPos(Wrapper):
    """score(R_i q ζ^(i/512), R_j k ζ^(−j/512)), with ζ_h = (h / ⌊w/2⌋ + 0.4) / 1.4.

    Rotary positions whose pairs of columns decay with i − j, the slow ones least. Sun et al. 2022,
    algorithm 1. Queries (…, n, w) and keys (…, m, w) give scores (…, n, m). It is meant for j ≤ i:
    scores grow where a query sees later keys. Raise a RegardError unless the inner score is dot or
    scaled-dot, and for positions past 32,768, where the factors leave the range of float32.

    >>> XPos(InnerProduct(4, 4)).decay(4).exp()
    tensor([0.2857, 0.6429], dtype=torch.float64)
    """

    name = "xpos"
    adds = False
    farthest: ClassVar[int] = 32_768

    def __init__(self, inner: Score) -> None:
        super().__init__(inner)
        if not self.takes(inner):
            raise RegardError(
                f"xpos turns the rows of a plain product; use score=scaled-dot, not {inner.name}, "
                "or rotary"
            )

    @classmethod
    def takes(cls, inner: Score) -> bool:
        return is_plain(inner)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_queries(self._scaled(queries, positions, 1), positions)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self.inner.prepare_keys(self._scaled(keys, positions, -1), positions)

    def decay(self, width: int) -> Float[Tensor, " pairs"]:
        """Return ln ζ of each pair of columns."""
        half = width // 2
        columns = torch.arange(half, dtype=torch.float64, device="cpu") / max(half, 1)
        return ((columns + XPOS_LEAST) / (1 + XPOS_LEAST)).log()

    def _scaled(self, x: Tensor, positions: Tensor, sign: int) -> Tensor:
        if on_cpu(positions) and positions.numel() and int(positions.max()) > self.farthest:
            raise RegardError(
                f"xpos reads positions up to {self.farthest:,}, not {int(positions.max()):,}; use "
                "rotary"
            )
        x = per_positions(x, positions)
        decay = sign * self.decay(x.shape[-1]).to(x.device, non_blocking=True) / XPOS_STEPS
        return rotate(x, positions, factors=(positions[..., None].double() * decay).exp())


def is_plain(score: Score) -> bool:
    """Return whether a score is a product of queries and keys as they are."""
    kind = type(score)
    own = kind.prepare_queries, kind.prepare_keys
    return isinstance(score, InnerProduct) and own == (Score.prepare_queries, Score.prepare_keys)


class Pope(ProductWrapper):
    """score(q, k) = scale · Σ_c μ(q_c) μ(k_c) cos((j − i) · speed_c + δ_c), μ = softplus.

    Polar positions: contents are lengths and positions are angles, so that neither changes the
    other. speed_c = base^(−c / w) for each of the w columns; δ, (w,) or (heads, 1, w), is learned,
    between −2π and 0, and starts at 0. Gopalakrishnan et al. 2025, equations 5 to 7. Queries
    (…, n, w) and keys (…, m, w) give scores (…, n, m). Raise a RegardError unless the inner score
    is dot or scaled-dot, or without a ``query_width``.
    """

    name = "pope"
    options: ClassVar[Mapping[str, int]] = {"base": 1}

    def __init__(self, inner: Score, *, base: float = 10_000.0) -> None:
        super().__init__(inner)
        if not self.takes(inner):
            raise RegardError(f"pope is a score of its own; use score=scaled-dot, not {inner.name}")
        if not inner.query_width:
            raise RegardError("position 'pope' has parameters; give its score query_width=")
        self.base = base
        shape = (inner.heads, 1, inner.query_width) if inner.heads else (inner.query_width,)
        self.shift = nn.Parameter(torch.zeros(shape))

    @classmethod
    def takes(cls, inner: Score) -> bool:
        return is_plain(inner)

    def scale(self, width: int) -> float:
        return self.inner.acceleration.scale(self.inner, width // 2)

    def prepare_queries(self, queries: Tensor, positions: Tensor) -> Prepared:
        return self._polar(queries, positions, None)

    def prepare_keys(self, keys: Tensor, positions: Tensor) -> Prepared:
        return self._polar(keys, positions, self.shift.clamp(-2 * math.pi, 0))

    def _polar(self, x: Tensor, positions: Tensor, shift: Tensor | None) -> Tensor:
        x = per_positions(repeat_kv(x, self.heads) if shift is not None else x, positions)
        width = x.shape[-1]
        columns = torch.arange(width, dtype=torch.float64, device=x.device)
        angles = positions[..., None].double() * torch.pow(self.base, -columns / width)
        wide = torch.promote_types(x.dtype, torch.float32)
        cos, sin = angles.cos().to(wide), angles.sin().to(wide)
        if shift is not None:  # of a sum of angles, without a cosine for each head and position
            shift = shift.to(wide)
            one, two = shift.cos(), shift.sin()
            cos, sin = cos * one - sin * two, sin * one + cos * two
        turns = torch.cat([cos, sin], -1).to(x.dtype)
        return nn.functional.softplus(x).tile(2) * turns
