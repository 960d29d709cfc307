"""Training of Unigram pieces: the vocabulary that maximises the likelihood of the words.

A word has many segmentations; its probability is the sum over them of the product of the pieces'
probabilities. Kudo 2018, section 3.2; details as in SentencePiece (unigram_model_trainer.cc): start
with many pieces, the frequent substrings, and repeatedly

* fit their probabilities by two steps of expectation maximisation, with exp(digamma(count)) in
place of a count, which makes rare pieces rarer (Liang & Klein 2007), and
* drop the quarter with the smallest loss: the decrease of likelihood if a piece is replaced by its
best segmentation into other pieces,
until the requested number remains. Characters are always kept.

The trainer of `tokenizers` is not used because it sums in the order of a hash map, which differs
between processes, and because with its 8,000 pieces Multi30k's train takes 988,882 tokens, with
these 829,939 (and 846,343 byte pairs).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

WORDS = 100_000  # distinct words used, the most frequent; others have little weight
SIGNS = 1_000_000  # maximum characters of all words, for scripts without spaces: about 1 GB
LONGEST_WORD = 32  # characters; longer words are split, so that no probability underflows
LONGEST_PIECE = 16
SEEDS = 100_000  # initial pieces
KEPT = 0.75  # fraction of the pieces kept per round
STEPS = 2  # of expectation maximisation per round
SLACK = 1.1  # pieces in the last round relative to the requested number
RARE = 0.5  # expected occurrences below which a piece is dropped

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def learn_pieces(words: Mapping[str, int], alphabet: Iterable[str], size: int) -> dict[str, float]:
    """Return at most `size` pieces of the words (with counts), with their log probabilities.

    They include all of the `alphabet`, the characters of the words. The result does not depend on
    the order of the words.

    >>> pieces = learn_pieces({"hug": 10, "pug": 5, "hugs": 5, "pun": 12}, "hugpns", 8)
    >>> sorted(pieces)
    ['g', 'h', 'hug', 'n', 'p', 'pun', 's', 'u']
    """
    counts = _shortened(words)
    characters = sorted(set(alphabet))
    pieces = [*characters, *_seeds(counts, room=max(SEEDS, 2 * size))]
    if not counts:
        return {}
    lattice = Lattice.of(list(counts), np.array(list(counts.values()), np.float64), pieces)
    others = Lattice.of(pieces, np.ones(len(pieces)), pieces).without_itself()
    alive = np.ones(len(pieces), bool)
    places = lattice.places() + RARE
    scores = np.log(places / places.sum())
    fixed = np.arange(len(pieces)) < len(characters)
    wanted = max(int(SLACK * size), len(characters))
    while True:
        for _ in range(STEPS):
            expected = lattice.expected(np.exp(scores))
            alive &= fixed | (expected >= RARE)
            expected = np.maximum(expected, RARE)
            scores = digamma(expected) - digamma(expected[alive].sum())
            lattice, others = lattice.only(alive), others.only(alive)
        if alive.sum() <= wanted:
            break
        keep = max(wanted, int(KEPT * alive.sum()))
        loss = _losses(lattice, others, scores, alive, fixed)
        best = np.argsort(-loss, kind="stable")[: max(0, keep - len(characters))]
        alive[:] = fixed
        alive[best[loss[best] > -np.inf]] = True
        lattice, others = lattice.only(alive), others.only(alive)
    order = np.lexsort((-scores, ~fixed, ~alive))[: max(len(characters), size)]
    return {pieces[i]: float(scores[i]) for i in order if alive[i]}


def _shortened(words: Mapping[str, int]) -> dict[str, int]:
    """Return the most frequent words, by count, then alphabet; long words are split."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(0, len(word), LONGEST_WORD):
            counts[word[start : start + LONGEST_WORD]] += count
    commonest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:WORDS]
    signs = np.cumsum([len(word) for word, _ in commonest])
    return dict(commonest[: int(np.searchsorted(signs, SIGNS, "right")) or 1])


