"""Synthetic tasks on symbols that test different abilities of attention; unlimited examples.

Symbol 0 is padding. The examples are a pure function of count and seed.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

PAD = 0


@dataclass(frozen=True)
class Examples:
    """Inputs and targets, at one position or at several.

    ``lengths`` of padded inputs; None without padding.
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
    """Return associative recall: k₁ v₁ … k_p v_p, then one of the keys; predict its value.

    Keys are distinct within an example, and so are values, so guessing among the values is right
    with probability 1 / ``pairs``. Keys are symbols 1 … ``symbols``, values the next ``symbols``; a
    target is the index of its value. Ba et al. 2016, section 4.1.

    >>> examples = recall(1, seed=1, pairs=2, symbols=3)
    >>> examples.tokens.tolist(), examples.targets.tolist()
    ([[...]], [[...]])
    """
    draw = torch.Generator().manual_seed(seed)
    keys, values = (
        torch.rand(count, symbols, generator=draw).argsort(-1)[:, :pairs] for _ in range(2)
    )
    pick = torch.randint(pairs, (count, 1), generator=draw)
    context = torch.stack([1 + keys, 1 + symbols + values], -1).flatten(1)
    return Examples(torch.cat([context, 1 + keys.gather(1, pick)], 1), values.gather(1, pick))


def sorting(count: int, seed: int, *, length: int = 8, symbols: int = 10) -> Examples:
    """Return symbols in random order, with repetitions; predict them sorted.

    >>> examples = sorting(1, seed=0, length=4)
    >>> examples.tokens.tolist(), examples.targets.tolist()
    ([[...]], [[...]])
    """
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randint(symbols, (count, length), generator=draw)
    return Examples(1 + drawn, drawn.sort(-1).values)
