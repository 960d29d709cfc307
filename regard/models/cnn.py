"""Convolutions over words and their maxima. Kim 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.layers.dropout import drop
from regard.layers.embedding import Vectors, WordEmbedding, inside
from regard.models.settings import ConvolutionalSettings


class ConvolutionalClassifier(nn.Module):
    """label = Linear([max_t ReLU(filter · (x_t … x_{t+w−1}))] over filters of several widths w).

    A window holds at least one word of the text and reads zeros before it begins and past its end:
    a filter can tell where a text begins or ends, and the shortest text fills a window.
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
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(settings.filters * len(self.reach), labels)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch labels"]:
        """Logits of the labels."""
        x = self.embedding(tokens, lengths).mT
        found = []
        for reach, window in zip(self.reach, self.filters, strict=True):
            scores = window(F.pad(x, (reach, reach)))
            beyond = ~inside(lengths + reach, scores.shape[2])[:, None]
            scores = scores.masked_fill(beyond, -torch.inf)
            found.append(F.relu(scores.amax(2)))
        logits: Tensor = self.to_labels(drop(torch.cat(found, 1), self.dropout, self.training))
        return logits
