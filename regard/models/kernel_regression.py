"""Kernel regression: f(x) = Σᵢ normalize(score(x, xᵢ)) yᵢ. Nadaraya 1964; Watson 1964.

Attention whose keys are the x that were seen and whose values are their y. What may be learned is
w, one over the width of the kernel, one a dimension; while it is, each point asks all the others
but not itself, or w would grow until every point answers with its own y.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import SCORES, Attended, Attention, Mask, Normalizer, others
from regard.attention.normalizers import NORMALIZERS, TopK
from regard.errors import RegardError, look_up


@dataclass(frozen=True)
class Kernel:
    """A row of `KERNELS`: score and normaliser, its formula, its reach in Gaussian widths.

    ``slopes``: the output has a gradient in w. ``centred``: only differences of x count.
    """

    score: str
    normalize: str
    formula: str
    reach: float = 1.0
    slopes: bool = True
    centred: bool = True


#: Beside those of the seeds, `reach` makes kernels of one name comparable: at reach · h they
#: smooth as the Gaussian of width h does (canonical bandwidths, Marron & Nolan 1988).
KERNELS: dict[str, Kernel] = {
    "average": Kernel("gaussian", "softmax", "all alike: the Gaussian at w = 0", slopes=False),
    "gaussian": Kernel("gaussian", "softmax", "softmax(−‖w(x − xᵢ)‖² / 2)"),
    "epanechnikov": Kernel("epanechnikov", "sum", "¾ (1 − u²)₊ / Σ, u = ‖w(x − xᵢ)‖", 2.214),
    "boxcar": Kernel("boxcar", "sum", "½ [u ≤ 1] / Σ, u = ‖w(x − xᵢ)‖", 1.740, slopes=False),
    "cosine": Kernel("cosine", "softmax", "softmax(cos(wx, wxᵢ))", centred=False),
    "dot": Kernel("dot", "softmax", "softmax(wx · wxᵢ)", centred=False),
    "k-nearest": Kernel("gaussian", "top-k", "1/k for the k nearest", slopes=False),
}


class NadarayaWatson(nn.Module):
    """f(x) = Σᵢ normalize(score(w x, w xᵢ)) yᵢ with w > 0, one a dimension, learned as log w.

    Nadaraya 1964, Watson 1964; with w learned, Dive into Deep Learning, section 11.2 (that page
    writes w (x − xᵢ)² in one place: its w is the square of this one). ``neighbors`` is the k of
    "k-nearest"; where several are as far as the k-th, all of them count.

    Errors: a kernel that does not exist, w that is not above 0, no neighbour at all.

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
    >>> NadarayaWatson()(torch.tensor([[0.5]]), x, y).item()
    2.0
    """

    def __init__(
        self, kernel: str = "gaussian", w: Sequence[float] = (1.0,), *, neighbors: int = 5
    ) -> None:
        super().__init__()
        self.kernel = kernel
        row = look_up(KERNELS, kernel, "kernel")
        values = torch.tensor([float(x) for x in w], dtype=torch.float64)
        if not len(values) or not bool(((values > 0) & values.isfinite()).all()):
            raise RegardError(
                f"w is one over a width, so above 0 and finite, not {', '.join(map(str, w))}"
            )
        self.log_w = nn.Parameter(values.log())
        normalizer: Normalizer
        if kernel == "k-nearest":
            normalizer = TopK(k=neighbors, equal=True)
        else:
            normalizer = NORMALIZERS[row.normalize]()
        # Made without a width, a score has w = 1: ours comes before it, one a dimension.
        self.attention = Attention(SCORES[row.score]().requires_grad_(False), normalizer)

    @property
    def w(self) -> Float[Tensor, " width"]:
        """One over the width of each dimension; the average has none, as if it were 0."""
        return 0 * self.log_w if self.kernel == "average" else self.log_w.exp()

    def forward(
        self,
        queries: Float[Tensor, "... queries width"],
        keys: Float[Tensor, "... keys width"],
        values: Float[Tensor, "... keys value_width"],
        mask: Mask | None = None,
        *,
        query_positions: Int[Tensor, "... queries"] | None = None,
    ) -> Float[Tensor, "... queries value_width"]:
        """The weighed mean of the values for each query, in O(queries + keys) memory."""
        w = self.w.to(keys.dtype)
        attended: Attended = self.attention(
            queries * w, keys * w, values, mask, query_positions=query_positions
        )
        return attended.output

    def leave_one_out(
        self,
        keys: Float[Tensor, "keys width"],
        values: Float[Tensor, "keys value_width"],
        rows: Int[Tensor, " rows"] | None = None,
    ) -> Float[Tensor, "rows value_width"]:
        """What all the others say about each of these rows (all of them if none are named)."""
        rows = torch.arange(len(keys)) if rows is None else rows
        said: Tensor = self(keys[rows], keys, values, others(), query_positions=rows)
        return said

    def weights(
        self, queries: Float[Tensor, "queries width"], keys: Float[Tensor, "keys width"]
    ) -> Float[Tensor, "queries keys"]:
        """Who looks at whom, whole: for pictures."""
        w = self.w.to(keys.dtype)
        found: Tensor = self.attention(queries * w, keys * w, keys).weights
        return found

    def extra_repr(self) -> str:
        return f"kernel={self.kernel!r}"


class Step(NamedTuple):
    """After a step of `learn`: its number, w, and the error of the rows that it looked at."""

    number: int
    w: tuple[float, ...]
    loss: float


def learn(
    model: NadarayaWatson,
    keys: Float[Tensor, "keys width"],
    values: Float[Tensor, "keys value_width"],
    *,
    steps: int = 100,
    batch: int = 128,
    rate: float = 0.3,
    seed: int = 0,
) -> Iterator[Step]:
    """Learn w by Adam on the leave-one-out error (mean square, over the variance of the values).

    Each step ``batch`` rows ask all the others: O(keys) memory. The rate falls to 0 as a quarter of
    a cosine. Yields where it stands before the first step and after each.

    Errors: a kernel whose output has no slope in w; fewer than two keys.
    """
    if not KERNELS[model.kernel].slopes:
        raise RegardError(
            f"{model.kernel} has no gradient in its width: give widths, or search for them"
        )
    if len(keys) < 2:
        raise RegardError(f"leaving one out takes two rows or more, not {len(keys)}")
    adam = torch.optim.Adam([model.log_w], lr=rate, betas=(0.8, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: float(torch.cos(torch.tensor(step / max(steps, 1) * torch.pi / 2)))
    )
    spread = values.var(0, unbiased=False).mean().clamp(min=torch.finfo(values.dtype).tiny)
    for number, rows in zip(range(steps + 1), batches(len(keys), batch, seed), strict=False):
        with torch.set_grad_enabled(number < steps):
            loss = (model.leave_one_out(keys, values, rows) - values[rows]).square().mean() / spread
        yield Step(number, tuple(model.w.tolist()), loss.item())
        if number == steps:
            return
        adam.zero_grad()
        loss.backward()
        adam.step()
        schedule.step()


def batches(count: int, batch: int, seed: int) -> Iterator[Int[Tensor, " rows"]]:
    """Rows of endless passes over ``count``, each in an order of its own; all where they fit."""
    draw = torch.Generator().manual_seed(seed)
    while True:
        if batch >= count:
            yield torch.arange(count)
            continue
        order = torch.randperm(count, generator=draw)
        for start in range(0, count - batch + 1, batch):
            yield order[start : start + batch].sort().values


def error_of(
    model: NadarayaWatson,
    keys: Float[Tensor, "keys width"],
    values: Float[Tensor, "keys value_width"],
    rows: Int[Tensor, " rows"] | None = None,
) -> float:
    """The mean square of the leave-one-out errors of these rows."""
    with torch.no_grad():
        said = model.leave_one_out(keys, values, rows)
        wanted = values if rows is None else values[rows]
        return float((said - wanted).square().mean())


def search(
    error: Callable[[Sequence[float]], float],
    start: Sequence[float],
    factors: Sequence[float],
    sweeps: int = 1,
) -> Iterator[tuple[tuple[float, ...], float]]:
    """Grid search of w, one dimension after the other: start · factors; yields each w tried.

    The best so far is where the next dimension is searched from; each sweep after the first looks
    half a step to both sides, and its steps are half of those before.

    >>> found = min(search(lambda w: (w[0] - 2) ** 2, [1.0], [0.5, 1, 2, 4]), key=lambda x: x[1])
    >>> found
    ((2.0,), 0.0)
    """
    best, low = list(start), math.inf
    ratios = sorted(factors)
    for _ in range(sweeps):
        for place in range(len(start)):
            centre = best[place]
            for factor in ratios:
                tried = [*best[:place], centre * factor, *best[place + 1 :]]
                found = error(tried)
                yield tuple(tried), found
                if found < low:
                    best, low = tried, found
        step = max(b / a for a, b in pairwise(ratios))
        ratios = [step**-0.5, step**0.5]


def rule_of_thumb(count: int, width: int) -> float:
    """Silverman's (1986, equation 4.14) width for columns of standard deviation 1.

    >>> round(rule_of_thumb(50, 1), 3)
    0.484
    """
    return float((4 / (width + 2)) ** (1 / (width + 4)) * count ** (-1 / (width + 4)))
