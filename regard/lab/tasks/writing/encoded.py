"""Splits of text pairs as token ids, in memory or on disk, and their batches."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from regard.lab.data.pairs import Pair, StreamedPairs
from regard.lab.data.streamed import store_pairs
from regard.lab.data.tokenizers import Tokenizer
from regard.training.batches import pad


@dataclass(frozen=True)
class Encoded:
    """A split as token ids of both sides, with the original pairs.

    ``lengths``: tokens of each pair, both sides and the end symbol of the target.
    """

    source: Sequence[NDArray[np.integer]]
    target: Sequence[NDArray[np.integer]]
    pairs: Sequence[Pair]
    lengths: NDArray[np.integer]

    def __len__(self) -> int:
        return len(self.source)

    @classmethod
    def in_memory(
        cls,
        source: Sequence[NDArray[np.integer]],
        target: Sequence[NDArray[np.integer]],
        pairs: Sequence[Pair],
    ) -> "Encoded":
        """Create a split in memory."""
        lengths = [len(a) + len(b) + 1 for a, b in zip(source, target, strict=True)]
        return cls(source, target, pairs, np.array(lengths, np.int64))

    @classmethod
    def stored(cls, pairs: StreamedPairs, tokenizer: Tokenizer, most: int) -> "Encoded":
        """Create a split on disk, without pairs of more than ``most`` tokens on a side."""
        stored = store_pairs(pairs, tokenizer, fingerprint=pairs.fingerprint)
        sides = stored.source, stored.target
        rows = np.flatnonzero((sides[0].lengths <= most) & (sides[1].lengths <= most))
        source, target = (side.select(rows) for side in sides)
        return cls(source, target, (), source.lengths + target.lengths + 1)


@dataclass(frozen=True)
class PairBatch:
    """A batch of padded pairs; ``decoder_input`` is the decoder's input, ``wanted`` its target.

    ``real`` marks the positions of ``wanted`` that are not padding.
    """

    source: Int[Tensor, "batch read"]
    source_lengths: Int[Tensor, " batch"]
    decoder_input: Int[Tensor, "batch written"]
    wanted: Int[Tensor, "batch written"]
    real: Bool[Tensor, "batch written"]

    @property
    def lengths(self) -> Int[Tensor, " batch"]:
        """Return the number of tokens of each pair, both sides and the end symbol."""
        return self.source_lengths + self.real.sum(1)


def paired(
    sources: Sequence[NDArray[np.integer]], targets: Sequence[NDArray[np.integer]], end: int
) -> PairBatch:
    """Batch the token ids of both sides: 0 starts the decoder's input, ``end`` ends its target."""
    source, source_lengths = pad(sources)
    decoder_input, _ = pad([np.concatenate([[0], ids]) for ids in targets])
    wanted, lengths = pad([np.concatenate([ids, [end]]) for ids in targets])
    real = torch.arange(wanted.shape[1]) < lengths[:, None]
    return PairBatch(source, source_lengths, decoder_input, wanted, real)
