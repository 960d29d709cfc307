"""`Stream`, which carries what the layers of a stack hand on to later layers."""

from typing import Any

from torch import Tensor, nn

from regard.attention.mechanisms.stages import FirstValues


class Stream:
    """Values and outputs of earlier layers, which later layers of a stack read in one call.

    A network makes one for each call of a stack and gives it to every block.
    """

    def __init__(self) -> None:
        #: The values of the first self-attention, and of the first attention to the memory.
        self.values, self.memory_values = FirstValues(), FirstValues()
        #: The input of each sublayer with attention over depth, by its index in the stack, and
        #: 1 / rms of each row.
        self.outputs: dict[int, tuple[Tensor, Tensor]] = {}


def of_first(mechanism: nn.Module, values: FirstValues) -> dict[str, Any]:
    """Return the argument ``first_values`` of a mechanism that mixes values, or no argument."""
    return {"first_values": values} if getattr(mechanism, "mixes_values", False) else {}
