"""What every way of writing asks of a model, and what it gives."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.errors import RegardError

BEGIN = 0  # the symbol that a text is written after: the padding's, as Marian and T5 have it


class Writing(Protocol):
    """A batch of texts being written. Nothing of the past is copied from step to step."""

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Logits after these words; row r goes on from row ``parents[b, r]`` of the last step."""

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these texts alone: finished ones leave."""


class Writer(Protocol):
    """A model that writes."""

    training: bool

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the sources."""

    def eval(self) -> object:
        """Go into evaluation mode."""

    def train(self, mode: bool = True) -> object:
        """Go into training mode, or out of it."""


@dataclass(frozen=True)
class Written:
    """A text that was written: its words without the end, and the logarithm of its probability.

    ``score`` is what it was chosen by: `log_probability` after the length penalty. ``ended``: the
    end was written, and not the longest length reached.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: bool


@dataclass(frozen=True)
class Limits:
    """How long a text may be: ``ratio`` × the source's length + ``more``, at most ``longest``.

    ``least``: the end is not written before so many words.

    >>> Limits(ratio=2.0, more=3, longest=10).of([1, 4]).tolist()
    [5, 10]
    """

    ratio: float = 2.0
    more: int = 10
    longest: int = 256
    least: int = 0

    def __post_init__(self) -> None:
        if self.ratio < 0 or self.more < 0 or self.longest < 1 or self.least < 0:
            raise RegardError(f"limits of a text's length are not negative: {self}")

    def of(self, source_lengths: Sequence[int] | Tensor) -> Int[Tensor, " batch"]:
        """The most words of each text."""
        lengths = torch.as_tensor(source_lengths).double()
        return (lengths * self.ratio + self.more).long().clamp(min=1, max=self.longest)


def begun(batch: int, device: torch.device | None = None) -> Int[Tensor, "batch 1"]:
    """The words before the first: one row a text."""
    return torch.full((batch, 1), BEGIN, device=device)


def without(logits: Tensor, end: int, forbidden: bool) -> Tensor:
    """Log probabilities in float32; the padding is never written, nor the end while forbidden."""
    found = logits.float()
    found[..., BEGIN] = -torch.inf
    if forbidden:
        found[..., end] = -torch.inf
    return found.log_softmax(-1)
