"""Corruptions of texts for pretraining: pure functions of tokens and random numbers.

Each objective is one function: `single_span` (assignment 5 of Stanford's CS224N 2022), `masked`
(BERT), `spans` (T5), `halves` (prefix language models). Random numbers come from `generator` and
depend only on (seed, epoch, split, index), so an example does not depend on the order of calls or
the number of processes.
"""

from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from regard.training.learnable import SPLITS

T = TypeVar("T", bound=np.integer)
Ids = NDArray[np.integer]
LEAST = 4  # minimum characters that assignment 5 keeps of a document


def generator(seed: int, epoch: int, split: str, index: int = 0) -> np.random.Generator:
    """Return the random generator of one example.

    >>> [int(generator(0, 3, "train", index).integers(100)) for index in (7, 7, 8)]
    [41, 41, 68]
    """
    counter = [0, 0, SPLITS.index(split), index]
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=counter))


class Spans(NamedTuple):
    """The kept length of each document, and its hidden span ``start … stop``."""

    kept: Int[np.ndarray, " documents"]
    start: Int[np.ndarray, " documents"]
    stop: Int[np.ndarray, " documents"]


def draw_spans(
    lengths: Int[np.ndarray, " documents"], block: int, drawn: Float[np.ndarray, "documents 4"]
) -> Spans:
    """Compute lengths and spans of assignment 5 from four uniform numbers in [0, 1) per document.

    1. A document is cut to a length drawn uniformly from 4 … ⌊7/8 block⌋, unless it is shorter.
    2. One span of the kept part is hidden. Its length is uniform with a mean of exactly a quarter
       of the kept length, its position uniform over all positions where it fits.
    """
    most = block * 7 // 8
    least = min(LEAST, most)
    kept = np.minimum(lengths, least + (drawn[:, 0] * (most - least + 1)).astype(np.int64))
    # A uniform integer in low … high has the mean (low + high) / 2. For a mean of kept / 4, high is
    # kept / 2 − low, rounded down or up at random if it is not an integer.
    low = np.where(kept > LEAST, 1, 0)
    high = kept / 2 - low
    whole = np.floor(high + drawn[:, 1]).astype(np.int64)
    width = np.minimum(low + (drawn[:, 2] * (whole - low + 1)).astype(np.int64), kept)
    start = (drawn[:, 3] * (kept - width + 1)).astype(np.int64)
    return Spans(kept, start, start + width)


def single_span(
    ids: NDArray[T], start: int, stop: int, mask: int, *, closed: bool = True
) -> NDArray[T]:
    """Move the span ``start … stop`` to the end: prefix ⁇ suffix ⁇ span ⁇, with ⁇ = ``mask``.

    A model then predicts each token from those before it. With ``closed`` there is a ⁇ after the
    span: the handout describes none, but its printed examples and its fine-tuning answers have it.

    >>> single_span(np.array([5, 6, 7, 8]), 1, 3, mask=1).tolist()
    [5, 1, 8, 1, 6, 7, 1]
    """
    symbol = np.array([mask], ids.dtype)
    end = [symbol] if closed else []
    return np.concatenate([ids[:start], symbol, ids[stop:], symbol, ids[start:stop], *end])


class Masked(NamedTuple, Generic[T]):
    """The model's input and the predicted positions."""

    read: NDArray[T]
    selected: Bool[np.ndarray, " time"]


def masked(
    ids: NDArray[T],
    random: np.random.Generator,
    *,
    mask: int,
    words: tuple[int, int],
    share: float = 0.15,
    special: Bool[np.ndarray, " time"] | None = None,
) -> Masked[T]:
    """Mask tokens as BERT does. Devlin et al. 2019, section 3.1 and appendix A.1.

    A fraction ``share`` of the tokens is predicted. Of these, 80 % are replaced by ``mask``, 10 %
    by a token drawn uniformly from the ids ``words`` (first, last + 1), and 10 % stay.

    ``special`` tokens are never predicted. Of n other tokens, share × n are, rounded down or up at
    random so that the mean is exact, but at least one if n > 0.
    """
    free = np.flatnonzero(~special) if special is not None else np.arange(len(ids))
    count = int(np.floor(share * len(free) + random.random()))
    count = min(max(count, 1), len(free))
    chosen = random.permutation(free)[:count]
    how, other = random.random(count), random.integers(*words, size=count)
    read = ids.copy()
    read[chosen] = np.where(how < 0.8, mask, np.where(how < 0.9, other, ids[chosen]))
    selected = np.zeros(len(ids), dtype=bool)
    selected[chosen] = True
    return Masked(read, selected)


class Halves(NamedTuple):
    """The input of an encoder and the target of a decoder."""

    source: Ids
    target: Ids


def spans(
    ids: Ids,
    random: np.random.Generator,
    *,
    sentinel: int,
    sentinels: int,
    share: float = 0.15,
    mean: float = 3.0,
) -> Halves:
    """Remove spans as T5 does: ``mean`` tokens per span, a fraction ``share`` of the text.

    The source has sentinel i (the id ``sentinel`` + i) in place of span i; the target is each
    sentinel followed by its span. As in random_spans_noise_mask, spans and gaps are random
    partitions without empty parts, and the text begins with a gap. Raffel et al. 2020, section
    3.1.4 and their code.

    >>> found = spans(np.arange(10, 20), generator(0, 0, "train"), sentinel=100, sentinels=9)
    >>> found.source.tolist(), found.target.tolist()
    ([10, 11, 12, 13, 14, 15, 16, 17, 100], [100, 18, 19])
    """
    n = len(ids)
    if n < 2:
        return Halves(np.array([sentinel], ids.dtype), np.concatenate([[sentinel], ids]))
    noise = min(max(round(share * n), 1), n - 1)
    count = min(max(round(noise / mean), 1), sentinels, noise, n - noise)
    inside, outside = _partition(noise, count, random), _partition(n - noise, count, random)
    source, target, place = [], [], 0
    for number, (gap, span) in enumerate(zip(outside, inside, strict=True)):
        symbol = np.array([sentinel + number], ids.dtype)
        source += [ids[place : place + gap], symbol]
        target += [symbol, ids[place + gap : place + gap + span]]
        place += gap + span
    return Halves(np.concatenate(source), np.concatenate(target))


def halves(ids: Ids, random: np.random.Generator) -> Halves:
    """Split a text at a uniformly drawn position into a prefix and a rest to predict.

    Prefix language modelling: Liu et al. 2018; Raffel et al. 2020, section 3.2.1. Neither side is
    empty if the text has at least two tokens.
    """
    cut = int(random.integers(1, max(len(ids), 2)))
    return Halves(ids[:cut], ids[cut:])


def _partition(total: int, parts: int, random: np.random.Generator) -> list[int]:
    """Draw ``parts`` positive integers with sum ``total``, uniformly among all such lists."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) if parts > 1 else np.zeros(0)
    return [b - a for a, b in pairwise([0, *(int(cut) + 1 for cut in cuts), total])]
