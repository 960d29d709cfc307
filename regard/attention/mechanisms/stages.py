"""Stages between the heads and the output projection, by name: ``attention=multi-head+exclusive``.

Any mechanism built from a `HeadSpec` may have them, in this order: those that mix values, before
the heads; those that read values; then gates. Each is linear in the heads' outputs.
"""

from typing import ClassVar

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.tables import Table


class FirstValues:
    """The values of the first layer of a stack, (*batch, m, columns), for the layers after it.

    A network makes one for each call and gives it to every layer; the first one fills it.
    """

    def __init__(self) -> None:
        self.values: Tensor | None = None

    def of(self, values: Tensor) -> Tensor:
        """Return the first values in the shape of ``values``, which are the first if none are yet.

        Raises: values of other columns than those of the first layer.
        """
        if self.values is None:
            self.values = values
        first = self.values
        if first.numel() != values.numel() or first.shape[-1] != values.shape[-1]:
            raise RegardError(
                f"value-residual mixes the values of layers, but this one has "
                f"{values.shape[-1]} columns of values and the first one {first.shape[-1]}; give "
                "every layer with +value-residual as many"
            )
        return first.reshape(values.shape)


class OutputStage(nn.Module):
    """A change of the heads' outputs y, (*batch, heads, n, head_width).

    ``queries`` are (*batch, n, width). ``own`` is what each head would give if a query saw only
    itself, for multi-head attention its value; None where queries have no values, as those of a
    memory.
    """

    #: Whether the stage reads ``own``.
    reads_values: ClassVar[bool] = False
    #: Whether the stage changes the values that the heads attend to, by ``mixed``.
    mixes_values: ClassVar[bool] = False

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()

    def forward(self, output: Tensor, queries: Tensor, own: Tensor | None) -> Tensor:
        """Return the outputs of the heads as the next stage reads them."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")

    def mixed(self, values: Tensor, first: FirstValues) -> Tensor:
        """Return the values (*batch, m, columns of all heads) to which the heads attend."""
        raise NotImplementedError(f"{type(self).__name__} has no mixed")


class HeadGate(OutputStage):
    """σ(W_g q + b) y, one number per head. Qiu et al. 2025, section 2.2, head-wise."""

    columns = False

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__(width, heads, head_width)
        self.heads = heads
        linear = nn.Linear(width, heads * head_width if self.columns else heads)
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, output: Tensor, queries: Tensor, own: Tensor | None) -> Tensor:
        gate: Tensor = nn.functional.linear(queries, self.weight, self.bias).sigmoid()
        gate = gate.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        return output * gate


class Gate(HeadGate):
    """σ(W_g q + b) ⊙ y, one number per head and column. Qiu et al. 2025, section 2.2, element-wise.

    >>> Gate(8, 2, 4).weight.shape
    torch.Size([8, 8])
    """

    columns = True


class Exclusive(OutputStage):
    """y − (y·v̂) v̂, v̂ = v / |v|: an output without its part along the query's own value.

    Exclusive self-attention, 2603.09078. Queries of a memory have no value there and keep y.
    """

    reads_values = True

    def forward(self, output: Tensor, queries: Tensor, own: Tensor | None) -> Tensor:
        if own is None:
            return output
        own = own.to(output.dtype)
        size = own.square().sum(-1, keepdim=True)
        along = (output * own).sum(-1, keepdim=True) / size.masked_fill(size == 0, 1)
        return output - along * own


class ValueResidual(OutputStage):
    """λ₁ v + λ₂ v₁ in place of the values v; v₁ are those of the first layer that has this stage.

    ResFormer with learned λ, 2410.17897, section 3; λ₁ = λ₂ = ½ at first. The first layer, and one
    outside of a network, has v₁ = v. A cache stores the mixed values.
    """

    mixes_values = True

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__(width, heads, head_width)
        self.amounts = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, output: Tensor, queries: Tensor, own: Tensor | None) -> Tensor:
        return output

    def mixed(self, values: Tensor, first: FirstValues) -> Tensor:
        own, before = self.amounts.to(values.dtype)
        mixed: Tensor = own * values + before * first.of(values).to(values.dtype)
        return mixed


STAGES: Table[type[OutputStage]] = Table(
    {
        "gate": f"{__name__}:Gate",
        "gate-heads": f"{__name__}:HeadGate",
        "exclusive": f"{__name__}:Exclusive",
        "value-residual": f"{__name__}:ValueResidual",
    },
    "regard.stages",
    OutputStage,
    "output stage",
    classes=True,
)