def _seeds(words: Mapping[str, int], room: int) -> list[str]:
    """Return substrings that occur more than once, those that cover most characters first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word) - 1):
            for stop in range(start + 2, min(start + LONGEST_PIECE, len(word)) + 1):
                counts[word[start:stop]] += count
    gains = [(count * len(piece), piece) for piece, count in counts.items() if count > 1]
    gains.sort(key=lambda item: (-item[0], item[1]))
    return [piece for _, piece in gains[:room]]


def _losses(
    lattice: "Lattice", others: "Lattice", scores: Floats, alive: NDArray[np.bool_],
    fixed: NDArray[np.bool_],
) -> Floats:  # fmt: skip
    """Return the likelihood loss without each piece; −∞ for an unneeded piece."""
    used, edges = lattice.best(scores)
    pairs = np.unique(np.stack([lattice.word[edges], lattice.piece[edges]], 1), axis=0)
    standing = np.bincount(pairs[:, 1], lattice.count[pairs[:, 0]], len(scores))
    total = used.sum()
    _, edges = others.best(scores)
    word, piece = others.word[edges], others.piece[edges]
    written = np.bincount(word, minlength=len(scores))  # pieces of each piece's replacement
    instead = np.bincount(word, scores[piece], len(scores))
    with np.errstate(divide="ignore", invalid="ignore"):  # for unused pieces
        without = np.log(total + used * (written - 1))
        change = np.log(used[piece] + used[word]) - without[word]
        loss = np.log(used / total) - np.bincount(word, change, len(scores))
        loss = standing / lattice.count.sum() * loss
    loss[(used == 0) | (instead > scores) | ~alive] = -np.inf
    loss[fixed] = -np.inf  # always kept
    return np.asarray(loss)


@dataclass(frozen=True)
class Lattice:
    """All segmentations of all words: an edge is a piece at a position of a word.

    Nodes are the positions between the characters of all words in a row. Edges are sorted by their
    end within the word, so that all edges with the same end are computed together.
    """

    count: Floats  # of each word
    first: Ints  # node of each word
    last: Ints
    piece: Ints  # of each edge, as are the next three
    word: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, words: Sequence[str], count: Floats, pieces: Sequence[str]) -> "Lattice":
        """Return the segmentations of words, which have counts, into pieces."""
        known = {piece: number for number, piece in enumerate(pieces)}
        edges = []
        for number, word in enumerate(words):
            for start in range(len(word)):
                for stop in range(start + 1, min(start + LONGEST_PIECE, len(word)) + 1):
                    if (piece := known.get(word[start:stop])) is not None:
                        edges.append((stop, number, start, piece))
        stops, word_of, starts, used = np.array(edges, np.int64).reshape(-1, 4).T
        lengths = np.array([len(word) for word in words], np.int64)
        last = np.cumsum(lengths + 1) - 1
        order = np.lexsort((starts, word_of, stops))
        first = last - lengths
        nodes = (first[word_of] + ends for ends in (starts, stops))
        edges_of = (each[order] for each in (used, word_of, *nodes))
        return cls(count, first, last, *edges_of)

    @cached_property
    def slices(self) -> list[tuple[slice, Ints]]:
        """Return the edges with the same end, and the start of each node's edges."""
        place = self.end - self.first[self.word]
        cuts = np.flatnonzero(np.diff(place, prepend=-1))
        slices = []
        for begin, stop in pairwise([*cuts, len(place)]):
            ends = self.end[begin:stop]
            slices.append((slice(begin, stop), np.flatnonzero(np.diff(ends, prepend=-1))))
        return slices

    def _with(self, edges: NDArray[np.bool_]) -> "Lattice":
        kept = (each[edges] for each in (self.piece, self.word, self.start, self.end))
        return Lattice(self.count, self.first, self.last, *kept)

    def only(self, alive: NDArray[np.bool_]) -> "Lattice":
        """Return the lattice with only these pieces."""
        return self._with(alive[self.piece])

    def without_itself(self) -> "Lattice":
        """Return the lattice without the edges that span a whole word."""
        return self._with(
            (self.start != self.first[self.word]) | (self.end != self.last[self.word])
        )

    def places(self) -> Floats:
        """Return the number of positions where each piece fits."""
        size = int(self.piece.max()) + 1
        return np.bincount(self.piece, self.count[self.word], size).astype(np.float64)

    def expected(self, chances: Floats) -> Floats:
        """Return the expected count of each piece over all segmentations of the words."""
        chance = chances[self.piece]
        before = np.zeros(self.last[-1] + 1)
        before[self.first] = 1
        for edges, begins in self.slices:
            ways = before[self.start[edges]] * chance[edges]
            before[self.end[edges][begins]] = np.add.reduceat(ways, begins)
        after = np.zeros(len(before))
        after[self.last] = 1
        for edges, _ in reversed(self.slices):
            np.add.at(after, self.start[edges], after[self.end[edges]] * chance[edges])
        weight = (self.count / before[self.last])[self.word]
        through = before[self.start] * chance * after[self.end] * weight
        return np.bincount(self.piece, through, len(chances)).astype(np.float64)

    def best(self, scores: Floats) -> tuple[Floats, Ints]:
        """Return piece counts and edges of the best segmentation of each word."""
        score = scores[self.piece]
        best = np.full(self.last[-1] + 1, -np.inf)
        best[self.first] = 0
        came = np.full(len(best), -1, np.int64)
        for edges, begins in self.slices:
            ways = best[self.start[edges]] + score[edges]
            ends = self.end[edges][begins]
            best[ends] = np.maximum.reduceat(ways, begins)
            sizes = np.diff(begins, append=len(ways))
            number = np.arange(edges.start, edges.stop)
            winner = np.where(ways == np.repeat(best[ends], sizes), number, len(score))
            came[ends] = np.minimum.reduceat(winner, begins)
        used = []
        node = self.last[came[self.last] >= 0]
        while len(node):
            edge = came[node]
            used.append(edge)
            node = self.start[edge]
            node = node[came[node] >= 0]
        edges_used = np.concatenate([*used, np.zeros(0, np.int64)])
        counts = np.bincount(self.piece[edges_used], self.count[self.word[edges_used]], len(scores))
        return counts.astype(np.float64), edges_used
