"""Attribution: how much each token adds to one number of a model's answer.

A task declares the numbers of its answers (`Explainable`); the rest is the same for every task.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.analysis.alignment import is_across
from regard.analysis.record import record
from regard.attention import Attended, Attention
from regard.core.errors import RegardError

STEPS = (32, 96, 288)  # tried in order until the sum satisfies completeness
CLOSE = 0.002  # largest error of the sum, as a share of the sum of absolute values
ROUNDING = 5e-5  # an error that float32 may leave
DENSE = 8  # α = t⁸
AT_ONCE = 4096  # maximum tokens of the copies of a text in one batch
FEWEST = 5  # tokens whose orders are compared
Forward = Callable[[int], Tensor]  # copies of the text → the number for each, (copies,)


class Scalar(NamedTuple):
    """A number that a model computes from a text, such as the log-probability of a tag.

    ``name`` identifies the number, ``unit`` is its unit. ``forward(copies)`` runs the model on that
    many copies of the text and returns the number for each. ``texts`` has the tokens of each text
    that the model reads: one text, or a source and the words generated so far. Each is embedded by
    one call of one of ``embeddings``, in this order.
    """

    name: str
    forward: Forward
    embeddings: Sequence[nn.Module]
    texts: Sequence[Sequence[str]]
    unit: str = "ln p"

    @property
    def tokens(self) -> list[str]:
        """Return the tokens of all texts."""
        return [token for text in self.texts for token in text]


class Explainable(NamedTuple):
    """The numbers of an answer that can be attributed, and the index of the default one."""

    scalars: list[Scalar]
    default: int = 0

    def choose(self, choice: int | None) -> tuple[int, Scalar]:
        """Return a number and its index, from 0. Raises: no such index."""
        index = self.default if choice is None else choice
        if not 0 <= index < len(self.scalars):
            raise RegardError(
                f"choice {index}: this answer has choices 0 to {len(self.scalars) - 1}"
            )
        return index, self.scalars[index]


class Gradients(NamedTuple):
    """Integrated gradients (n,), and the number for the text and for the baseline.

    The sum of ``values`` approaches ``output`` − ``baseline`` (completeness) with more ``steps``.
    """

    values: NDArray[np.float64]
    output: float
    baseline: float
    steps: int

    @property
    def close(self) -> bool:
        """Return whether the error of the sum is within `CLOSE` and `ROUNDING`."""
        missing = abs(self.values.sum() - (self.output - self.baseline))
        return bool(missing <= max(CLOSE * np.abs(self.values).sum(), ROUNDING))


def integrated_gradients(scalar: Scalar, steps: int) -> Gradients:
    """Return Σ_d x_d ∫₀¹ ∂f(αx) / ∂x_d dα for the embedding x of each token of all texts.

    Sundararajan, Taly and Yan 2017, with zero vectors as the baseline, by the Gauss-Legendre rule
    in t, α = t⁸, with ``steps`` points. Raises: ``steps`` below 1; a model that embeds other tokens
    than ``scalar.texts``.

    >>> table = nn.Embedding.from_pretrained(torch.tensor([[2.0], [3.0]]))
    >>> tokens = torch.tensor([0, 1])
    >>> def product(copies):
    ...     return table(tokens.expand(copies, 2)).prod(1)[:, 0]
    >>> found = integrated_gradients(Scalar("a · b", product, [table], [["a", "b"]]), 8)
    >>> found.values.round(4).tolist(), found.output
    ([3.0, 3.0], 6.0)
    """
    if steps < 1:
        raise RegardError(f"integrated gradients need at least 1 step, not {steps}")
    points, weights = np.polynomial.legendre.leggauss(steps)
    # Points are dense near α = 0: where a norm follows each sublayer of a network without biases,
    # its output changes at α of about √ε, ε, ε√ε, … for the ε of the norm.
    t = (points + 1) / 2
    # The ends of the path, whose outputs completeness compares, come first.
    along = torch.tensor([1.0, 0.0, *t**DENSE], dtype=torch.float32)
    shares = torch.tensor([0.0, 0.0, *(weights / 2 * DENSE * t ** (DENSE - 1))])
    size = max(1, AT_ONCE // max(len(scalar.tokens), 1))
    ends, mean = list[float](), torch.zeros(len(scalar.tokens), dtype=torch.float64)
    for alphas, share in zip(along.split(size), shares.split(size), strict=True):
        with torch.enable_grad(), _embedded(scalar, alphas) as (whole, path):
            outputs = scalar.forward(len(alphas))
            inside = share > 0  # at α = 0, a norm may have no slope
            _must_match(scalar, path)
            if inside.any():
                slopes = torch.autograd.grad(
                    outputs[inside.to(outputs.device)].sum(), path, allow_unused=True
                )
                mean += torch.cat(
                    [
                        torch.zeros(vectors.shape[1], dtype=torch.float64)
                        if slope is None
                        else _summed(slope, vectors, share)
                        for slope, vectors in zip(slopes, whole, strict=True)
                    ]
                )
        ends += outputs.detach().tolist()
    return Gradients(mean.numpy(), ends[0], ends[1], steps)


def close_gradients(scalar: Scalar) -> Gradients:
    """Return integrated gradients with the fewest of `STEPS` that are close, or else the last."""
    for steps in STEPS:
        gradients = integrated_gradients(scalar, steps)
        if gradients.close:
            break
    return gradients


def _summed(slope: Tensor, vectors: Tensor, share: Tensor) -> Tensor:
    """Return Σ_copies share · Σ_d x_d · slope_d for each token, over copies with a share."""
    products = (slope.double() * vectors.double()).sum(-1).cpu()
    return products.masked_fill(share[:, None] == 0, 0).mul(share[:, None]).sum(0)


@contextmanager
def _embedded(scalar: Scalar, alphas: Tensor) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
    """Scale, in this context, the embeddings of each text by α, one for each copy.

    Yields, for each call of an embedding, the vectors (1, n, width) and the leaves α · vectors.
    """
    whole: list[Tensor] = []
    path: list[Tensor] = []

    def scale(layer: nn.Module, inputs: object, vectors: Tensor) -> Tensor:
        own = vectors.detach()
        whole.append(own[:1])
        path.append((own * alphas.to(own)[:, None, None]).requires_grad_())
        return path[-1]

    tables = {id(table): table for table in scalar.embeddings}  # source and target may share one
    with ExitStack() as stack:
        for table in tables.values():
            stack.enter_context(table.register_forward_hook(scale))
        yield whole, path


def _must_match(scalar: Scalar, path: Sequence[Tensor]) -> None:
    """Raise an error if the model embedded other tokens than the scalar's."""
    sizes, named = [vectors.shape[1] for vectors in path], [len(text) for text in scalar.texts]
    if sizes != named:
        raise RegardError(
            f"this model embeds {sizes or 'no'} tokens where the text has {named}, so attribution "
            "cannot name them"
        )


