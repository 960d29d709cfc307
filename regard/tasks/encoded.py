"""A split of pairs as token ids: in memory, or on the disk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.data.pairs import Pair, StreamedPairs
from regard.data.stored import Rows, store_pairs
from regard.data.tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """A split as token ids of both sides, and the pairs that they come from.

    ``lengths``: tokens of each pair, both sides and the end of the target.
    """

    source: Sequence[NDArray[np.integer]]
    target: Sequence[NDArray[np.integer]]
    pairs: Sequence[Pair]
    lengths: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def held(
        cls,
        source: Sequence[NDArray[np.integer]],
        target: Sequence[NDArray[np.integer]],
        pairs: Sequence[Pair],
    ) -> "Encoded":
        """A split that is in memory."""
        lengths = [len(a) + len(b) + 1 for a, b in zip(source, target, strict=True)]
        return cls(source, target, pairs, np.array(lengths, np.int64))

    @classmethod
    def stored(cls, pairs: StreamedPairs, tokenizer: Tokenizer, most: int) -> "Encoded":
        """A split on the disk, without the pairs of more than `most` tokens on a side."""
        found = store_pairs(pairs, tokenizer, fingerprint=pairs.fingerprint)
        source, target = found.source.lengths, found.target.lengths
        kept = np.flatnonzero((source <= most) & (target <= most))
        lengths = source + target + 1
        if len(kept) == len(lengths):
            return cls(found.source, found.target, (), lengths)
        return cls(Rows(found.source, kept), Rows(found.target, kept), (), lengths[kept])
