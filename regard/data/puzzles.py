"""Small tasks made of symbols, each asking another thing of attention; examples without end.

Symbol 0 is padding. The n-th examples of a seed are always the same ones.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

PAD = 0


@dataclass(frozen=True)
class Examples:
    """Inputs and what is to be answered, at one position or at several.

    ``lengths`` where the inputs are padded; None where all are full.
    """

    tokens: Int[Tensor, "*batch time"]
    targets: Int[Tensor, "*batch asked"]
    lengths: Int[Tensor, "*batch"] | None = None

    def __getitem__(self, which: slice | Tensor) -> "Examples":
        lengths = None if self.lengths is None else self.lengths[which]
        return replace(
            self, tokens=self.tokens[which], targets=self.targets[which], lengths=lengths
        )

    def __len__(self) -> int:
        return len(self.tokens)


def recall(count: int, seed: int, *, pairs: int = 8, symbols: int = 16) -> Examples:
    """Associative recall: k₁ v₁ … k_p v_p, then one of the keys; its value is to be told.

    The keys of an example all differ, and so do its values, so whoever knows the values and not
    which of them belongs to the key is right once in ``pairs``. Keys are symbols 1 … ``symbols``,
    values the next as many; a target is the number of its value. Ba et al. 2016, section 4.1.

    >>> found = recall(1, seed=1, pairs=2, symbols=3)
    >>> found.tokens.tolist(), found.targets.tolist()
    ([[...]], [[...]])
    """
    draw = torch.Generator().manual_seed(seed)
    keys, values = (
        torch.rand(count, symbols, generator=draw).argsort(-1)[:, :pairs] for _ in range(2)
    )
    asked = torch.randint(pairs, (count, 1), generator=draw)
    told = torch.stack([1 + keys, 1 + symbols + values], -1).flatten(1)
    return Examples(torch.cat([told, 1 + keys.gather(1, asked)], 1), values.gather(1, asked))


def sorting(count: int, seed: int, *, length: int = 8, symbols: int = 10) -> Examples:
    """Symbols in any order, some of them twice; each position is to tell the one of its rank.

    >>> found = sorting(1, seed=0, length=4)
    >>> found.tokens.tolist(), found.targets.tolist()
    ([[...]], [[...]])
    """
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randint(symbols, (count, length), generator=draw)
    return Examples(1 + drawn, drawn.sort(-1).values)
