"""Linear attention, retention, gated linear attention, the gated delta rule, and Mamba-2."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.attention.head_spec import HeadSpec
from regard.attention.mechanisms.recurrent import StateAttention, Written, normalized
from regard.attention.prepared import like
from regard.core.errors import RegardError


class LinearAttention(StateAttention):
    """head = Σ_j (φ(q)·φ(k_j)) v_j / Σ_j φ(q)·φ(k_j), with φ(x) = elu(x) + 1.

    Katharopoulos et al. 2020, equations 4, 5 and 7. Positions rotate φ(q) and φ(k) in the
    numerator alone (Su et al. 2021, equation 19). Shapes and errors are those of `StateAttention`.

    >>> LinearAttention(8, 2)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "linear"
    gated: ClassVar[bool] = False
    run = staticmethod(normalized)

    def build(self, spec: HeadSpec) -> None:
        if isinstance(spec.score, str | type) and spec.score not in ("dot", "scaled-dot"):
            raise RegardError(
                f"attention={self.name} compares features by their product; use score=scaled-dot, "
                f"not {spec.score}"
            )
        super().build(spec)

    def features(self, x: Tensor) -> Tensor:
        return x.clamp(max=0).exp() + x.relu()


class ReluAttention(LinearAttention):
    """Linear attention as `linear`, with φ(x) = relu(x). Kasai et al. 2021 learn a map first."""

    name = "linear-relu"

    def features(self, x: Tensor) -> Tensor:
        return F.relu(x)


class ExponentialAttention(LinearAttention):
    """Linear attention as `linear`, with φ(x) = softmax(x) over the columns, as in Hedgehog.

    Zhang et al. 2024 learn a map before it and join softmax(x) and softmax(−x).
    """

    name = "linear-softmax"

    def features(self, x: Tensor) -> Tensor:
        return x.softmax(-1)


class Retention(StateAttention):
    """S_t = γ S_{t−1} + k_t v_tᵀ, with γ = 1 − 2^(−5 − h) in head h: a word fades by γ per step.

    Sun et al. 2023 (RetNet), equations 5 to 8; there queries and keys are rotated, as by
    ``position="rotary"``. Each head's output is normalised and multiplied by SiLU(W_g q).

    >>> Retention(8, 2).log_decay.exp().tolist()
    [0.96875, 0.984375]
    """

    name = "retention"

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        steps = torch.arange(spec.heads, dtype=torch.float64, device="cpu")
        self.log_decay = torch.log1p(-(2.0 ** (-5 - steps))).float()

    def written(self, values: Tensor, source: Tensor) -> Written:
        decay = like(self.log_decay, values)[:, None, None]
        return values, decay.expand(*values.shape[:-1], 1), None


class GatedLinearAttention(StateAttention):
    """S_t = diag(α_t) S_{t−1} + k_t v_tᵀ, α_t = σ(W₂ W₁ x_t + b)^(1/16), a decay per column.

    Yang et al. 2024 (GLA), section 4.4, with W₁ of 16 rows. Each head's output is normalised and
    multiplied by SiLU(W_g q).

    >>> GatedLinearAttention(8, 2)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "gla"
    rank = 16
    temper = 16.0

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        self.decay = nn.Sequential(
            nn.Linear(spec.memory_width, self.rank, bias=False),
            nn.Linear(self.rank, spec.heads * self.head_width),
        )

    def written(self, values: Tensor, source: Tensor) -> Written:
        decay = F.logsigmoid(self.decay(source)) / self.temper
        return values, decay.unflatten(-1, (self.heads, -1)).transpose(-3, -2), None


class _Discretised(StateAttention):
    """A decay A_t = exp(−a Δ_t) per head, Δ_t = softplus(W x_t + b), as in Mamba-2."""

    convolved: ClassVar[bool] = True

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        self.step = self.make_step(spec)
        self.log_speed = nn.Parameter(torch.empty(spec.heads).uniform_(1, 16).log())
        # Δ is between 0.001 and 0.1 at first: the bias is its inverse softplus.
        last = self.step[-1] if isinstance(self.step, nn.Sequential) else self.step
        assert isinstance(last, nn.Linear)
        steps = torch.empty_like(last.bias).uniform_(math.log(1e-3), math.log(0.1)).exp()
        with torch.no_grad():
            last.bias.copy_(steps + torch.log(-torch.expm1(-steps)))

    def make_step(self, spec: HeadSpec) -> nn.Module:
        """Return the map from x to Δ before softplus: a number, or several, for each head."""
        return nn.Linear(spec.memory_width, spec.heads)

    def steps(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return Δ and ln A, (*batch, heads, m, 1), or (*batch, heads, m, head_width) by column."""
        raw: Tensor = self.step(source)
        raw = raw.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        step = torch.logaddexp(raw, raw.new_zeros(()))  # softplus
        return step, -self.log_speed.exp()[:, None, None] * step


