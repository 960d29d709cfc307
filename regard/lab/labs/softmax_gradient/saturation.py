"""Measure the saturation of softmax on random queries and keys, in independent blocks.

A block is `ROWS` queries against one set of keys, all normal; its rows share the keys, and blocks
share nothing. Every mean is one over blocks, with a t interval from their spread.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from regard.analysis.maps import entropy
from regard.attention import SCORES, Score, attend
from regard.attention.scores.basic import Additive, Gaussian
from regard.lab.labs.softmax_gradient.gaussian import Theory

ROWS, FEW = 64, 16  # queries of a block; of one whose score has a hidden layer for each pair
HELD = 2**21  # numbers drawn at once
DRAWN = 2**22  # numbers drawn at one width, and at least `LEAST` blocks
LEAST = 16
HIDDEN = 2**23  # numbers of hidden layers at one width, and at least `LEAST` blocks
UNITS = 512  # most hidden units: the variance does not depend on them
DEAD = 1e-3  # a row with a smaller Jacobian passes almost no gradient
VALUES = 8
GOAL, MOST = 0.5, 4_000  # a head has turned when the right key has half; steps that it may take


@dataclass(frozen=True)
class Mean:
    """A mean, its standard error, and the ends of its 95 % interval."""

    value: float
    error: float
    low: float
    high: float

    @classmethod
    def of(cls, blocks: Tensor) -> "Mean":
        """Return the mean and interval of independent equal blocks, by Student's t."""
        value, error = float(blocks.mean()), float(blocks.std() / math.sqrt(len(blocks)))
        reach = float(stats.t.ppf(0.975, len(blocks) - 1)) * error
        return cls(value, error, value - reach, value + reach)


@dataclass(frozen=True)
class Seen:
    """One score at one width.

    `variance`: of the scores of one query over the keys; `entropy` in nats; `largest` weight;
    `jacobian`: ‖diag(w) − wwᵀ‖², `dead`: share of rows where its root is under 1e-3; `gradient`:
    ‖∂loss/∂q‖² when the loss is linear in the output, with a slope of variance 1 in each weight;
    `label`: ‖w − e_y‖², the gradient of −ln w_y for a label y independent of the scores.
    The last two are medians over rows of the roots.
    """

    variance: Mean
    entropy: Mean
    largest: Mean
    jacobian: Mean
    dead: Mean
    gradient: Mean
    label: Mean
    jacobian_median: float
    gradient_median: float


@dataclass(frozen=True)
class Found:
    """The measurements over d with `keys` keys, and the theory.

    `width`, `blocks` and `seed` are for the other draws.
    """

    widths: Sequence[int]
    products: Mapping[int, Mean]
    seen: Mapping[tuple[str, int], Seen]
    theory: Theory
    keys: int
    width: int
    blocks: int
    seed: int

    def many(self, name: str, what: str) -> tuple[list[int], list[Mean]]:
        """Return the widths at which a quantity of a score was measured, and its means."""
        at = [width for width in self.widths if (name, width) in self.seen]
        return at, [getattr(self.seen[name, width], what) for width in at]


def made(name: str, width: int) -> Score:
    """Return a newly initialised score in float64.

    `gaussian` with w = 1 whatever the width; `additive` with 512 hidden units at most.
    """
    if name == "gaussian":
        return Gaussian(inverse_width=1.0).double()
    if name == "additive":
        return Additive(width, width, hidden=min(width, UNITS)).double()
    return SCORES[name](width, width).double()


