"""Attribution of an output to tokens, beside attention: how much each token added to it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.record import record
from regard.attention import Attended
from regard.errors import RegardError

STEPS = 32
FEWEST = 5  # tokens whose orders are compared
Forward = Callable[[int], Tensor]  # copies of the text → one output for each, (copies,)


class Gradients(NamedTuple):
    """Integrated gradients (n,), and the output for the text and for the baseline.

    The sum of ``values`` is about ``output`` − ``baseline`` (completeness).
    """

    values: NDArray[np.float64]
    output: float
    baseline: float


def integrated_gradients(forward: Forward, embedding: nn.Module, steps: int = STEPS) -> Gradients:
    """Return Σ_d x_d ∫₀¹ ∂f(αx) / ∂x_d dα for the embedding x of each token.

    Sundararajan, Taly and Yan 2017, with zero vectors as the baseline, by the Gauss-Legendre rule
    in t, α = t³, with ``steps`` points in one batch. ``forward(copies)`` runs the model on so many
    copies of one text and returns the output to explain for each. Errors: ``steps`` below 1.

    >>> table = nn.Embedding.from_pretrained(torch.tensor([[2.0], [3.0]]))
    >>> tokens = torch.tensor([0, 1])
    >>> found = integrated_gradients(lambda n: table(tokens.expand(n, 2)).prod(1)[:, 0], table, 4)
    >>> found.values.round(4).tolist(), found.output
    ([3.0, 3.0], 6.0)
    """
    if steps < 1:
        raise RegardError(f"integrated gradients need at least 1 step, not {steps}")
    points, weights = np.polynomial.legendre.leggauss(steps)
    # The ends of the path, whose outputs completeness compares, come in the same batch.
    # With α = t³, points are dense near 0, where a norm of the scaled vectors changes fastest.
    t = (points + 1) / 2
    along = torch.tensor([*t**3, 1.0, 0.0], dtype=torch.float32)
    kept: list[Tensor] = []

    def scale(layer: nn.Module, inputs: object, vectors: Tensor) -> Tensor:
        if kept:
            raise RegardError("this model embeds its text twice, so its path is not defined")
        whole = vectors.detach()
        kept.extend([whole[:1], (whole * along.to(whole)[:, None, None]).requires_grad_()])
        return kept[1]

    hook = embedding.register_forward_hook(scale)
    try:
        with torch.enable_grad():
            outputs = forward(steps + 2)
            (slopes,) = torch.autograd.grad(outputs[:steps].sum(), kept[1])
    finally:
        hook.remove()
    outputs = outputs.detach()
    share = torch.tensor(weights / 2 * 3 * t**2).to(slopes.device)
    mean = (slopes[:steps].double() * share[:, None, None]).sum(0)
    values = (mean * kept[0][0].double()).sum(-1)
    return Gradients(values.cpu().numpy(), float(outputs[steps]), float(outputs[steps + 1]))


def attention_gradients(
    model: nn.Module, forward: Forward, embedding: nn.Module
) -> list[tuple[str, NDArray[np.float64]]]:
    """Return Σ_heads Σ_i A_ij ∂f / ∂A_ij of each key j, for every recorded layer, by name.

    Attention × gradient (Barkan et al. 2021), for the first text of ``forward(1)``. With
    o_i = Σ_j A_ij v_j, the gradient is ∂f / ∂o_i · v_j, so that no path but that of training is
    needed. It is positive where the attention to a token raised the output.
    """

    def track(layer: nn.Module, inputs: object, vectors: Tensor) -> Tensor:
        return vectors.detach().requires_grad_()

    hook = embedding.register_forward_hook(track)
    try:
        with torch.enable_grad(), _values(model) as values, record(model) as recording:
            output = forward(1).sum()
            layers = [(name, each) for name, each in recording.layers]
            outputs = [each.output for _, each in layers if isinstance(each, Attended)]
            if len(outputs) < len(layers):
                raise RegardError("this text is too long for attention × gradient; shorten it")
            slopes = torch.autograd.grad(output, outputs, allow_unused=True)
    finally:
        hook.remove()
    rows = []
    for (name, attended), value, slope in zip(layers, values, slopes, strict=True):
        weights = attended.weights.detach()
        if slope is None:
            rows.append((name, np.zeros(weights.shape[-1])))
            continue
        value = value.detach()
        if value.ndim > 2 and value.shape[-3] not in (1, slope.shape[-3]):  # shared by heads
            value = value.repeat_interleave(slope.shape[-3] // value.shape[-3], -3)
        product = weights * (slope @ value.transpose(-2, -1))
        rows.append((name, product.reshape(-1, weights.shape[-1]).sum(0).double().cpu().numpy()))
    return rows


class Attributed(NamedTuple):
    """Integrated gradients of a text's tokens, and attention × gradient by layer (layers, n)."""

    tokens: list[str]
    gradients: Gradients
    layers: list[tuple[str, NDArray[np.float64]]]

    def json(self) -> dict[str, Any]:
        """Return it as plain values, with the agreement of both and what that means."""
        total = sum((values for _, values in self.layers), np.zeros(len(self.tokens)))
        own = self.gradients.values.tolist()
        rho = agreement(own, total.tolist()) if self.layers else None
        says = in_words(rho) if self.layers else "This model has no attention over its tokens."
        return {
            "tokens": self.tokens,
            "integrated_gradients": own,
            "output": self.gradients.output,
            "baseline": self.gradients.baseline,
            "attention_gradients": total.tolist() if self.layers else None,
            "spearman": rho,
            "says": says,
        }


def attributed(
    model: nn.Module, forward: Forward, embedding: nn.Module, tokens: list[str]
) -> Attributed:
    """Return both attributions of one text; a CLS that a layer reads first is left out."""
    gradients = integrated_gradients(forward, embedding)
    rows = attention_gradients(model, forward, embedding)
    extra = [(name, row[len(row) - len(tokens) :]) for name, row in rows if len(row) >= len(tokens)]
    return Attributed(tokens, gradients, extra)


@contextmanager
def _values(model: nn.Module) -> Iterator[list[Tensor]]:
    """Keep, in this context, the values that each recorded layer reads, in call order."""
    from regard.attention import Attention

    values: list[Tensor] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, inputs: values.append(inputs[2]))
        for layer in model.modules()
        if isinstance(layer, Attention) and layer.compress is None
    ]
    try:
        yield values
    finally:
        for handle in handles:
            handle.remove()


def agreement(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None below 5 tokens or where all values are equal.

    Among 4 tokens or fewer, even equal orders happen by chance more than once in 20.

    >>> agreement([1, 2, 3, 4, 5], [2, 4, 9, 10, 11]), agreement([1, 2, 3], [1, 2, 3])
    (1.0, None)
    """
    from scipy.stats import spearmanr  # takes long to import

    if len(first) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return round(float(spearmanr(first, second).statistic), 6)


def in_words(correlation: float | None) -> str:
    """Return what an agreement means, as a sentence.

    >>> in_words(0.9)
    'Both rank the words much alike.'
    """
    if correlation is None:
        return (
            f"Their agreement is not defined: fewer than {FEWEST} words, or all of them weigh the "
            "same."
        )
    if correlation >= 0.7:
        return "Both rank the words much alike."
    if correlation >= 0.3:
        return "They agree in part: read attention as a hint, not as the reason for the answer."
    if correlation > -0.3:
        return "They hardly agree: attention does not show which words moved the answer."
    return (
        "They rank the words in nearly opposite orders: attention is no guide to the answer here."
    )
