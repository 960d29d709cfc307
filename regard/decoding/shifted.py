"""A writer with token ids shifted by one, for models in which 0 is a word."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.stepwise import BEGIN, Writer, Writing


class Shifted:
    """A writer whose token ids are shifted by one, so that 0 is free for the start symbol.

    regard's searches use 0 for start and padding and never generate it; GPT-2's 0 is "!".
    ``begin`` is the model's own id of the start symbol.
    """

    def __init__(self, writer: Writer, begin: int = BEGIN) -> None:
        self.writer, self.begin = writer, begin

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the prompts, given as shifted ids."""
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
