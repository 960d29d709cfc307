"""Stages between the heads and the output projection, by name: ``attention=multi-head+exclusive``.

Any mechanism built from a `HeadSpec` may have them, in this order: those that read values, then
gates. Each is linear in the heads' outputs.
"""

from typing import ClassVar

from torch import Tensor, nn

from regard.core.tables import Table


class OutputStage(nn.Module):
    """A change of the heads' outputs y, (*batch, heads, n, head_width).

    ``queries`` are (*batch, n, width). ``own`` is what each head would give if a query saw only
    itself, for multi-head attention its value; None where queries have no values, as those of a
    memory.
    """

    #: Whether the stage reads ``own``.
    reads_values: ClassVar[bool] = False

    def __init__(self, width: int, heads: int, head_width: int) -> None:
        super().__init__()

    def forward(self, output: Tensor, queries: Tensor, own: Tensor | None) -> Tensor:
        """Return the outputs of the heads as the next stage reads them."""
        raise NotImplementedError(f"{type(self).__name__} has no forward")


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


STAGES: Table[type[OutputStage]] = Table(
    {
        "gate": f"{__name__}:Gate",
        "gate-heads": f"{__name__}:HeadGate",
        "exclusive": f"{__name__}:Exclusive",
    },
    "regard.stages",
    OutputStage,
    "output stage",
    classes=True,
)