class DeltaNetAttention(StateAttention):
    """S_t = S_{t−1} + β_t k_t (v_t − S_{t−1}ᵀ k_t)ᵀ: a word replaces its key's old value.

    β_t = reach · σ(W_β x_t), and queries and keys have norm 1. Yang et al. 2024 (DeltaNet),
    section 2.2, with their short convolutions and norm, and with a gate SiLU(W_g q) of the output.

    With ``reach`` 2 the eigenvalue 1 − β_t of a step may be negative, so that a state can change
    its sign, which parity needs (Grazzi et al. 2025, section 4). With ``products`` n a word makes n
    steps, each with a key, a value and a β of its own: a product of n Householder matrices, n = 2
    for S₃ and 4 for S₅ (Siems et al. 2025, DeltaProduct, section 3). As a name
    ``deltanet-reach-2-products-3``. Raise a RegardError for a reach not above 0 and at most 2, and
    for products that are not an integer of at least 1.

    >>> DeltaNetAttention(8, 2, reach=2, products=3)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "deltanet"
    convolved: ClassVar[bool] = True
    options: ClassVar[Mapping[str, int]] = {"reach": 1, "products": 1}

    def __init__(
        self, width: int, heads: int, *, reach: float = 1, products: int = 1, **settings: Any
    ) -> None:
        if not 0 < reach <= 2:  # beyond, a step enlarges the state
            raise RegardError(f"{self.name} needs a reach above 0 and at most 2, not {reach}")
        if products != int(products) or products < 1:
            raise RegardError(f"{self.name} needs an integer of products ≥ 1, not {products}")
        self.reach, self.products = reach, int(products)
        super().__init__(width, heads, **settings)

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        self.rate = nn.Linear(spec.memory_width, spec.heads * self.products)

    def features(self, x: Tensor) -> Tensor:
        return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()

    def written(self, values: Tensor, source: Tensor) -> Written:
        rate = self.reach * self.rate(source).sigmoid()
        return (
            values,
            None,
            rate.unflatten(-1, (self.products, -1)).flatten(-3, -2).mT.unsqueeze(-1),
        )


class DeltaAttention(DeltaNetAttention, _Discretised):
    """S_t = α_t S_{t−1} + β_t k_t (v_t − α_t S_{t−1}ᵀ k_t)ᵀ: `deltanet` with a decay per head.

    α_t = exp(−a softplus(W x_t + b)), in the first of a word's ``products``. Yang et al. 2025
    (gated DeltaNet), equation 10, with their short convolutions, norm and gate. Options and errors
    are those of `DeltaNetAttention`.

    >>> DeltaAttention(8, 2, reach=2, products=3)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "delta"

    def written(self, values: Tensor, source: Tensor) -> Written:
        values, _, rate = super().written(values, source)
        log_decay = F.pad(self.steps(source)[1].unsqueeze(-2), (0, 0, 0, self.products - 1))
        return values, log_decay.flatten(-3, -2), rate


class KimiDeltaAttention(DeltaAttention):
    """The delta rule with a decay per column: S_t = D S_{t−1} + β_t k_t (v_t − (D S_{t−1})ᵀ k_t)ᵀ.

    D = diag(α_t), α_t = exp(−a softplus(W₂ W₁ x_t + b)), with W₁ of as many rows as a head has
    columns. Kimi team 2025 (Kimi Linear), section 3, with a full matrix in the gate σ(W_g q).

    >>> KimiDeltaAttention(8, 2)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "kda"

    def gating(self, x: Tensor) -> Tensor:
        return x.sigmoid()

    def make_step(self, spec: HeadSpec) -> nn.Module:
        return nn.Sequential(
            nn.Linear(spec.memory_width, self.head_width, bias=False),
            nn.Linear(self.head_width, spec.heads * self.head_width),
        )


class StateSpaceAttention(_Discretised):
    """S_t = exp(−a Δ_t) S_{t−1} + Δ_t k_t v_tᵀ, plus D v_t; one query and one key for all heads.

    Dao & Gu 2024 (Mamba-2), section 7: queries are C, keys are B, values are x, with their short
    convolution. The output is multiplied by SiLU(W_z q) and then normalised over all heads.

    >>> StateSpaceAttention(8, 2)(torch.zeros(3, 5, 8)).shape
    torch.Size([3, 5, 8])
    """

    name = "ssd"
    shared: ClassVar[bool] = True

    def build(self, spec: HeadSpec) -> None:
        super().build(spec)
        self.gain = nn.Parameter(torch.ones(spec.heads * self.head_width))
        self.skip = nn.Parameter(torch.ones(spec.heads))

    def written(self, values: Tensor, source: Tensor) -> Written:
        step, decay = self.steps(source)
        return step * values, decay, None

    def skipped(self, output: Tensor, values: Tensor) -> Tensor:
        return output + self.skip[:, None, None] * values

    def finished(self, output: Tensor, queries: Tensor) -> Tensor:
        gated = F.silu(self.gate(queries)) * output.flatten(-2)
        size = gated.square().mean(-1, keepdim=True) + 1e-5
        return self.gain * gated * size.rsqrt()