def attention_gradients(model: nn.Module, scalar: Scalar) -> list[tuple[str, NDArray[np.float64]]]:
    """Return Σ_heads Σ_i A_ij ∂f / ∂A_ij of each key j, for every call of a recorded layer.

    Attention × gradient (Barkan et al. 2021), for one copy of the text. With o_i = Σ_j A_ij v_j,
    the gradient is ∂f / ∂o_i · v_j, so the usual backward pass suffices. It is positive where
    attention to a token raised the number. Raises: a text that is too long.
    """
    one = torch.ones(1)
    with torch.enable_grad(), _embedded(scalar, one), _values(model) as values:
        with record(model) as recording:
            output = scalar.forward(1).sum()
        layers = recording.layers if values else []  # those of regard
        outputs = [each.output for _, each in layers if isinstance(each, Attended)]
        if len(outputs) < len(layers):
            raise RegardError("this text is too long for attention × gradient; shorten it")
        if not outputs:
            return []
        slopes = torch.autograd.grad(output, outputs, allow_unused=True)
    rows = []
    for (name, attended), value, slope in zip(layers, values, slopes, strict=True):
        assert isinstance(attended, Attended)
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
    """Integrated gradients of a text's tokens, and attention × gradient by layer (layers, n).

    ``choices`` names all numbers of the answer, ``choice`` is the index of the explained one, and
    ``sizes`` has the number of tokens of each text that the model reads.
    """

    tokens: list[str]
    sizes: list[int]
    gradients: Gradients
    layers: list[tuple[str, NDArray[np.float64]]]
    choice: int
    choices: list[str]
    unit: str

    def json(self) -> dict[str, Any]:
        """Return plain values, with the agreement of both attributions and its meaning."""
        total = sum((values for _, values in self.layers), np.zeros(len(self.tokens)))
        own = self.gradients.values.tolist()
        rho = agreement(own, total.tolist()) if self.layers else None
        says = in_words(rho) if self.layers else "This model has no attention over its tokens."
        return {
            "tokens": self.tokens,
            "sizes": self.sizes,
            "choice": self.choice,
            "choices": self.choices,
            "unit": self.unit,
            "integrated_gradients": own,
            "output": self.gradients.output,
            "baseline": self.gradients.baseline,
            "steps": self.gradients.steps,
            "attention_gradients": total.tolist() if self.layers else None,
            "spearman": rho,
            "says": says,
        }


