"""Many small networks of one shape, trained together: each is a slice of every parameter.

Heads are independent inside attention, so a score with ``heads=S`` computes the scores of S
networks. Their other layers are batched matrix products. On a CPU one such pass is much faster than
S passes with small matrices.
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
    """One attention layer with one head, for each of ``len(seeds)`` networks.

    x_i = E[s_i] + B[s_{i−1}] + c p_i    symbol, previous symbol, sinusoidal position
    x ← x + W_o Attention(W_q x, W_k x, W_v x)
    x ← x + W₂ ReLU(W₁ LN x + b₁) + b₂
    logits = W LN x + b

    LN has no parameters; c is ``sines``. ``reads``: logits for "each" position, for the "last"
    (the only query), or for the "mean" over positions. The initial values of a network depend on
    its seed, not on the number of networks; those outside the score and the normaliser do not
    depend on these either.

    Errors: a score or a normaliser with parameters that are shared by the heads.

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

        def weight(rows: int, columns: int, std: float) -> nn.Parameter:
            drawn = [torch.randn(rows, columns, generator=draw) for draw in draws]
            return nn.Parameter(torch.stack(drawn) * std)

        def zeros(columns: int) -> nn.Parameter:
            return nn.Parameter(torch.zeros(self.networks, 1, columns))

        unit = width**-0.5
        # Sines have variance 1/2; x must have variance 1.
        std = ((1 - sines**2 / 2) / 2) ** 0.5
        self.symbols, self.before = weight(symbols, width, std), weight(symbols, width, std)
        self.query, self.key = weight(width, width, unit), weight(width, width, unit)
        self.value, self.out = weight(width, width, unit), weight(width, width, unit)
        self.widen, self.widen_bias = weight(width, inner, unit), zeros(inner)
        self.narrow, self.narrow_bias = weight(inner, width, inner**-0.5), zeros(width)
        self.answer, self.answer_bias = weight(width, answers, unit), zeros(answers)
        scores = stack(lambda heads: make_score(score, "none", width, width, heads=heads,
                                              length=length), seeds)  # fmt: skip
        self.attention = Attention(
            scores, stack(normalize, seeds) if normalize else "softmax", heads=self.networks
        )

    def forward(
        self,
        tokens: Int[Tensor, "networks batch time"],
        lengths: Int[Tensor, "networks batch"] | None = None,
    ) -> Float[Tensor, "networks batch outputs answers"]:
        """Return logits; ``outputs`` is time or 1, by ``reads``. Padding is masked."""
        x = rows_of(self.symbols, tokens) + rows_of(self.before, F.pad(tokens, (1, -1)))
        x = x + self.sines * sinusoidal(torch.arange(x.shape[-2]), x.shape[-1])
        queries = x[..., -1:, :] if self.reads == "last" else x
        projected = ((queries, self.query), (x, self.key), (x, self.value))
        attended = self.attention(
            *(over_heads(times(rows, weight)) for rows, weight in projected),
            None if lengths is None else within(lengths),
        ).output
        x = queries + times(over_heads(attended), self.out)
        inner = F.relu(times(norm(x), self.widen, self.widen_bias))
        x = norm(x + times(inner, self.narrow, self.narrow_bias))
        if self.reads == "mean":
            x = mean_within(x, lengths)
        return times(x, self.answer, self.answer_bias)

    @property
    def numbers(self) -> int:
        """Return the number of parameters of one network."""
        return sum(parameter[0].numel() for parameter in self.parameters())


def stack(make: Callable[[int], Module], seeds: Sequence[int]) -> Module:
    """Return ``make(len(seeds))``; head i has the initial values of ``make(1)`` with seed i.

    Errors: parameters that are shared by the heads.
    """
    together = make(len(seeds))
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for head, seed in enumerate(seeds):
            torch.manual_seed(seed)
            alone = dict(make(1).named_parameters())
            for name, parameter in together.named_parameters():
                if alone[name].shape[:1] != (1,) or parameter.shape[:1] != (len(seeds),):
                    raise RegardError(
                        f"{type(together).__name__}.{name} is shared by its heads, so networks "
                        "cannot be stacked; choose a part with parameters for each head"
                    )
                parameter[head] = alone[name][0]
    return together


def rows_of(
    table: Float[Tensor, "networks symbols width"], tokens: Int[Tensor, " networks *rows"]
) -> Float[Tensor, "networks *rows width"]:
    """Return the vectors of the tokens, from each network's own table."""
    networks, symbols, _ = table.shape
    first = torch.arange(networks, device=tokens.device) * symbols
    shifted = tokens + first.view(-1, *[1] * (tokens.ndim - 1))
    return F.embedding(shifted, table.flatten(0, 1))


def times(
    x: Float[Tensor, "networks batch time width"],
    weight: Float[Tensor, "networks width new"],
    bias: Float[Tensor, "networks 1 new"] | None = None,
) -> Float[Tensor, "networks batch time new"]:
    """Return x W + b with W and b of each network."""
    flat = x.flatten(1, 2)
    product = flat @ weight if bias is None else torch.baddbmm(bias, flat, weight)
    return product.view(*x.shape[:3], -1)


def norm(x: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
    """Apply LayerNorm without parameters."""
    return F.layer_norm(x, x.shape[-1:])


def over_heads(x: Float[Tensor, "a b time width"]) -> Float[Tensor, "b a time width"]:
    """Move the networks to the axis of heads, −3, or back."""
    return x.transpose(0, 1)


def within(lengths: Int[Tensor, "networks batch"]) -> Mask:
    """Return a mask of the keys before each text's end; every network has its own texts."""
    ends = lengths.T[..., None, None]
    return Mask(lambda rows, columns: columns < ends, kind="keys", over_heads=True)


def mean_within(
    x: Float[Tensor, "networks batch time width"], lengths: Int[Tensor, "networks batch"] | None
) -> Float[Tensor, "networks batch 1 width"]:
    """Return the mean over the positions of each text."""
    if lengths is None:
        return x.mean(-2, keepdim=True)
    inside = torch.arange(x.shape[-2], device=x.device) < lengths[..., None]
    share = inside.to(x.dtype) / lengths[..., None]
    return share.unsqueeze(-2) @ x
