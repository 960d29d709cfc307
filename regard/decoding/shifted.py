"""A writer with token ids shifted by one, for models in which 0 is a word."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.stepwise import BEGIN, Around, Writer, Writing


class Shifted(Around):
    """A writer whose token ids are shifted by one, so that 0 can begin a text.

    regard's searches write no 0, the symbol of the beginning and the padding; GPT-2's 0 is "!".
    ``begin`` is the model's own id of the symbol that a text begins with.
    """

    def __init__(self, writer: Writer, begin: int = BEGIN) -> None:
        super().__init__(writer)
        self.begin = begin

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the beginnings, given as shifted ids."""
        inner = self.writer.start((source - 1).clamp(min=0), source_lengths)
        return _ShiftedWriting(inner, self.begin)


class _ShiftedWriting:
    def __init__(self, inner: Writing, begin: int) -> None:
        self.inner, self.begin = inner, begin

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        given = torch.where(tokens == BEGIN, self.begin, tokens - 1)
        return F.pad(self.inner.step(given, parents), (1, 0))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        self.inner.keep(rows)
