"""Puzzles on symbols with exact answers, which distinguish attention mechanisms.

An example is a row of symbols, with answers at some positions. Examples are a function of the sizes
and the seed.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import ClassVar

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from regard.core.errors import RegardError

UNASKED = -1  # the target of a position without an answer
PARTS = ("train", "validation", "test")
AT_ONCE = 1 << 22  # random numbers drawn at once
Symbols = NDArray[np.int32]


@dataclass(frozen=True)
class Rows:
    """Examples of one length: symbols, and the index of the answer at each position.

    Both are (count, time).
    """

    symbols: Symbols
    targets: Symbols


@dataclass(frozen=True)
class Sizes:
    """Numbers of examples and their lengths.

    Training and validation examples have lengths from ``shortest`` to ``train_length``, equally
    often; ``shortest=0`` gives all ``train_length``. Test examples have ``test_length``.
    """

    examples: int
    held_out: int
    train_length: int
    test_length: int
    shortest: int = 0


class Puzzle(ABC):
    """A puzzle: its symbols, its answers, and how examples are drawn."""

    #: True if the next symbol is the answer, so that only models that read from left to right may
    #: learn the puzzle.
    contains_answers: ClassVar[bool] = False
    #: Names of the symbols that are no answers.
    signs: ClassVar[tuple[str, ...]] = ()

    @property
    def words(self) -> list[str]:
        """Return the name of each symbol, by default the answers and then the `signs`."""
        return [*self.answers, *self.signs]

    @property
    @abstractmethod
    def answers(self) -> list[str]:
        """Return the name of each answer."""

    @staticmethod
    def answered(rows: Symbols, answers: NDArray[np.integer]) -> Rows:
        """Return rows that have answers at their last positions only."""
        targets = np.full(rows.shape, UNASKED, np.int32)
        targets[:, -answers.shape[1] :] = answers
        return Rows(rows, targets)

    @abstractmethod
    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        """Draw examples of a length. Raises: a length that the other sizes do not allow."""

    def parts(self, sizes: Sizes, seed: int) -> Mapping[str, list[Rows]]:
        """Return train, validation and test, each as rows of several lengths."""
        parts = {}
        for number, part in enumerate(PARTS):
            rng = default_rng([seed, number])
            count = sizes.examples if part == "train" else sizes.held_out
            longest = sizes.test_length if part == "test" else sizes.train_length
            shortest = longest if part == "test" else sizes.shortest or longest
            each = np.bincount(rng.integers(shortest, longest + 1, count), minlength=longest + 1)
            parts[part] = [
                self.draw(rng, int(some), length) for length, some in enumerate(each) if some
            ]
        return parts


@dataclass(frozen=True)
class Recall(Puzzle):
    """Multi-query associative recall (MQAR): key-value pairs, then the keys among other symbols.

    The first 2 · ``pairs`` symbols are k₁ v₁ k₂ v₂ …, with different keys and different values.
    Each key is repeated once, where the answer is its value. The distance of the repetition follows
    a power law. The other positions have random symbols, which may be keys, and no answer. Half of
    the ``symbols`` are keys, the others values. Arora et al. 2023
    (Zoology): 8,192 symbols, length 64, 4 pairs.
    """

    symbols: int
    pairs: int

    @property
    def words(self) -> list[str]:
        half = self.symbols // 2
        return [f"k{i}" for i in range(half)] + self.answers

    @property
    def answers(self) -> list[str]:
        return [f"v{i}" for i in range(self.symbols - self.symbols // 2)]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        half, context = self.symbols // 2, 2 * self.pairs
        if length < 2 * context:
            raise RegardError(
                f"pairs={self.pairs} need at least {2 * context} symbols, not {length}; set "
                f"train_length, test_length and shortest to {2 * context} or more"
            )
        if half - 1 < self.pairs:
            raise RegardError(
                f"{self.pairs} different keys need symbols={2 * self.pairs + 2} or more, not "
                f"{self.symbols}"
            )
        keys = 1 + distinct(rng, count, self.pairs, half - 1)
        values = distinct(rng, count, self.pairs, self.symbols - half)
        space = (length - context) // 2
        weights = np.arange(1, space + 1) ** (0.01 - 1.0)
        # The largest u^(1/w) are a weighted sample without replacement: Efraimidis, Spirakis 2006.
        gaps = (np.log(rng.random((count, space))) / weights).argsort(1)[:, ::-1][:, : self.pairs]
        rows = rng.integers(0, self.symbols, (count, length), dtype=np.int32)
        targets = np.full((count, length), UNASKED, np.int32)
        rows[:, 0:context:2], rows[:, 1:context:2] = keys, half + values
        np.put_along_axis(rows, context + 2 * gaps, keys, 1)
        np.put_along_axis(targets, context + 2 * gaps, values, 1)
        return Rows(rows, targets)


@dataclass(frozen=True)
class Alike(Puzzle):
    """A puzzle whose answers are its ``symbols``."""

    symbols: int

    @property
    def answers(self) -> list[str]:
        return [f"s{i}" for i in range(self.symbols)]


@dataclass(frozen=True)
class Induction(Alike):
    """Different symbols, then a repeated part of them: predict its next symbol.

    The repetition is a third of the ``length`` and begins at a random symbol, so that its distance
    from the original differs between examples. Olsson et al. 2022 repeat the whole sequence.
    """

    contains_answers = True

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        again = length // 3
        first = length - again
        if not again:
            raise RegardError(f"induction needs at least 3 symbols, not {length}; set shortest=3")
        if first > self.symbols:
            raise RegardError(
                f"{length} symbols of which {first} are different need symbols={first} or more, "
                f"not {self.symbols}"
            )
        rows = distinct(rng, count, first, self.symbols)
        places = rng.integers(0, first - again, (count, 1)) + np.arange(again + 1)
        repeated = np.take_along_axis(rows, places, 1)
        return self.answered(np.concatenate([rows, repeated[:, :-1]], 1), repeated[:, 1:])


@dataclass(frozen=True)
class SelectiveCopying(Alike):
    """Symbols among noise, then as many "write": repeat the symbols in order, without the noise.

    ``copied`` symbols are at random positions among ``length``. Gu & Dao 2023 (Mamba), section 4.1:
    16 symbols to copy among 4,096.
    """

    copied: int
    signs: ClassVar[tuple[str, ...]] = ("noise", "write")

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        if length < self.copied:
            raise RegardError(
                f"{length} symbols have no room for copied={self.copied}; set train_length, "
                f"test_length and shortest to {self.copied} or more"
            )
        rows = np.full((count, length + self.copied), self.symbols, np.int32)
        rows[:, length:] = self.symbols + 1
        drawn = rng.integers(0, self.symbols, (count, self.copied), dtype=np.int32)
        places = np.sort(distinct(rng, count, self.copied, length), 1)
        np.put_along_axis(rows, places, drawn, 1)
        return self.answered(rows, drawn)


@dataclass(frozen=True)
class Sorting(Alike):
    """Symbols in random order, with repetitions, then "sort" and the same symbols in order.

    The model predicts each symbol of the result from the previous ones. An example is right if all
    are, which means that the model generates the result.
    """

    contains_answers = True
    signs: ClassVar[tuple[str, ...]] = ("sort",)

    def result(self, drawn: Symbols) -> Symbols:
        """Return the symbols in the order of the result."""
        return np.sort(drawn, 1)

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        drawn = rng.integers(0, self.symbols, (count, length), dtype=np.int32)
        result = self.result(drawn)
        verb = np.full((count, 1), self.symbols, np.int32)
        return self.answered(np.concatenate([drawn, verb, result[:, :-1]], 1), result)


@dataclass(frozen=True)
class Reversing(Sorting):
    """Symbols in random order, then "reverse" and the same symbols from the last to the first.

    Answers and their score are those of `Sorting`.
    """

    signs: ClassVar[tuple[str, ...]] = ("reverse",)

    def result(self, drawn: Symbols) -> Symbols:
        return np.ascontiguousarray(drawn[:, ::-1])


@dataclass(frozen=True)
class MaxRetrieval(Puzzle):
    """Items with a priority and a class, then "max": the class of the item of highest priority.

    A symbol is an item. Exactly one item has the highest priority: the maximum of 64 random numbers
    below ``levels``, or of as many as there are items, if fewer. The others have random priorities
    below it. Veličković et al. 2024, section 3, with real priorities.
    """

    levels: int
    classes: int

    @property
    def words(self) -> list[str]:
        items = [f"{i}x{j}" for i in range(self.levels) for j in range(self.classes)]
        return [*items, "max"]

    @property
    def answers(self) -> list[str]:
        return [f"x{j}" for j in range(self.classes)]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        highest = np.sort(rng.integers(0, self.levels, (count, min(length, 64))), 1)[:, -1:]
        highest = np.maximum(highest, 1)
        levels = rng.integers(0, highest, (count, length))
        place = rng.integers(0, length, (count, 1))
        np.put_along_axis(levels, place, highest, 1)
        classes = rng.integers(0, self.classes, (count, length))
        rows = np.full((count, length + 1), self.levels * self.classes, np.int32)
        rows[:, :length] = levels * self.classes + classes
        return self.answered(rows, np.take_along_axis(classes, place, 1))


@dataclass(frozen=True)
class IndirectIndexing(Alike):
    """Different symbols, one of them again, and a shift: the symbol at this distance from it.

    "s3 s7 s1 s4 s7 right2" has the answer s4. Shifts are from 1 to ``reach`` places, to the left
    or to the right. Gopalakrishnan et al. 2025 (PoPE).
    """

    reach: int

    @property
    def words(self) -> list[str]:
        shifts = range(1, self.reach + 1)
        return [*self.answers, *(f"left{i}" for i in shifts), *(f"right{i}" for i in shifts)]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        if not 2 <= length <= self.symbols:
            raise RegardError(
                f"{length} different symbols are not from 2 to symbols={self.symbols}; set symbols="
                "or the lengths"
            )
        drawn = distinct(rng, count, length, self.symbols)
        at = np.arange(length)
        apart = np.abs(at[:, None] - at)
        pairs = np.argwhere((apart > 0) & (apart <= self.reach))
        place, other = pairs[rng.integers(0, len(pairs), count)].T
        shift = other - place
        rows = np.empty((count, length + 2), np.int32)
        rows[:, :length], row = drawn, np.arange(count)
        rows[:, length] = drawn[row, place]
        rows[:, -1] = self.symbols + np.where(shift < 0, 0, self.reach) + np.abs(shift) - 1
        return self.answered(rows, drawn[row, other][:, None])


@dataclass(frozen=True)
class ModularAddition(Puzzle):
    """Two numbers below ``modulus``, then "equals": the sum modulo ``modulus``.

    There are ``modulus``² examples: a ``share`` of them, chosen by the seed, is for training, and
    each half of the others for validation and test. Power et al. 2022; Nanda et al. 2023 with
    modulus 113 and share 0.3.
    """

    modulus: int
    share: float
    signs: ClassVar[tuple[str, ...]] = ("equals",)

    @property
    def answers(self) -> list[str]:
        return [f"n{i}" for i in range(self.modulus)]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        p = self.modulus
        pairs = rng.permutation(p * p)[:count]
        a, b = pairs // p, pairs % p
        rows = np.stack([a, b, np.full_like(a, p)], 1).astype(np.int32)
        return self.answered(rows, ((a + b) % p)[:, None])

    def parts(self, sizes: Sizes, seed: int) -> Mapping[str, list[Rows]]:
        """Return train, validation and test, which share no pair."""
        whole = self.draw(default_rng([seed, 0]), self.modulus**2, 3)
        n = len(whole.symbols)
        first = round(self.share * n)
        ends = [0, first, (first + n) // 2, n]
        if not 0 < first < n - 1:
            raise RegardError(f"share={self.share} of {n} pairs leaves a part without examples")
        return {
            part: [Rows(whole.symbols[a:b], whole.targets[a:b])]
            for part, a, b in zip(PARTS, ends, ends[1:], strict=False)
        }


@dataclass(frozen=True)
class Counting(Puzzle):
    """Numbers below ``modulus``: the answer at each position is their sum so far; 2 is parity.

    A state whose eigenvalues are in (0, 1) cannot solve it at every length: Grazzi et al. 2025,
    theorems 1 and 2.
    """

    modulus: int

    @property
    def answers(self) -> list[str]:
        return [f"n{i}" for i in range(self.modulus)]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        rows = rng.integers(0, self.modulus, (count, length), dtype=np.int32)
        return Rows(rows, (rows.cumsum(1) % self.modulus).astype(np.int32))


@dataclass(frozen=True)
class Permutations(Puzzle):
    """Permutations of ``points`` things: the answer at each position is their product so far.

    p102 swaps the first two; each is applied after those before it. The word problem of S₃ for 3
    points, of S₅ for 5: Siems et al. 2025, section 5.1.
    """

    points: int

    @property
    def answers(self) -> list[str]:
        return [f"p{''.join(map(str, each))}" for each in permutations(range(self.points))]

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        group = [*permutations(range(self.points))]  # the first changes nothing
        number = {each: i for i, each in enumerate(group)}
        after = np.array([[number[tuple(a[i] for i in b)] for b in group] for a in group])
        rows = rng.integers(0, len(group), (count, length), dtype=np.int32)
        targets, state = np.empty_like(rows), np.zeros(count, int)
        for t in range(length):
            targets[:, t] = state = after[rows[:, t], state]
        return Rows(rows, targets)


@dataclass(frozen=True)
class Stack(Alike):
    """Symbols, which are put on a stack, and "pop": the answer is the symbol that it removes.

    Half of the steps are "pop", as long as the stack is not empty. Kimi team 2025, section 5.
    """

    signs: ClassVar[tuple[str, ...]] = ("pop",)

    def draw(self, rng: Generator, count: int, length: int) -> Rows:
        rows = rng.integers(0, self.symbols, (count, length), dtype=np.int32)
        pops = rng.random((count, length)) < 0.5
        targets = np.full_like(rows, UNASKED)
        stack, height, row = np.empty_like(rows), np.zeros(count, int), np.arange(count)
        for t in range(length):
            popped = pops[:, t] & (height > 0)
            targets[popped, t] = stack[row, height - 1][popped]
            stack[row[~popped], height[~popped]] = rows[~popped, t]
            rows[popped, t] = self.symbols
            height += np.where(popped, -1, 1)
        return Rows(rows, targets)


def distinct(rng: Generator, count: int, take: int, among: int) -> NDArray[np.int32]:
    """Draw ``take`` different numbers below ``among`` in random order, for each of ``count`` rows.

    >>> distinct(default_rng(0), 1, 4, 4).shape, sorted(distinct(default_rng(0), 1, 4, 4)[0])
    ((1, 4), [np.int32(0), np.int32(1), np.int32(2), np.int32(3)])
    """
    parts = [np.empty((0, take), np.int32)]
    at_once = max(1, AT_ONCE // among)
    for first in range(0, count, at_once):
        drawn = rng.random((min(at_once, count - first), among))
        chosen = drawn.argpartition(take - 1, 1)[:, :take] if take < among else drawn.argsort(1)
        parts.append(rng.permuted(chosen, axis=1).astype(np.int32))
    return np.concatenate(parts)