def product_variance(width: int, keys: int, seed: int) -> Mean:
    """Return the variance of q·k."""
    count = min(1024, max(2 * LEAST, 2 * DRAWN // ((ROWS + keys) * width)))
    variances = [(q @ k.mT).flatten(1).var(1) for q, k in draw(width, keys, count, seed)]
    return Mean.of(torch.cat(variances))


def see(name: str, width: int, keys: int, blocks: int, seed: int) -> Seen:
    """Measure one score at one width.

    A score with parameters is initialised again for each block, as a network is for each run.
    """
    fresh = name == "additive"
    if fresh:
        blocks = min(blocks, max(LEAST, HIDDEN // (FEW * keys * min(width, UNITS))))
    else:
        blocks = min(blocks, max(LEAST, DRAWN // ((ROWS + keys) * width)))
    samples: list[list[Tensor]] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        score = made(name, width)
        for q, k in draw(width, keys, blocks, seed, **({"rows": FEW, "held": 1} if fresh else {})):
            samples.append(one(made(name, width) if fresh else score, q, k))
    return summed(samples)


def summed(found: Sequence[Sequence[Tensor]]) -> Seen:
    """Return the means over blocks of the values of `one`."""
    columns = [torch.cat(parts) for parts in zip(*found, strict=True)]
    variance, spread, top, jacobian, gradient, label = columns
    dead = (jacobian < DEAD**2).double()
    return Seen(
        variance=Mean.of(variance.mean(1)),
        entropy=Mean.of(spread.mean(1)),
        largest=Mean.of(top.mean(1)),
        jacobian=Mean.of(jacobian.mean(1)),
        dead=Mean.of(dead.mean(1)),
        gradient=Mean.of(gradient.mean(1)),
        label=Mean.of(label.mean(1)),
        jacobian_median=float(jacobian.median()) ** 0.5,
        gradient_median=float(gradient.median()) ** 0.5,
    )


def one(score: Score, q: Tensor, k: Tensor) -> list[Tensor]:
    """Return each row's score variance, entropy, largest weight and squared gradients."""
    q = q.requires_grad_()
    v = torch.randn(*k.shape[:-1], VALUES, dtype=torch.float64)
    slope = torch.randn(*q.shape[:-1], VALUES, dtype=torch.float64) / math.sqrt(VALUES)
    attended = attend(q, k, v, score)
    (gradient,) = torch.autograd.grad((attended.output * slope).sum(), q)
    with torch.no_grad():
        weights = attended.weights.detach()
        where = (torch.arange(q.shape[-2]), torch.arange(k.shape[-2]))
        queries = score.prepare_queries(q.detach(), where[0])
        scores = score.compare(queries, score.prepare_keys(k, where[1]), where)
        label = weights.square().sum(-1) + 1 - 2 * weights[..., 0]
        return [
            scores.var(-1), entropy(weights), weights.amax(-1), jacobian_norm2(weights),
            gradient.square().sum(-1), label,
        ]  # fmt: skip


def jacobian_norm2(weights: Float[Tensor, "*batch keys"]) -> Float[Tensor, "*batch"]:
    """Return ‖diag(w) − wwᵀ‖² = Σ w_i²((1 − w_i)² + Σ_{j≠i} w_j²), without cancellation.

    1 − w of the largest weight is the sum of the others: at 1 − 1e-9 its subtraction would keep
    seven digits, and its square none.

    >>> float(jacobian_norm2(torch.tensor([0.5, 0.5])))
    0.25
    """
    top, at = weights.max(-1, keepdim=True)
    small = weights.scatter(-1, at, 0.0)
    squares = small.square()
    rest = squares.sum(-1, keepdim=True)
    own = top.square() * (small.sum(-1, keepdim=True).square() + rest)
    others = squares * ((1 - small).square() + top.square() + rest - squares)
    return own.squeeze(-1) + others.sum(-1)


def sorted_weights(
    width: int, keys: int, temperature: float, blocks: int, seed: int
) -> tuple[Float[Tensor, " keys"], Seen]:
    """Return the mean weights of softmax(q·k / temperature), largest first, and the rest."""
    total, found = torch.zeros(keys, dtype=torch.float64), []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for q, k in draw(width, keys, blocks, seed):
            weights = attend(q / temperature, k, k, SCORES["dot"]()).weights
            total += weights.sort(-1, descending=True).values.mean(1).sum(0)
            found.append(one(SCORES["dot"](), q / temperature, k))
    return total / blocks, summed(found)


def draw(
    width: int, keys: int, blocks: int, seed: int, rows: int = ROWS, held: int = HELD
) -> Iterator[tuple[Float[Tensor, "b r d"], Float[Tensor, "b n d"]]]:
    """Yield normal queries and keys, some blocks at a time."""
    generator = torch.Generator().manual_seed(seed * 8209 + width)
    at_once, left = max(1, held // ((rows + keys) * width)), blocks
    while left:
        count = min(at_once, left)
        both = torch.randn(count, rows + keys, width, generator=generator, dtype=torch.float64)
        yield both[:, :rows].contiguous(), both[:, rows:].contiguous()
        left -= count


@dataclass(frozen=True)
class Slope:
    """A slope and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]".replace("-", "−")


def fit(x: Sequence[float], means: Sequence[Mean], *, logs: bool = False) -> Slope:
    """Return the slope of a line through means, each weighed by its standard error.

    `logs`: both in logarithms.

    >>> fit([1, 2, 3], [Mean(2 * x, 0.1, 0, 0) for x in (1, 2, 3)]).value
    2.0
    """
    at, y = np.array(x, dtype=float), np.array([mean.value for mean in means])
    error = np.array([mean.error for mean in means])
    if logs:
        at, y, error = np.log(at), np.log(y), error / y
    weight: NDArray[np.float64] = 1 / np.maximum(error, 1e-300) ** 2
    away = at - np.average(at, weights=weight)
    total = float((weight * away**2).sum())
    value = float((weight * away * y).sum()) / total
    reach = 1.96 / math.sqrt(total)
    return Slope(round(value, 12), value - reach, value + reach)


def steps_to_turn(
    gaps: Sequence[float], keys: int, loss: str, show: Callable[[float], None]
) -> list[float]:
    """Count the steps of gradient descent until a head moves from a wrong key to the right one.

    The wrong key leads by a gap; learning rate 1 on the scores. `loss`: "output" is
    ½‖c − v_right‖² with c the output of attention over orthonormal values; "log" is the
    cross-entropy −ln w_right. NaN where it takes over 4,000 steps.
    """
    start = torch.zeros(len(gaps), 1, keys, dtype=torch.float64)
    start[:, 0, 1] = torch.tensor(gaps, dtype=torch.float64)
    basis = torch.eye(keys, dtype=torch.float64)  # as keys: q·k_j = q_j, a query is its scores
    right = torch.zeros(len(gaps), dtype=torch.long)
    queries, found = start, [math.nan] * len(gaps)
    for step in range(MOST):
        queries = queries.detach().requires_grad_()
        if loss == "log":
            turned = queries.detach().softmax(-1)[:, 0, 0] >= GOAL
            value = F.cross_entropy(queries[:, 0], right, reduction="sum")
        else:
            output = attend(queries, basis, basis, SCORES["dot"]()).output
            turned = output.detach()[:, 0, 0] >= GOAL
            value = (output - basis[:1]).square().sum() / 2
        for i in turned.nonzero().flatten().tolist():
            found[i] = step if math.isnan(found[i]) else found[i]
        if bool(turned.all()):
            break
        (gradient,) = torch.autograd.grad(value, queries)
        queries = queries - gradient
        if step % 200 == 0:
            show(step / MOST)
    return found


def additive_variance() -> float:
    """Return the initial variance of an additive score over keys, for a wide hidden layer.

    ⅓ (E tanh²(a + b) − E tanh(a + b) tanh(a + b')) with a, b, b' ~ N(0, ⅓): a from the query, b
    from a key. w, W_q and W_k are uniform with variance 1/(3 · fan-in).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weights, nodes = weights / weights.sum(), nodes / math.sqrt(3)
    values = np.tanh(nodes[:, None] + nodes)  # (a, b)
    mean, square = values @ weights, values**2 @ weights
    return float(weights @ (square - mean**2)) / 3
