"""What is hidden of a text, for a model to say: pure functions of tokens and of drawn numbers.

Every objective of pretraining is one function here, so that its laws can be read and tested:
`single_span` (assignment 5 of Stanford's CS224N 2022), `masked` (BERT), `spans` (T5), `halves`
(prefix language models). What they draw comes from `generator`, which depends on (seed, epoch,
split, index) alone: no order of calls and no number of processes changes an example.
"""

from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray

from regard.tasks.task import SPLITS

T = TypeVar("T", bound=np.integer)
Ids = NDArray[np.integer]
LEAST = 4  # characters of a document that assignment 5 leaves at least


def generator(seed: int, epoch: int, split: str, index: int = 0) -> np.random.Generator:
    """The random numbers of one example.

    >>> [int(generator(0, 3, "train", index).integers(100)) for index in (7, 7, 8)]
    [41, 41, 68]
    """
    counter = [0, 0, SPLITS.index(split), index]
    return np.random.Generator(np.random.Philox(key=[seed, epoch], counter=counter))


class Spans(NamedTuple):
    """Of each document: how much is kept of it, and the span of that which is hidden."""

    kept: Int[np.ndarray, " documents"]
    start: Int[np.ndarray, " documents"]
    stop: Int[np.ndarray, " documents"]


def draw_spans(
    lengths: Int[np.ndarray, " documents"], block: int, drawn: Float[np.ndarray, "documents 4"]
) -> Spans:
    """Assignment 5's lengths and spans, from four numbers in [0, 1) for each document.

    1. A document is cut to a length drawn evenly from 4 … ⌊7/8 block⌋; one that is no longer than
       that stays whole.
    2. A span of it is hidden: its length is drawn evenly around a quarter of what is kept, which
       is its mean exactly; its place evenly from all that it fits into.
    """
    most = block * 7 // 8
    least = min(LEAST, most)
    kept = np.minimum(lengths, least + (drawn[:, 0] * (most - least + 1)).astype(np.int64))
    # Even numbers low … high have the mean (low + high) / 2; it is to be kept / 4, so high is
    # kept / 2 − low, and where that is no whole number the next one below or above, by chance.
    low = np.where(kept > LEAST, 1, 0)
    high = kept / 2 - low
    whole = np.floor(high + drawn[:, 1]).astype(np.int64)
    width = np.minimum(low + (drawn[:, 2] * (whole - low + 1)).astype(np.int64), kept)
    start = (drawn[:, 3] * (kept - width + 1)).astype(np.int64)
    return Spans(kept, start, start + width)


def single_span(
    ids: NDArray[T], start: int, stop: int, mask: int, *, closed: bool = True
) -> NDArray[T]:
    """prefix ⁇ suffix ⁇ span ⁇: the span ``start … stop`` goes to the end, ⁇ (`mask`) in its place.

    Each token of this is then predicted from those before it. The handout's text ends with the
    span, the examples that it prints with one more ⁇, as answers do in fine-tuning: ``closed``.

    >>> single_span(np.array([5, 6, 7, 8]), 1, 3, mask=1).tolist()
    [5, 1, 8, 1, 6, 7, 1]
    """
    symbol = np.array([mask], ids.dtype)
    end = [symbol] if closed else []
    return np.concatenate([ids[:start], symbol, ids[stop:], symbol, ids[start:stop], *end])


class Masked(NamedTuple, Generic[T]):
    """What is read, and which places of it are asked about."""

    read: NDArray[T]
    asked: Bool[np.ndarray, " time"]


def masked(
    ids: NDArray[T],
    random: np.random.Generator,
    *,
    mask: int,
    words: tuple[int, int],
    share: float = 0.15,
    special: Bool[np.ndarray, " time"] | None = None,
) -> Masked[T]:
    """BERT's masked words: a share is asked about; of those 80 % are hidden by ``mask``, 10 % are
    another word, drawn evenly from the numbers ``words`` (first, one behind the last), and 10 %
    stay. Devlin et al. 2019, section 3.1 and appendix A.1.

    ``special`` tokens are never asked about. At least one word is, if there is one: of n words,
    share × n rounded down or up by chance, so that the mean is exact where that is one or more.
    """
    free = np.flatnonzero(~special) if special is not None else np.arange(len(ids))
    count = int(np.floor(share * len(free) + random.random()))
    count = min(max(count, 1), len(free))
    chosen = random.permutation(free)[:count]
    how, other = random.random(count), random.integers(*words, size=count)
    read = ids.copy()
    read[chosen] = np.where(how < 0.8, mask, np.where(how < 0.9, other, ids[chosen]))
    asked = np.zeros(len(ids), dtype=bool)
    asked[chosen] = True
    return Masked(read, asked)


class Halves(NamedTuple):
    """What an encoder reads and what a decoder writes."""

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
    """T5's span corruption: spans of ``mean`` tokens, ``share`` of the text in all, are left out.

    The source has sentinel i (the number ``sentinel`` + i) in place of span i, the target is each
    sentinel followed by its span. Raffel et al. 2020, section 3.1.4 and their code,
    random_spans_noise_mask: spans and gaps are random partitions with no part empty (the first gap
    is before the first span).

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
    """A beginning to read and the rest to write, cut at a place drawn evenly.

    Liu et al. 2018; Raffel et al. 2020, section 3.2.1 (prefix language modelling). Each side has a
    token where the text has two.
    """
    cut = int(random.integers(1, max(len(ids), 2)))
    return Halves(ids[:cut], ids[cut:])


def _partition(total: int, parts: int, random: np.random.Generator) -> list[int]:
    """Positive numbers, so many that add up to ``total``, all such lists alike likely."""
    cuts = np.sort(random.choice(total - 1, parts - 1, replace=False)) if parts > 1 else np.zeros(0)
    return [b - a for a, b in pairwise([0, *(int(cut) + 1 for cut in cuts), total])]
