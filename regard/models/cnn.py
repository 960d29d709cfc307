"""Convolutions over words and their maxima. Kim 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.layers.embedding import Vectors, WordEmbedding, inside
from regard.layers.pooling import MaxPool
from regard.models.settings import ConvolutionalSettings


class ConvolutionalClassifier(nn.Module):
    """label = Linear([max_t ReLU(filter · (x_t … x_{t+w−1}))] over filters of several widths w).

    A window holds at least one word of the text and reads zeros before it begins and past its end:
    a filter can tell where a text begins or ends, and the shortest text fills a window. Without a
    pool a token's label is Linear([ReLU(filter · the window about it)]).
    """

    def __init__(
        self,
        settings: ConvolutionalSettings,
        vocabulary: int,
        labels: int,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__()
        self.embedding = WordEmbedding(
            vocabulary,
            settings.width,
            spread=settings.spread,
            word_dropout=settings.word_dropout,
            vectors=vectors,
        )
        self.reach = [int(width) - 1 for width in settings.widths.split(",")]
        self.filters = nn.ModuleList(
            nn.Conv1d(self.embedding.width, settings.filters, reach + 1) for reach in self.reach
        )
        #: Makes one vector of a text; None: every token has an answer of its own.
        self.pool: nn.Module | None = MaxPool()
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(settings.filters * len(self.reach), labels)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of the labels: of each text, or without a pool of each token."""
        x = self.embedding(tokens, lengths)
        x = (x * inside(lengths, tokens.shape[1])[..., None]).mT
        found = []
        for reach, window in zip(self.reach, self.filters, strict=True):
            scores = window(F.pad(x, (reach, reach))).mT
            if self.pool is None:  # the window that has the token in its middle
                found.append(F.relu(scores[:, reach // 2 :][:, : tokens.shape[1]]))
            else:
                found.append(F.relu(self.pool(scores, lengths + reach)))
        states = torch.cat(found, -1)
        logits: Tensor = self.to_labels(drop(states, self.dropout, self.training))
        return logits
