"""Convolutions over words with max pooling. Kim 2014."""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import Vectors, WordEmbedding, inside
from regard.nn.layers.pooling import MaxPool
from regard.nn.models.settings import ConvolutionalSettings


class ConvolutionalClassifier(nn.Module):
    """label = Linear([max_t ReLU(filter · (x_t … x_{t+w−1}))]) with filters of several widths w.

    A window contains at least one word of the text, and zeros before its start and after its end.
    So a filter can detect the start and the end, and the shortest text fills a window. Without a
    pool, the label of a token is Linear([ReLU(filter · window around the token)]).
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
            init_std=settings.init_std,
            word_dropout=settings.word_dropout,
            vectors=vectors,
        )
        self.reach = [int(width) - 1 for width in settings.widths.split(",")]
        self.filters = nn.ModuleList(
            nn.Conv1d(self.embedding.width, settings.filters, reach + 1) for reach in self.reach
        )
        #: Reduces the states to one vector; None: one answer for each token.
        self.pool: nn.Module | None = MaxPool()
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(settings.filters * len(self.reach), labels)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of each text's labels, or of each token's if there is no pool."""
        x = self.embedding(tokens, lengths)
        x = (x * inside(lengths, tokens.shape[1])[..., None]).mT
        outputs = []
        for reach, window in zip(self.reach, self.filters, strict=True):
            scores = window(F.pad(x, (reach, reach))).mT
            if self.pool is None:  # the window with the token in its middle
                outputs.append(F.relu(scores[:, reach // 2 :][:, : tokens.shape[1]]))
            else:
                outputs.append(F.relu(self.pool(scores, lengths + reach)))
        states = torch.cat(outputs, -1)
        logits: Tensor = self.to_labels(drop(states, self.dropout, self.training))
        return logits
