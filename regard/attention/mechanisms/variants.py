"""Mechanisms that are multi-head attention with one change: an output gate, two maps per head."""

import torch
from torch import Tensor, nn

from regard.attention.head_spec import HeadSpec
from regard.attention.layer import Attention
from regard.attention.mechanisms.multihead import Inputs, MultiHeadAttention
from regard.core.errors import RegardError


class GatedAttention(MultiHeadAttention):
    """(σ(W_g q) ⊙ concat(head_1 … head_h)) W_O, with the heads of `MultiHeadAttention`.

    Qiu et al. 2025, the gate behind the attention that they found best: one number per query and
    column; the same as multi-head+gate. Arguments, shapes and errors are those of
    `MultiHeadAttention`.

    >>> GatedAttention(8, 2)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "gated"

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        self.add_stage("gate", spec, "gate")


class DifferentialAttention(MultiHeadAttention):
    """head_i = (1 − λ₀) norm((A₁ − λ A₂) v): the difference of two attention maps per head.

    A₁ and A₂ compare the first and the second halves of the head's queries and keys, and λ =
    exp(a₁·b₁) − exp(a₂·b₂) + λ₀ is learned, with λ₀ = 0.8 and a, b (head_width / 2,) shared by the
    heads; norm divides a head's output by the root of its mean square and multiplies by learned
    gains. Ye et al. 2024, equations 1 to 3; there λ₀ grows with depth. Queries (*batch, n, width)
    and a memory (*batch, m, key_width) give (*batch, n, width). Recordings show both maps, all
    A₁ before all A₂. Raise a RegardError for an odd head width or a Score that is built already.

    >>> layer = DifferentialAttention(8, 2)
    >>> layer(torch.zeros(3, 5, 8)).shape, layer.attention.heads
    (torch.Size([3, 5, 8]), 4)
    """

    name = "differential"
    start = 0.8
    attention_last = True

    def build(self, spec: HeadSpec) -> None:
        if self.head_width % 2:
            raise RegardError(
                f"differential attention halves its heads; head_width={self.head_width} is odd"
            )
        spec.must_name_score(self.name)
        super().build(spec)
        self.vectors = nn.Parameter(0.1 * torch.randn(4, self.head_width // 2))
        self.gain = nn.Parameter(torch.ones(self.head_width))

    def make_attention(self, spec: HeadSpec) -> Attention:
        return super().make_attention(spec.divided(2))

    @property
    def amount(self) -> Tensor:
        """Return λ."""
        first, second, third, fourth = self.vectors
        amount: Tensor = (first @ second).exp() - (third @ fourth).exp() + self.start
        return amount

    def joined(self, output: Tensor) -> Tensor:
        first, second = output.chunk(2, -3)
        difference = first - self.amount.to(output.dtype) * second
        size = difference.square().mean(-1, keepdim=True) + 1e-5
        return (1 - self.start) * self.gain.to(output.dtype) * difference * size.rsqrt()

    def projected(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().projected(inputs)
        q, k = (torch.cat(x.chunk(2, -1), -3) for x in (q, k))
        return q, k, torch.cat([v, v], -3)
