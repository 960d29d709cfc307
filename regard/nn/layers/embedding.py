"""Word embeddings: random or pretrained initial vectors, dropout of entries and of whole words."""

from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.attention import Mask
from regard.attention import lengths as up_to
from regard.attention.tracing import on_cpu
from regard.core.errors import RegardError
from regard.nn.layers.dropout import drop

PAD = 0
UNKNOWN = 1


class Vectors(Protocol):
    """Pretrained vectors: ``matrix[i]`` is the vector of the word with id ``ids[i]``."""

    @property
    def matrix(self) -> NDArray[np.float32]:
        """Return the vectors (found, width)."""

    @property
    def ids(self) -> NDArray[np.integer]:
        """Return the ids (found,), each below the size of the vocabulary."""


def inside(lengths: Int[Tensor, " batch"], time: int) -> Bool[Tensor, "batch time"]:
    """Return True for tokens of the text, False for padding.

    >>> inside(torch.tensor([2, 0]), 3).tolist()
    [[True, True, False], [False, False, False]]
    """
    return torch.arange(time, device=lengths.device) < lengths[:, None]


def padding(lengths: Int[Tensor, " batch"], time: int) -> Mask | None:
    """Return the mask that hides padding; on a CPU None if all texts are as long as the batch.

    >>> print(padding(torch.tensor([3, 3]), 3))
    None
    >>> padding(torch.tensor([2, 3]), 3)
    lengths([2, 3])
    """
    whole = on_cpu(lengths) and bool((lengths == time).all())
    return None if whole else up_to(lengths)


def lose_words(
    tokens: Int[Tensor, "batch time"], share: float, instead: int
) -> Int[Tensor, "batch time"]:
    """Replace each token, except padding, by ``instead`` with probability ``share``.

    >>> lose_words(torch.tensor([[7, 8, 0]]), share=1.0, instead=1).tolist()
    [[1, 1, 0]]
    """
    if not share:
        return tokens
    lost = torch.rand(tokens.shape, device=tokens.device) < share
    return tokens.masked_fill(lost & (tokens != PAD), instead)


class WordEmbedding(nn.Module):
    """A table with one trainable vector for each word.

    The vector of padding is zero, and remains zero unless an output layer shares the vectors.

    Initial values are normal with standard deviation ``init_std``. A word in ``vectors`` starts
    with its pretrained vector, also scaled to ``init_std``, so that Adam changes it at the same
    rate as the others (unscaled pretrained vectors learn more slowly). In training, whole
    words are replaced by UNKNOWN with probability ``word_dropout`` (Iyyer et al. 2015; here the
    vector of UNKNOWN learns to represent a dropped word), and single entries are zeroed with
    probability ``dropout``.

    Raises: a vector for an id outside the vocabulary.
    """

    def __init__(
        self,
        vocabulary: int,
        width: int,
        *,
        init_std: float = 0.1,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__()
        if vectors is not None:
            width = vectors.matrix.shape[1]
        self.width = width
        self.dropout, self.word_dropout = dropout, word_dropout
        self.weight = nn.Parameter(torch.randn(vocabulary, width) * init_std)
        with torch.no_grad():
            if vectors is not None:
                ids = torch.from_numpy(np.asarray(vectors.ids, dtype=np.int64))
                if len(ids) and int(ids.max()) >= vocabulary:
                    raise RegardError(
                        f"word id {int(ids.max())} of the vectors exceeds the vocabulary's last "
                        f"id, {vocabulary - 1}; load the vectors with this vocabulary"
                    )
                if len(ids):
                    known = torch.from_numpy(np.array(vectors.matrix, dtype=np.float32))
                    self.weight[ids] = known * (init_std / known.square().mean().sqrt())
            self.weight[PAD] = 0

    def extra_repr(self) -> str:
        return f"{len(self.weight):,} words, width={self.width}"

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch time width"]:
        """Return the vectors of the words; after each text's length, the vector of padding."""
        tokens = tokens.masked_fill(~inside(lengths, tokens.shape[1]), PAD)
        if self.training:
            tokens = lose_words(tokens, self.word_dropout, UNKNOWN)
        vectors = F.embedding(tokens, self.weight, padding_idx=PAD)
        return drop(vectors, self.dropout, self.training)
