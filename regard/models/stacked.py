"""Many small networks of one shape, trained at once: each is one slice of every parameter.

Heads do not mix inside attention, so a score made for ``heads=S`` is the scores of S networks.
Their other layers are batched matrix products. One pass costs a CPU far less than S passes, whose
matrices are too small to keep it busy.
"""

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, Mask, Normalizer, make_score, sinusoidal
from regard.errors import RegardError

Module = TypeVar("Module", bound=nn.Module)
Reads = Literal["each", "last", "mean"]


class StackedEncoder(nn.Module):
    """One layer of attention with one head, for each of ``len(seeds)`` networks.

    x_i = E[s_i] + B[s_{i−1}] + c p_i    the symbol, the one before it, sinusoidal positions
    x ← x + W_o Attention(W_q x, W_k x, W_v x)
    x ← x + W₂ ReLU(W₁ LN x + b₁) + b₂
    logits = W LN x + b

    LN has no parameters; c is ``sines``. ``reads``: "each" position answers; the "last" alone asks
    and answers; or the "mean" over positions does. The first numbers of a network depend on its
    seed alone: not on how many networks stand beside it, and outside the score and the normaliser
    not on those.

    Errors: a score or a normaliser that has parameters which are not one set a head.

    >>> net = StackedEncoder([0, 1, 2], symbols=9, answers=4, length=6, width=8, reads="last")
    >>> net(torch.zeros(3, 5, 6, dtype=torch.long)).shape
    torch.Size([3, 5, 1, 4])
    """

    def __init__(
        self,
        seeds: Sequence[int],
        *,
        symbols: int,
        answers: int,
        length: int,
        width: int,
        score: str = "scaled-dot",
        normalize: Callable[[int], Normalizer] | None = None,
        reads: Reads = "each",
        sines: float = 1.0,
    ) -> None:
        super().__init__()
        self.networks, self.reads, self.sines = len(seeds), reads, sines
        inner, draws = 2 * width, [torch.Generator().manual_seed(seed) for seed in seeds]

        def weight(rows: int, columns: int, spread: float) -> nn.Parameter:
            drawn = [torch.randn(rows, columns, generator=draw) for draw in draws]
            return nn.Parameter(torch.stack(drawn) * spread)

        def zeros(columns: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(self.networks, 1, columns))

        unit = width**-0.5
        # Sines have variance 1/2; x is to have 1.
        spread = ((1 - sines**2 / 2) / 2) ** 0.5
        self.symbols, self.before = weight(symbols, width, spread), weight(symbols, width, spread)
        self.query, self.key = weight(width, width, unit), weight(width, width, unit)
        self.value, self.out = weight(width, width, unit), weight(width, width, unit)
        self.widen, self.widen_bias = weight(width, inner, unit), zeros(inner)
        self.narrow, self.narrow_bias = weight(inner, width, inner**-0.5), zeros(width)
        self.answer, self.answer_bias = weight(width, answers, unit), zeros(answers)
        made = stack(lambda heads: make_score(score, "none", width, width, heads=heads,
                                              length=length), seeds)  # fmt: skip
        self.attention = Attention(
            made, stack(normalize, seeds) if normalize else "softmax", heads=self.networks
        )

    def forward(
        self,
        tokens: Int[Tensor, "networks batch time"],
        lengths: Int[Tensor, "networks batch"] | None = None,
    ) -> Float[Tensor, "networks batch asked answers"]:
        """Logits; ``asked`` is time or 1, by ``reads``. What is beyond a length is not seen."""
        x = rows_of(self.symbols, tokens) + rows_of(self.before, F.pad(tokens, (1, -1)))
        x = x + self.sines * sinusoidal(torch.arange(x.shape[-2]), x.shape[-1])
        asked = x[..., -1:, :] if self.reads == "last" else x
        projected = ((asked, self.query), (x, self.key), (x, self.value))
        seen = self.attention(
            *(over_heads(times(rows, weight)) for rows, weight in projected),
            None if lengths is None else within(lengths),
        ).output
        x = asked + times(over_heads(seen), self.out)
        inner = F.relu(times(norm(x), self.widen, self.widen_bias))
        x = norm(x + times(inner, self.narrow, self.narrow_bias))
        if self.reads == "mean":
            x = mean_within(x, lengths)
        return times(x, self.answer, self.answer_bias)

    @property
    def numbers(self) -> int:
        """Parameters of one network."""
        return sum(parameter[0].numel() for parameter in self.parameters())


def stack(make: Callable[[int], Module], seeds: Sequence[int]) -> Module:
    """What ``make(heads)`` makes for as many heads as seeds, head i with seed i's first numbers.

    Errors: parameters that are not one set a head.
    """
    together = make(len(seeds))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for head, seed in enumerate(seeds):
            torch.manual_seed(seed)
            alone = dict(make(1).named_parameters())
            for name, parameter in together.named_parameters():
                if alone[name].shape[:1] != (1,) or parameter.shape[:1] != (len(seeds),):
                    raise RegardError(
                        f"{type(together).__name__}.{name} is shared by its heads: networks cannot "
                        "be stacked as heads"
                    )
                parameter[head] = alone[name][0]
    return together


def rows_of(
    table: Float[Tensor, "networks symbols width"], tokens: Int[Tensor, " networks *rows"]
) -> Float[Tensor, "networks *rows width"]:
    """Each network's own vectors of its symbols."""
    networks, symbols, _ = table.shape
    first = torch.arange(networks, device=tokens.device) * symbols
    shifted = tokens + first.view(-1, *[1] * (tokens.ndim - 1))
    return F.embedding(shifted, table.flatten(0, 1))


def times(
    x: Float[Tensor, "networks batch time width"],
    weight: Float[Tensor, "networks width new"],
    bias: Float[Tensor, "networks 1 new"] | None = None,
) -> Float[Tensor, "networks batch time new"]:
    """x W + b, each network by its own W and b."""
    flat = x.flatten(1, 2)
    made = flat @ weight if bias is None else torch.baddbmm(bias, flat, weight)
    return made.view(*x.shape[:3], -1)


def norm(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """LayerNorm without parameters."""
    return F.layer_norm(x, x.shape[-1:])


def over_heads(x: Float[Tensor, "a b time width"]) -> Float[Tensor, "b a time width"]:
    """Networks where heads stand, at axis −3, and back."""
    return x.transpose(0, 1)


def within(lengths: Int[Tensor, "networks batch"]) -> Mask:
    """Keys before each text's end; every network has texts of its own."""
    ends = lengths.T[..., None, None]
    return Mask(lambda rows, columns: columns < ends, kind="keys", over_heads=True)


def mean_within(
    x: Float[Tensor, "networks batch time width"], lengths: Int[Tensor, "networks batch"] | None
) -> Float[Tensor, "networks batch 1 width"]:
    """The mean over the positions of each text."""
    if lengths is None:
        return x.mean(-2, keepdim=True)
    inside = torch.arange(x.shape[-2], device=x.device) < lengths[..., None]
    share = inside.to(x.dtype) / lengths[..., None]
    return share.unsqueeze(-2) @ x
