"""The interface between decoding algorithms and models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import RegardError

BLOCK = 64  # `largest` compares the maxima of blocks of this size first
BEGIN = 0  # the start symbol, which is the padding's id, as in Marian and T5


class Writing(Protocol):
    """A batch of texts being decoded. The past is not copied between steps."""

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return logits after these words; row r continues ``parents[b, r]`` of the last step."""

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Keep only these texts."""


class Writer(Protocol):
    """A model that generates text."""

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Writing:
        """Read the sources."""


@dataclass(frozen=True)
class Written:
    """A generated text: its words without the end, and its log probability.

    ``score`` is `log_probability` after the length penalty. ``ended``: whether the end symbol was
    generated before the length limit.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float
    ended: bool


@dataclass(frozen=True)
class Limits:
    """Length limits of a text: ``ratio`` × the source's length + ``more``, at most ``longest``.

    The limit is at least one word. The end is not generated before ``least`` words. With
    ``ratio=-1``, source and text together have at most ``more`` words.

    >>> Limits(ratio=2.0, more=3, longest=10).of([1, 4]).tolist()
    [5, 10]
    >>> Limits(ratio=-1.0, more=8).of([1, 4, 9]).tolist()
    [7, 4, 1]
    """

    ratio: float = 2.0
    more: int = 10
    longest: int = 256
    least: int = 0

    def __post_init__(self) -> None:
        if self.ratio < -1 or self.more < 0 or self.longest < 1 or self.least < 0:
            raise RegardError(f"length limits must be 0 or more, and ratio -1 or more, not {self}")

    def of(self, source_lengths: Sequence[int] | Tensor) -> Int[Tensor, " batch"]:
        """Return the maximum words of each text."""
        lengths = torch.as_tensor(source_lengths).double()
        return (lengths * self.ratio + self.more).long().clamp(min=1, max=self.longest)


def begun(batch: int, device: torch.device | None = None) -> Int[Tensor, "batch 1"]:
    """Return the start symbols: one row per text."""
    return torch.full((batch, 1), BEGIN, device=device)


def without(logits: Tensor, end: int | Sequence[int], forbidden: bool) -> Tensor:
    """Return float32 log probabilities, with −∞ for padding and, if ``forbidden``, for the end.

    Raises: logits that are NaN.
    """
    return _numbers(_allowed(logits.float(), end, forbidden).log_softmax(-1))


def likeliest(
    logits: Float[Tensor, "*rows words"], end: int, forbidden: bool, count: int
) -> tuple[Float[Tensor, "*rows {count}"], Int[Tensor, "*rows {count}"]]:
    """Return the ``count`` likeliest words of `without` and their log probabilities.

    Words are ranked by their logits, so that only the chosen ones need a log probability.

    >>> chances, words = likeliest(torch.tensor([[9.0, 2.0, 6.0, 1.0]]).log(), 3, False, 2)
    >>> [round(chance, 3) for chance in chances[0].exp().tolist()], words[0].tolist()
    ([0.667, 0.222], [2, 1])
    """
    allowed = _allowed(logits.float(), end, forbidden)
    best, words = largest(allowed, count)
    # From the likeliest word, whose probability never underflows.
    first = _numbers(allowed.softmax(-1).gather(-1, words[..., :1])).log()
    return best - best[..., :1] + first, words


def largest(
    x: Float[Tensor, "*rows words"], count: int
) -> tuple[Float[Tensor, "*rows {count}"], Int[Tensor, "*rows {count}"]]:
    """Compute ``torch.topk``, the largest first, in half its time for long rows on a CPU.

    The largest numbers are in the ``count`` blocks with the largest maxima, or after the last full
    block: two searches over few numbers replace one over many.

    >>> largest(torch.tensor([[3.0, 1.0, 4.0, 2.0]]), 2)[1].tolist()
    [[2, 0]]
    """
    words = x.shape[-1]
    inside = words // BLOCK * BLOCK
    if x.device.type != "cpu" or words < 4 * count * BLOCK:
        return x.topk(count, -1)
    blocks = x[..., :inside].unflatten(-1, (-1, BLOCK)).amax(-1).topk(count, -1).indices
    steps = torch.arange(BLOCK, device=x.device)
    places = (blocks[..., None] * BLOCK + steps).flatten(-2)
    rest = torch.arange(inside, words, device=x.device).expand(*x.shape[:-1], -1)
    places = torch.cat([places, rest], -1)
    best, chosen = x.gather(-1, places).topk(count, -1)
    return best, places.gather(-1, chosen)


def _numbers(values: Tensor) -> Tensor:
    """Return the values. Raises: NaN, since one NaN logit makes its row NaN."""
    if bool(values[..., -1].isnan().any()):
        raise RegardError(
            "the model's probabilities are NaN: its training has diverged, or its weights are "
            "damaged"
        )
    return values


def _allowed(logits: Tensor, end: int | Sequence[int], forbidden: bool) -> Tensor:
    """Return the logits, with −∞ for forbidden words."""
    logits[..., BEGIN] = -torch.inf
    if forbidden:
        logits[..., [end] if isinstance(end, int) else [*end]] = -torch.inf
    return logits
