"""A writer with token ids shifted by one, for models in which 0 is a word."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.stepwise import Around, Writing


class Shifted(Around):
    """A writer whose token ids are shifted by one, so that 0 can begin a text.

    regard's searches write no 0, the symbol of the beginning and the padding; GPT-2's 0 is "!".
    """

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the beginnings, given as shifted ids."""
        return _ShiftedWriting(self.writer.start((source - 1).clamp(min=0), source_lengths))


class _ShiftedWriting:
    def __init__(self, inner: Writing) -> None:
        self.inner = inner

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        return F.pad(self.inner.step((tokens - 1).clamp(min=0), parents), (1, 0))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        self.inner.keep(rows)
