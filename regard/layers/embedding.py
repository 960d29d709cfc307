"""Words to vectors: random or pretrained first values, and two ways to lose words in training."""

from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.errors import RegardError
from regard.layers.dropout import drop

PAD = 0
UNKNOWN = 1


class Vectors(Protocol):
    """Pretrained vectors: ``matrix[i]`` belongs to the word whose id is ``ids[i]``."""

    @property
    def matrix(self) -> NDArray[np.float32]:
        """(found, width)."""

    @property
    def ids(self) -> NDArray[np.integer]:
        """(found,), each below the size of the vocabulary."""


def inside(lengths: Int[Tensor, " batch"], time: int) -> Bool[Tensor, "batch time"]:
    """True where a token belongs to the text, False on padding.

    >>> inside(torch.tensor([2, 0]), 3).tolist()
    [[True, True, False], [False, False, False]]
    """
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def lose_words(
    tokens: Int[Tensor, "batch time"], share: float, instead: int
) -> Int[Tensor, "batch time"]:
    """Put ``instead`` in the place of each token but padding with probability ``share``.

    >>> lose_words(torch.tensor([[7, 8, 0]]), share=1.0, instead=1).tolist()
    [[1, 1, 0]]
    """
    if not share:
        return tokens
    lost = torch.rand(tokens.shape, device=tokens.device) < share
    return tokens.masked_fill(lost & (tokens != PAD), instead)


class WordEmbedding(nn.Module):
    """One vector a word, all of them trained but that of padding, which begins as zero.

    It stays so unless an output layer shares the vectors.

    First values are normal with standard deviation ``spread``, or the given pretrained vectors
    where a word has one, scaled to ``spread`` too: a step of Adam moves them as far as the others
    (at their own scale they learn more slowly). In training whole words are
    replaced by UNKNOWN with probability ``word_dropout`` (Iyyer et al. 2015; here the vector of
    UNKNOWN learns to stand for a lost word) and single entries zeroed with ``dropout``.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        spread: float = 0.1,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__()
        if vectors is not None:
            width = vectors.matrix.shape[1]
        self.width = width
        self.dropout, self.word_dropout = dropout, word_dropout
        self.weight = nn.Parameter(torch.randn(vocabulary, width) * spread)
        with torch.no_grad():
            if vectors is not None:
                ids = torch.from_numpy(np.asarray(vectors.ids, dtype=np.int64))
                if len(ids) and int(ids.max()) >= vocabulary:
                    raise RegardError(
                        f"vectors are for word {int(ids.max())}, the vocabulary ends at "
                        f"{vocabulary - 1}; load them with this vocabulary"
                    )
                if len(ids):
                    known = torch.from_numpy(np.array(vectors.matrix, dtype=np.float32))
                    self.weight[ids] = known * (spread / known.square().mean().sqrt())
            self.weight[PAD] = 0

    def extra_repr(self) -> str:
        return f"{len(self.weight):,} words, width={self.width}"

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time width"]:
        """Vectors of the words; that of padding beyond each text's length."""
        tokens = tokens.masked_fill(~inside(lengths, tokens.shape[1]), PAD)
        if self.training:
            tokens = lose_words(tokens, self.word_dropout, UNKNOWN)
        vectors = F.embedding(tokens, self.weight, padding_idx=PAD)
        return drop(vectors, self.dropout, self.training)
