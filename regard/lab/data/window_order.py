"""The order of an epoch: a seeded permutation without a table, and batches computed on demand.

Shuffling a table of 10⁹ windows takes 8 GB and minutes. Here the window at each place is a function
of (seed, epoch, place), so a training resumes at any step without computing earlier ones, and every
process computes only its share.
"""

from collections.abc import Callable, Sequence
from typing import Final, overload

import numpy as np
from jaxtyping import Int64
from numpy.typing import NDArray

from regard.core.errors import RegardError

ROUNDS: Final = 6  # Luby & Rackoff 1988: 4 are pseudorandom with random round functions
_FACTORS = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


class Shuffled:
    """A permutation of 0 … count − 1 by a key, in constant memory.

    A Feistel network permutes 0 … 4ʰ − 1, the smallest such range that holds count; a value outside
    is permuted again until it is inside ("cycle walking"), at most four times on average. Black &
    Rogaway 2002, *Ciphers with arbitrary finite domains*. The round function is the finalizer of
    SplitMix64 (Steele et al. 2014).

    >>> order = Shuffled(10, (0, 0)).at(np.arange(10))
    >>> sorted(order.tolist()) == list(range(10)), order.tolist() == list(range(10))
    (True, False)
    """

    def __init__(self, count: int, key: Sequence[int]) -> None:
        if count < 1:
            raise RegardError(f"an order needs at least one window, not {count}")
        self.count = np.uint64(count)
        half = max(1, ((count - 1).bit_length() + 1) // 2)
        self.half, self.mask = np.uint64(half), np.uint64((1 << half) - 1)
        self.keys = np.random.SeedSequence(list(key)).generate_state(ROUNDS, np.uint64)

    def at(self, places: NDArray[np.integer]) -> Int64[np.ndarray, " places"]:
        """Return the values at these places of the order."""
        values = self._rounds(np.asarray(places).astype(np.uint64))
        while (outside := values >= self.count).any():
            values[outside] = self._rounds(values[outside])
        return values.astype(np.int64)

    def _rounds(self, values: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = values >> self.half, values & self.mask
        for key in self.keys:
            left, right = right, left ^ (_mixed(right + key) & self.mask)
        return (left << self.half) | right


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    x = (x ^ (x >> _SHIFTS[0])) * _FACTORS[0]
    x = (x ^ (x >> _SHIFTS[1])) * _FACTORS[1]
    return x ^ (x >> _SHIFTS[2])


class WindowPlan(Sequence[NDArray[np.integer]]):
    """The batches of an epoch over `count` windows, with `size` windows each, computed on access.

    Batch i has the places i·size … of the epoch's order; the last may be smaller. A slice is also a
    plan: process r of w uses ``plan[r::w]``, or the rows ``[r::w]`` of each batch, and no window is
    read twice. Without `shuffle` the order is 0, 1, …. `name` converts a batch's indexes to keys.

    >>> plan = WindowPlan(10, 4, seed=0, epoch=0, shuffle=False)
    >>> [batch.tolist() for batch in plan], [batch.tolist() for batch in plan[2:]]
    ([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], [[8, 9]])
    """

    def __init__(
        self,
        count: int,
        size: int,
        *,
        seed: int,
        epoch: int,
        shuffle: bool = True,
        name: Callable[[NDArray[np.integer]], NDArray[np.integer]] | None = None,
    ) -> None:
        self.windows, self.size, self.name = count, size, name
        self.order = Shuffled(count, (seed, epoch)) if shuffle else None
        self.numbers = range(-(-count // size))

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.integer]: ...
    @overload
    def __getitem__(self, place: slice) -> "WindowPlan": ...
    def __getitem__(self, place: int | slice) -> "NDArray[np.integer] | WindowPlan":
        if isinstance(place, slice):
            part = object.__new__(WindowPlan)
            part.__dict__.update(self.__dict__, numbers=self.numbers[place])
            return part
        start = self.numbers[place] * self.size
        places = np.arange(start, min(start + self.size, self.windows))
        indexes: NDArray[np.integer] = self.order.at(places) if self.order else places
        return self.name(indexes) if self.name else indexes
