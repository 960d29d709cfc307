"""Unigram's pieces, learned: the vocabulary under which the words are likeliest.

A word may be cut in many ways; its probability is the sum over all of them of the product of the
pieces' probabilities. Kudo 2018, section 3.2; details as in SentencePiece
(unigram_model_trainer.cc): begin with many pieces, the frequent substrings, and in turns

* fit their probabilities by expectation maximisation, two steps of it, with exp(digamma(count))
  for a count, which makes rare pieces rarer (Liang & Klein 2007), and
* drop the quarter of them without which the words lose least: a piece's loss is what the words
  that it stands in lose when it is written by its own best other pieces,

until so many are left as were asked for. Characters stay.

Written here because the trainer of `tokenizers` sums in the order of a hash map, which differs
from process to process, and because with its 8,000 pieces Multi30k's train takes 988,882 of them,
with these 829,939 (and 846,343 byte pairs).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

WORDS = 100_000  # different words learned from, the most frequent: the others weigh little
SIGNS = 1_000_000  # of all of them: a writing without spaces has long ones, and takes some 1 GB
LONGEST_WORD = 32  # characters; longer ones are cut, so that no probability underflows
LONGEST_PIECE = 16
SEEDS = 100_000  # pieces to begin with
KEPT = 0.75  # of the pieces, from turn to turn
STEPS = 2  # of expectation maximisation in each turn
SLACK = 1.1  # pieces at the last turn, over those asked for
RARE = 0.5  # expected occurrences below which a piece is dropped

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def learn_pieces(words: Mapping[str, int], alphabet: Iterable[str], size: int) -> dict[str, float]:
    """At most `size` pieces of the words (with their counts), ln of each one's probability.

    All of the `alphabet`, the characters of the words, is among them. The same words give the
    same pieces, in whatever order they come.

    >>> pieces = learn_pieces({"hug": 10, "pug": 5, "hugs": 5, "pun": 12}, "hugpns", 8)
    >>> sorted(pieces)
    ['g', 'h', 'hug', 'n', 'p', 'pun', 's', 'u']
    """
    counts = _shortened(words)
    characters = sorted(set(alphabet))
    pieces = [*characters, *_seeds(counts, room=max(SEEDS, 2 * size))]
    if not counts:
        return {}
    lattice = Lattice(list(counts), np.array(list(counts.values()), np.float64), pieces)
    others = Lattice(pieces, np.ones(len(pieces)), pieces).without_itself()
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
    """The most frequent words by count, then alphabet, cut where they are too long."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(0, len(word), LONGEST_WORD):
            counts[word[start : start + LONGEST_WORD]] += count
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:WORDS]
    signs = np.cumsum([len(word) for word, _ in found])
    return dict(found[: int(np.searchsorted(signs, SIGNS, "right")) or 1])


def _seeds(words: Mapping[str, int], room: int) -> list[str]:
    """Substrings that occur more than once, those that cover most characters first."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for start in range(len(word) - 1):
            for stop in range(start + 2, min(start + LONGEST_PIECE, len(word)) + 1):
                counts[word[start:stop]] += count
    found = [(count * len(piece), piece) for piece, count in counts.items() if count > 1]
    found.sort(key=lambda item: (-item[0], item[1]))
    return [piece for _, piece in found[:room]]


def _losses(
    lattice: "Lattice", others: "Lattice", scores: Floats, alive: NDArray[np.bool_],
    fixed: NDArray[np.bool_],
) -> Floats:  # fmt: skip
    """What the words lose without each piece; −∞ for one that no word would miss."""
    used, edges = lattice.best(scores)
    seen = np.unique(np.stack([lattice.word[edges], lattice.piece[edges]], 1), axis=0)
    standing = np.bincount(seen[:, 1], lattice.count[seen[:, 0]], len(scores))
    total = used.sum()
    _, edges = others.best(scores)
    word, piece = others.word[edges], others.piece[edges]
    written = np.bincount(word, minlength=len(scores))  # pieces of each one's other writing
    instead = np.bincount(word, scores[piece], len(scores))
    with np.errstate(divide="ignore", invalid="ignore"):  # of pieces that are used nowhere
        without = np.log(total + used * (written - 1))
        change = np.log(used[piece] + used[word]) - without[word]
        loss = np.log(used / total) - np.bincount(word, change, len(scores))
        loss = standing / lattice.count.sum() * loss
    loss[(used == 0) | (instead > scores) | ~alive] = -np.inf
    loss[fixed] = -np.inf  # they stay whatever they are worth
    return np.asarray(loss)


@dataclass(frozen=True)
class Lattice:
    """All ways to cut all words: an edge is a piece at a place of a word.

    Nodes are the places between the characters of all words in a row. Edges are sorted by the
    place in its word where they end, so that a slice of them, one place, is done in one go.
    """

    count: Floats  # of each word
    first: Ints  # node of each word
    last: Ints
    piece: Ints  # of each edge, and so are those below
    word: Ints
    start: Ints
    end: Ints
    slices: tuple[tuple[slice, Ints], ...]  # edges that end at one place, where each node's begin

    def __init__(self, words: Sequence[str], count: Floats, pieces: Sequence[str]) -> None:
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
        self._set(
            count,
            first,
            last,
            used[order],
            word_of[order],
            (first[word_of] + starts)[order],
            (first[word_of] + stops)[order],
        )

    def _set(self, *values: NDArray[np.generic]) -> None:
        names = ("count", "first", "last", "piece", "word", "start", "end")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
        place = self.end - self.first[self.word]
        cuts = np.flatnonzero(np.diff(place, prepend=-1))
        slices = []
        for begin, stop in pairwise([*cuts, len(place)]):
            ends = self.end[begin:stop]
            slices.append((slice(begin, stop), np.flatnonzero(np.diff(ends, prepend=-1))))
        object.__setattr__(self, "slices", tuple(slices))

    def _with(self, edges: NDArray[np.bool_]) -> "Lattice":
        other = object.__new__(Lattice)
        kept = (each[edges] for each in (self.piece, self.word, self.start, self.end))
        other._set(self.count, self.first, self.last, *kept)
        return other

    def only(self, alive: NDArray[np.bool_]) -> "Lattice":
        """The same with these pieces alone."""
        return self._with(alive[self.piece])

    def without_itself(self) -> "Lattice":
        """The same without the edges that are a whole word."""
        return self._with(
            (self.start != self.first[self.word]) | (self.end != self.last[self.word])
        )

    def places(self) -> Floats:
        """How often each piece could stand somewhere."""
        size = int(self.piece.max()) + 1
        return np.bincount(self.piece, self.count[self.word], size).astype(np.float64)

    def expected(self, chances: Floats) -> Floats:
        """How often each piece stands somewhere, over all ways to cut the words."""
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
        """The likeliest way to cut each word: how often each piece is used, and the edges."""
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