def attributed(model: nn.Module, explainable: Explainable, choice: int | None = None) -> Attributed:
    """Return both attributions of one of the numbers. Raises: no such choice."""
    index, scalar = explainable.choose(choice)
    gradients, rows = close_gradients(scalar), list[tuple[str, NDArray[np.float64]]]()
    for name, row in attention_gradients(model, scalar):
        side = int(len(scalar.texts) > 1 and name.startswith("decoder") and not is_across(name))
        size, before = len(scalar.texts[side]), sum(map(len, scalar.texts[:side]))
        if len(row) >= size:  # otherwise its keys are not tokens
            placed = np.zeros(len(scalar.tokens))
            # A CLS that no table embeds is read first and left out.
            placed[before : before + size] = row[len(row) - size :]
            rows.append((name, placed))
    names = [each.name for each in explainable.scalars]
    sizes = [len(text) for text in scalar.texts]
    return Attributed(scalar.tokens, sizes, gradients, rows, index, names, scalar.unit)


@contextmanager
def _values(model: nn.Module) -> Iterator[list[Tensor]]:
    """Keep, in this context, the values that each recorded layer reads, in call order."""
    values: list[Tensor] = []
    latest: dict[nn.Module, Tensor] = {}

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if inputs[2].shape[-2] or layer not in latest:  # a fixed cache is filled by the first call
            latest[layer] = inputs[2]
        values.append(latest[layer])

    with ExitStack() as stack:
        for layer in model.modules():
            if isinstance(layer, Attention) and layer.compress is None:
                stack.enter_context(layer.register_forward_pre_hook(keep))
        yield values


def apart(tokens: Sequence[str]) -> list[str]:
    """Return tokens; repeated tokens get their position, from 1.

    >>> apart(["the", "plot", "of", "the"])
    ['the (1)', 'plot', 'of', 'the (4)']
    """
    times = Counter(tokens)
    return [
        f"{token} ({place})" if times[token] > 1 else token for place, token in enumerate(tokens, 1)
    ]


def agreement(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than 5 tokens or equal values.

    Among 4 tokens or fewer, even equal orders happen by chance more than once in 20.

    >>> agreement([1, 2, 3, 4, 5], [2, 4, 9, 10, 11]), agreement([1, 2, 3], [1, 2, 3])
    (1.0, None)
    """
    if len(first) < FEWEST or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    return round(float(np.corrcoef(_ranks(first), _ranks(second))[0, 1]), 6)


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Return the rank of each value; equal values share the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])


def in_words(correlation: float | None) -> str:
    """Describe an agreement in a sentence.

    >>> in_words(0.9)
    'Both rank the words similarly.'
    """
    if correlation is None:
        return (
            f"Their agreement is not defined: fewer than {FEWEST} words, or all of them have "
            "equal weights."
        )
    if correlation >= 0.7:
        return "Both rank the words similarly."
    if correlation >= 0.3:
        return "They agree in part: read attention as a hint, not as the reason for the answer."
    if correlation > -0.3:
        return "They hardly agree: attention does not show which words moved the answer."
    return "They rank the words in nearly opposite orders: attention does not explain this answer."
