"""Detection of held-out texts that nearly copy training texts, which splits by hash overlook.

Examples are the phrases of one sentence (as in SST) and the versions of one message. Texts in
scripts without spaces between words (Chinese, Japanese, Thai, …) are compared by character.
"""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from jaxtyping import Int64, UInt64

from regard.lab.data.examples import Example
from regard.lab.data.spelling import likeness
from regard.lab.data.tokenizers import NO_SPACE

RUN = 5  # successive words that two texts share
CHARACTERS = 8  # the same in scripts without spaces: a Chinese word has about 1.6 characters
COVERED = 0.8  # minimum fraction of a text's words or characters in such runs
REPORTED = 0.05  # minimum fraction of held-out texts that is reported,
LEAST = 3  # and minimum number: one or two near copies say nothing about a part
LOOKED_AT = 1_000  # held-out texts that are checked
SEEN = 100_000  # training texts that are checked: the first of a larger file
BLOCK = 5_000  # texts hashed at once
FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)  # odd factor of multiplicative hashing (Knuth, 6.4)
BITS: Final = 22  # size of a table that quickly rejects most runs
Runs = tuple[
    UInt64[np.ndarray, " runs"],
    Int64[np.ndarray, " runs"],
    Int64[np.ndarray, " texts"],
    Int64[np.ndarray, " texts"],
]
_tokens = re.compile(f"{NO_SPACE}|(?:(?!{NO_SPACE})\\S)+")
_no_space = re.compile(NO_SPACE)


def leak(train: Sequence[Example], held: Sequence[Example], side: str, remedy: str) -> list[str]:
    """Return a warning if many held-out texts are nearly contained in training texts.

    `side` is the held-out part, split by a hash of each text ("validation", "test"), `remedy` a
    setting. See `near_copies`; in Subj, CR, MPQA, TREC and IMDB at most 1.3 % of a tenth are near
    copies, in a list of sentences and their phrases more than half. There is no warning below 5 %,
    below 3 texts, or for texts with a group. Only the beginning of large data is checked.
    """
    if not held or any(example.group for example in train):
        return []
    first = train[:SEEN]
    compared = held[: max(1, len(held) * len(first) // max(1, len(train)))]
    chosen = [
        compared[int(i)] for i in np.linspace(0, len(compared) - 1, min(LOOKED_AT, len(compared)))
    ]
    copies = near_copies([example.text for example in first], [example.text for example in chosen])
    if len(copies) < max(LEAST, REPORTED * len(chosen)):
        return []
    return [
        f"{len(copies):,} of {len(chosen):,} {side} texts are nearly contained in training "
        f"texts (runs of {RUN} words or, in scripts without spaces, {CHARACTERS} characters in "
        f"common, like phrases of one sentence), first "
        f"{chosen[copies[0]].source}: {side} scores will be too high; set group=COLUMN to a column "
        f"with their origin, or give {remedy}"
    ]


def near_copies(train: Sequence[str], held: Sequence[str]) -> list[int]:
    """Return the indexes of the held-out texts that are nearly contained in training texts.

    Such a text has at least 5 words, and at least 80 % of them are in runs of 5 words that also
    occur in training texts, ignoring case and whitespace. Examples are a phrase of a training
    sentence and a text with one changed word; shorter texts coincide by chance. A text that is
    mostly in scripts without spaces has characters for words and runs of 8. Runs are compared by
    64-bit hashes.

    >>> near_copies(["It is a truly  great film , he said"], ["a truly great film ,", "a film"])
    [0]
    >>> near_copies(["昨天我和朋友一起看了这部电影,非常好看"], ["我和朋友一起看了这部电影"])
    [0]
    """
    runs, starts, sizes, lengths = _runs(held)
    wanted = np.unique(runs)
    table = np.zeros(1 << BITS, dtype=bool)
    table[wanted >> np.uint64(64 - BITS)] = True
    shared = np.zeros(len(wanted), dtype=bool)
    for start in range(0, len(train), BLOCK):
        hashes = _runs(train[start : start + BLOCK])[0]
        hashes = hashes[table[hashes >> np.uint64(64 - BITS)]]
        places = np.searchsorted(wanted, hashes)
        places[places == len(wanted)] = 0
        shared[places[wanted[places] == hashes]] = True
    covered = np.zeros(int(sizes.sum()), dtype=bool)
    ends = np.cumsum(sizes)
    of_run = lengths[np.searchsorted(ends, starts, side="right")]
    copied = shared[np.searchsorted(wanted, runs)]
    for start, length in zip(starts[copied], of_run[copied], strict=True):
        covered[start : start + length] = True
    counted = np.concatenate([[0], np.cumsum(covered)])
    words = counted[ends] - counted[ends - sizes]
    return [int(i) for i in np.flatnonzero((sizes >= lengths) & (words >= COVERED * sizes))]


def _runs(texts: Sequence[str]) -> Runs:
    """Return a hash of each run, its start, and for each text its size and the length of a run."""
    words = [_words(text) for text in texts]
    sizes = np.array([len(each) for each, _ in words], dtype=np.int64)
    lengths = np.array([length for _, length in words], dtype=np.int64)
    hashes = np.fromiter((hash(w) for each, _ in words for w in each), np.int64).view(np.uint64)
    of_run = np.repeat(lengths, sizes)
    left = np.repeat(np.cumsum(sizes), sizes) - np.arange(len(hashes))  # words to the text's end
    starts = np.flatnonzero(left >= of_run)
    runs = np.zeros(len(starts), dtype=np.uint64)
    for offset in range(max(RUN, CHARACTERS)):
        inside = of_run[starts] > offset
        runs[inside] = (runs[inside] ^ hashes[starts[inside] + offset]) * FACTOR
    return runs, starts, sizes, lengths


def _words(text: str) -> tuple[list[str], int]:
    """Return the words of a text, or its characters in scripts without spaces; a run's length."""
    text = likeness(text)
    if text.isascii() or not _no_space.search(text):
        return text.split(), RUN
    words = _tokens.findall(text)
    characters = sum(len(word) == 1 for word in words)
    return words, CHARACTERS if 2 * characters > len(words) else RUN
