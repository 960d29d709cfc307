"""Random strings and their reversals: a task that requires attention to the source.

Each letter A … Z is drawn uniformly, so that nothing can be guessed, and target letter i is source
letter n − 1 − i.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
from jaxtyping import Bool, UInt8

from regard.core.errors import RegardError
from regard.lab.data.pairs import Pair

LETTERS = 26
FIRST = ord("A")


@dataclass(frozen=True, slots=True)
class Reversal(Pair):
    """A string and its reversal."""

    def alignment(self) -> Bool[np.ndarray, "target source"]:
        """Return the anti-diagonal: target letter i is source letter n − 1 − i."""
        return np.eye(len(self.source), dtype=bool)[::-1]


class Reversals(Sequence[Pair]):
    """Strings and their reversals, stored as letters 0 … 25; pairs are created on access."""

    def __init__(self, letters: UInt8[np.ndarray, "count length"], name: str = "reverse") -> None:
        self.letters, self.name = letters, name

    def __len__(self) -> int:
        return len(self.letters)

    @overload
    def __getitem__(self, place: int) -> Reversal: ...
    @overload
    def __getitem__(self, place: slice) -> list[Pair]: ...
    def __getitem__(self, place: int | slice) -> Reversal | list[Pair]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        source = (self.letters[place] + FIRST).tobytes().decode()
        return Reversal(source, source[::-1], f"{self.name}:{place % len(self) + 1}")

    def __iter__(self) -> Iterator[Reversal]:
        text, length = (self.letters + FIRST).tobytes().decode(), self.letters.shape[1]
        for row, start in enumerate(range(0, len(text), length), 1):
            source = text[start : start + length]
            yield Reversal(source, source[::-1], f"{self.name}:{row}")


def reversals(count: int, length: int, seed: int = 0, name: str = "reverse") -> Reversals:
    """Return `count` random strings of `length` letters with their reversals.

    They are a pure function of the arguments; a smaller `count` gives a prefix of a larger one. At
    length 10, two of a million are equal with probability 0.4 %; up to length 4, seeds share
    strings.

    >>> first, second = reversals(2, 5, seed=1)
    >>> first.source, first.target, second.place
    ('YRIVY', 'YVIRY', 'reverse:2')
    >>> first.alignment().astype(int).tolist()[0]
    [0, 0, 0, 0, 1]
    """
    if count < 0 or length < 1 or seed < 0:
        raise RegardError(
            "count and seed must be 0 or more and length 1 or more, "
            f"not count={count}, seed={seed} and length={length}"
        )
    random = np.random.Generator(np.random.PCG64([seed, length]))
    return Reversals(random.integers(0, LETTERS, (count, length), np.uint8), name)
