"""A bidirectional LSTM over words, pooled over time."""

from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import make_score
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import Vectors, WordEmbedding
from regard.nn.layers.pooling import AttentionPool, MaxPool, MeanPool
from regard.nn.layers.recurrent import Bidirectional
from regard.nn.models.settings import RecurrentSettings


class RecurrentClassifier(nn.Module):
    """label = Linear(pool over time of [→h_t, ←h_t])."""

    def __init__(
        self,
        settings: RecurrentSettings,
        vocabulary: int,
        labels: int,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__()
        self.embedding = WordEmbedding(
            vocabulary,
            settings.width,
            init_std=settings.init_std,
            dropout=settings.dropout,
            word_dropout=settings.word_dropout,
            vectors=vectors,
        )
        self.lstm = Bidirectional(
            self.embedding.width, settings.hidden, settings.layers, settings.dropout
        )
        #: Reduces the states to one vector; None: one answer for each token.
        self.pool: nn.Module | None = _pool(settings.pool, self.lstm.width)
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(self.lstm.width, labels)

    def forward(
        self, tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of each text's labels, or of each token's if there is no pool."""
        states = self.lstm(self.embedding(tokens, lengths), lengths)
        if self.pool is not None:
            states = self.pool(states, lengths)
        logits: Tensor = self.to_labels(drop(states, self.dropout, self.training))
        return logits


def _pool(name: str, width: int) -> nn.Module:
    if name == "attention":
        return AttentionPool(width, make_score("dot", query_width=width, key_width=width))
    return MeanPool() if name == "mean" else MaxPool()
