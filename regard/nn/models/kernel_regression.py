"""Kernel regression: f(x) = Σᵢ normalize(score(x, xᵢ)) yᵢ. Nadaraya 1964; Watson 1964.

It is attention with the training points x as keys and their y as values. The learned parameter w is
the inverse of the kernel's width, for each dimension. In training, each point attends to all others
but not to itself; otherwise w would grow until every point predicts its own y.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import SCORES, Attended, Attention, Mask, Normalizer, Score, others
from regard.attention.arguments import must_be_rows
from regard.attention.normalizers import NORMALIZERS
from regard.attention.normalizers.basic import TopK
from regard.core.errors import RegardError, look_up
from regard.core.plugins import one_line


@dataclass(frozen=True)
class Kernel:
    """A kernel: its score, normaliser and formula.

    ``reach``: its canonical bandwidth, in Gaussian widths. ``slopes``: whether the output has a
    gradient with respect to w. ``centred``: whether it depends on differences of x only.
    """

    score: str | Score | type[Score]
    normalize: str
    formula: str
    reach: float = 1.0
    slopes: bool = True
    centred: bool = True

    @classmethod
    def of(cls, kernel: object) -> "Kernel":
        """Return the kernel of a name, of a `Score` or of its class, with a softmax.

        Raises: an unknown name; another object.
        """
        if isinstance(kernel, str):
            return look_up(KERNELS, kernel, "kernel")
        if isinstance(kernel, Score) or (isinstance(kernel, type) and issubclass(kernel, Score)):
            centred = kernel.acceleration.translation_invariant
            return cls(kernel, "softmax", "softmax(score(wx, wxᵢ))", centred=centred)
        names = ", ".join(KERNELS)
        raise RegardError(
            f"kernel must be one of {names}, a Score or its class, not {kernel!r:.80}"
        )

    def make_score(self, width: int) -> Score:
        """Return the score for inputs of this width, without gradients. Raises: a failing class."""
        score = self.score
        if isinstance(score, str):
            return SCORES[score]().requires_grad_(False)
        if not isinstance(score, Score):
            kind = score
            try:
                score = kind(query_width=width, key_width=width)
            except Exception as error:  # whatever a user's code raises
                raise RegardError(
                    f"kernel={kind.__name__} cannot be built for {width} columns "
                    f"({one_line(error)}); pass an instance"
                ) from error
        if score.heads is not None:
            raise RegardError(f"a kernel has no heads; build its score without heads={score.heads}")
        return deepcopy(score).double().requires_grad_(False)


#: With width reach · h a kernel smooths as much as the Gaussian with width h (canonical bandwidths,
#: Marron & Nolan 1988).
KERNELS: dict[str, Kernel] = {
    "average": Kernel("gaussian", "softmax", "equal weights: the Gaussian at w = 0", slopes=False),
    "gaussian": Kernel("gaussian", "softmax", "softmax(−‖w(x − xᵢ)‖² / 2)"),
    "epanechnikov": Kernel("epanechnikov", "sum", "¾ (1 − u²)₊ / Σ, u = ‖w(x − xᵢ)‖", 2.214),
    "boxcar": Kernel("boxcar", "sum", "½ [u ≤ 1] / Σ, u = ‖w(x − xᵢ)‖", 1.740, slopes=False),
    "cosine": Kernel("cosine", "softmax", "softmax(cos(wx, wxᵢ))", centred=False),
    "dot": Kernel("dot", "softmax", "softmax(wx · wxᵢ)", centred=False),
    "k-nearest": Kernel("gaussian", "top-k", "1/k for the k nearest", slopes=False),
}


class NadarayaWatson(nn.Module):
    """f(x) = Σᵢ normalize(score(w x, w xᵢ)) yᵢ with w > 0 for each dimension, learned as log w.

    Nadaraya 1964, Watson 1964; with learned w: Dive into Deep Learning, section 11.2 (which writes
    w (x − xᵢ)² in one place: that w is the square of this one). ``neighbors`` is the k of
    "k-nearest"; all points at the distance of the k-th count.

    ``kernel`` is a name, a `Score` or its class (`Kernel.of`).

    Raises: an unknown kernel; w that is not above 0 and finite; ``neighbors`` below 1.

    >>> x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[1.0], [3.0]])
    >>> NadarayaWatson()(torch.tensor([[0.5]]), x, y).item()
    2.0
    """

    def __init__(
        self,
        kernel: str | Score | type[Score] = "gaussian",
        w: Sequence[float] = (1.0,),
        *,
        neighbors: int = 5,
    ) -> None:
        super().__init__()
        self.row = row = Kernel.of(kernel)
        kind = kernel if isinstance(kernel, type) else type(kernel)
        self.kernel = kernel if isinstance(kernel, str) else kind.__name__
        values = torch.tensor([float(x) for x in w], dtype=torch.float64)
        if not len(values) or not bool(((values > 0) & values.isfinite()).all()):
            raise RegardError(
                f"w must be above 0 and finite (1 / width), not {', '.join(map(str, w)) or 'empty'}"
            )
        self.log_w = nn.Parameter(values.log())
        normalizer: Normalizer
        if kernel == "k-nearest":
            normalizer = TopK(k=neighbors, equal=True)
        else:
            normalizer = NORMALIZERS[row.normalize]()
        # A score with its own width has w = 1; the inputs are scaled by w before it.
        self.attention = Attention(row.make_score(len(values)), normalizer)

    @property
    def w(self) -> Float[Tensor, " width"]:
        """Return the inverse width of each dimension, or zeros for the average."""
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
        """Return the weighted mean of the values for each query, in O(queries + keys) memory."""
        width = self.w.shape[-1] if self.w.numel() > 1 else None
        for name, x in (("queries", queries), ("keys", keys)):
            must_be_rows(name, x, width)
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
        """Return the prediction for each of these rows (default: all) from all other rows."""
        rows = torch.arange(len(keys)) if rows is None else rows
        predictions: Tensor = self(keys[rows], keys, values, others(), query_positions=rows)
        return predictions

    def weights(
        self, queries: Float[Tensor, "queries width"], keys: Float[Tensor, "keys width"]
    ) -> Float[Tensor, "queries keys"]:
        """Return the whole matrix of weights, in O(queries · keys) memory."""
        w = self.w.to(keys.dtype)
        weights: Tensor = self.attention(queries * w, keys * w, keys).weights
        return weights

    def extra_repr(self) -> str:
        return f"kernel={self.kernel!r}"


class Step(NamedTuple):
    """A step of `learn`: its number, w, and the error of the step's rows."""

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
    common: bool = False,
) -> Iterator[Step]:
    """Learn w by Adam on the leave-one-out error (mean square, divided by the values' variance).

    In each step ``batch`` rows attend to all others, in O(keys) memory. The rate falls to 0 as a
    quarter of a cosine. ``common``: learn one factor for all dimensions, which keeps their ratios.
    Yields the state before the first step and after each step.

    Raises: a kernel whose output has no gradient with respect to w; fewer than two keys.
    """
    if not model.row.slopes:
        raise RegardError(
            f"{model.kernel} has no gradient in w, so w cannot be learned; set w, or use search()"
        )
    if len(keys) < 2:
        raise RegardError(f"leave-one-out requires two rows or more, not {len(keys)}")
    adam = torch.optim.Adam([model.log_w], lr=rate, betas=(0.8, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: float(torch.cos(torch.tensor(step / max(steps, 1) * torch.pi / 2)))
    )
    variance = values.var(0, unbiased=False).mean().clamp(min=torch.finfo(values.dtype).tiny)
    for number, rows in zip(range(steps + 1), batches(len(keys), batch, seed), strict=False):
        with torch.set_grad_enabled(number < steps):
            loss = (model.leave_one_out(keys, values, rows) - values[rows]).square().mean()
            loss = loss / variance
        if number < steps and not loss.requires_grad:
            raise RegardError(f"{model.kernel} has no gradient in its inputs; set w or the widths")
        yield Step(number, tuple(model.w.tolist()), loss.item())
        if number == steps:
            return
        adam.zero_grad()
        loss.backward()
        if common and model.log_w.grad is not None:
            model.log_w.grad.fill_(model.log_w.grad.mean())
        adam.step()
        schedule.step()


FOLDS, SHARES = 3, 11  # held-out parts, and tried shares
FEW, ROWS = 30, 4_000  # least and most rows that are divided


def shrinkage(
    model: NadarayaWatson,
    keys: Float[Tensor, "keys width"],
    values: Float[Tensor, "keys value_width"],
    **how: Any,
) -> float:
    """Return which share of learned changes of ``model.log_w`` to keep, from 0 to 1.

    Leave-one-out errors are too low for widths that minimise them. For each of `FOLDS` parts of the
    rows, w is learned on the other parts, by `learn` with the arguments ``how``, and the part is
    predicted with 0, 0.1 … 1 of the change. The result is the least share whose mean squared error
    is within a standard error of the best (Breiman et al. 1984, section 3.4.3). It is 0 for fewer
    than `FEW` rows; at most `ROWS` are used.
    """
    draw = torch.Generator().manual_seed(how.get("seed", 0))
    rows = torch.randperm(len(keys), generator=draw)[:ROWS]
    if len(rows) < FEW:
        return 0.0
    start, errors = model.log_w.detach(), []
    shares = [share / (SHARES - 1) for share in range(SHARES)]
    for held in rows.chunk(FOLDS):
        rest = rows[~torch.isin(rows, held)].sort().values
        fold = deepcopy(model)
        for _ in learn(fold, keys[rest], values[rest], **how):
            pass
        learned = fold.log_w.detach().clone()
        with torch.no_grad():
            columns = []
            for share in shares:
                fold.log_w.copy_(start + share * (learned - start))
                predicted = fold(keys[held], keys[rest], values[rest])
                columns.append((predicted - values[held]).square().mean(1))
            errors.append(torch.stack(columns, 1))
    table = torch.cat(errors)
    worse = table - table[:, [int(table.mean(0).argmin())]]
    near = worse.mean(0) <= worse.std(0) / len(table) ** 0.5
    return shares[int(near.int().argmax())]


def batches(count: int, batch: int, seed: int) -> Iterator[Int[Tensor, " rows"]]:
    """Yield batches of rows forever, each pass in a new random order; all rows if they fit."""
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
    """Return the mean square of the leave-one-out errors of these rows."""
    with torch.no_grad():
        predictions = model.leave_one_out(keys, values, rows)
        targets = values if rows is None else values[rows]
        return float((predictions - targets).square().mean())


def search(
    error: Callable[[Sequence[float]], float],
    start: Sequence[float],
    factors: Sequence[float],
    sweeps: int = 1,
) -> Iterator[tuple[tuple[float, ...], float]]:
    """Search w on the grid start · factors, one dimension after the other; yield each w and error.

    Each dimension is searched from the best w so far. Each sweep after the first tries half a
    (logarithmic) step to both sides of the best, half the steps of the previous sweep.

    >>> min(search(lambda w: (w[0] - 2) ** 2, [1.0], [0.5, 1, 2, 4]), key=lambda x: x[1])
    ((2.0,), 0.0)
    """
    best, lowest = list(start), math.inf
    ratios = sorted(factors)
    for _ in range(sweeps):
        for place in range(len(start)):
            centre = best[place]
            for factor in ratios:
                candidate = [*best[:place], centre * factor, *best[place + 1 :]]
                loss = error(candidate)
                yield tuple(candidate), loss
                if loss < lowest:
                    best, lowest = candidate, loss
        step = max(b / a for a, b in pairwise(ratios))
        ratios = [step**-0.5, step**0.5]


def rule_of_thumb(count: int, width: int) -> float:
    """Return Silverman's kernel width for columns of standard deviation 1 (1986, equation 4.14).

    >>> round(rule_of_thumb(50, 1), 3)
    0.484
    """
    return float((4 / (width + 2)) ** (1 / (width + 4)) * count ** (-1 / (width + 4)))
