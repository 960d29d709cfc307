"""Held-out texts that are nearly copies of training texts: a split by hash cannot keep them apart.

The phrases of one sentence (as in SST's list of phrases) or the versions of one message are such.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Int64, UInt64

from regard.data.examples import Example

RUN = 5  # words in a row that two texts share
COVERED = 0.8  # the share of a text's words that stand in such runs
TOLD = 0.05  # the share of held-out texts from which on a user is told
LOOKED_AT = 1_000  # held-out texts that are looked at
SEEN = 100_000  # training texts that are looked at: the first of a larger file
BLOCK = 5_000  # texts hashed at once
FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # odd, of a hash by multiplication (Knuth, 6.4)
BITS: Final = 22  # of a table that lets most other runs pass quickly


def leak(train: Sequence[Example], held: Sequence[Example], side: str, remedy: str) -> list[str]:
    """Return a sentence where many held-out texts are nearly contained in training texts.

    `side` is what was held out, by a hash of each text ("validation", "test"), `remedy` a setting.
    See `near_copies`; in Subj, CR, MPQA, TREC and IMDB at most 1.3 % of a tenth are, of a list of
    sentences and their phrases more than half. Nothing is said of less than 5 %, or of texts with
    a group. Of large data the beginning is looked at.
    """
    if not held or any(example.group for example in train):
        return []
    first = train[:SEEN]
    beside = held[: max(1, len(held) * len(first) // max(1, len(train)))]
    chosen = [beside[int(i)] for i in np.linspace(0, len(beside) - 1, min(LOOKED_AT, len(beside)))]
    found = near_copies([example.text for example in first], [example.text for example in chosen])
    if len(found) < TOLD * len(chosen):
        return []
    return [
        f"{len(found) / len(chosen):.0%} of the {side} texts are nearly contained in training "
        f"texts, as phrases of one sentence are (runs of {RUN} words in common), first "
        f"{chosen[found[0]].source}: {side} is flattered; name what they come from by "
        f"group=COLUMN, or give {remedy}"
    ]


def near_copies(train: Sequence[str], held: Sequence[str]) -> list[int]:
    """Return the places of the held-out texts that are nearly contained in training texts.

    Such a text has at least 5 words, and at least 80 % of them stand in runs of 5 words that some
    training text has too; case and spaces do not count. So a phrase of a training sentence is one,
    and a text of which a word was changed; shorter texts are alike by chance. Runs are compared by
    hashes of 64 bits.

    >>> near_copies(["It is a truly  great film , he said"], ["a truly great film ,", "a film"])
    [0]
    """
    runs, starts, sizes = _runs(held)
    wanted = np.unique(runs)
    table = np.zeros(1 << BITS, dtype=bool)
    table[wanted >> np.uint64(64 - BITS)] = True
    shared = np.zeros(len(wanted), dtype=bool)
    for start in range(0, len(train), BLOCK):
        there = _runs(train[start : start + BLOCK])[0]
        there = there[table[there >> np.uint64(64 - BITS)]]
        places = np.searchsorted(wanted, there)
        places[places == len(wanted)] = 0
        shared[places[wanted[places] == there]] = True
    covered = np.zeros(int(sizes.sum()), dtype=bool)
    for start in starts[shared[np.searchsorted(wanted, runs)]]:
        covered[start : start + RUN] = True
    counted = np.concatenate([[0], np.cumsum(covered)])
    ends = np.cumsum(sizes)
    words = counted[ends] - counted[ends - sizes]
    return [int(i) for i in np.flatnonzero((sizes >= RUN) & (words >= COVERED * sizes))]


def _runs(
    texts: Sequence[str],
) -> tuple[UInt64[np.ndarray, " runs"], Int64[np.ndarray, " runs"], Int64[np.ndarray, " texts"]]:
    """A hash of each run of words inside a text, where it begins, and the words of each text."""
    words = [text.casefold().split() for text in texts]
    sizes = np.array([len(each) for each in words], dtype=np.int64)
    hashes = np.fromiter((hash(word) for each in words for word in each), np.int64).view(np.uint64)
    left = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(hashes))  # words to the text's end
    starts = np.flatnonzero(left >= RUN)
    runs = np.zeros(len(starts), dtype=np.uint64)
    for offset in range(RUN):
        runs = (runs ^ hashes[starts + offset]) * FACTOR
    return runs, starts, sizes
