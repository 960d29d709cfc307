"""The sentiment ladder, from a mean of word vectors to a transformer: one class, a setting a rung.

words → vectors (+ positions) (with CLS in front) → blocks of self-attention → one vector → labels
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    input_positions,
    make_score,
    named_mask,
    named_mechanism,
    parsed,
    within,
)
from regard.attention import lengths as up_to
from regard.errors import RegardError
from regard.layers.blocks import Plain, Residual
from regard.layers.dropout import drop
from regard.layers.embedding import Vectors, WordEmbedding
from regard.layers.feedforward import FeedForward
from regard.layers.pooling import AttentionPool, FirstPool, MeanPool, QueryFromMeanPool
from regard.layers.sublayers import EncoderBlock
from regard.models.settings import TextClassifierSettings


class TextClassifier(nn.Module):
    """Every rung of the ladder by its settings; `regard.models.MODELS` names them.

    Sine positions are scaled by ``spread``, the standard deviation of the first word vectors, so
    that x = spread · (e + pe) with e of size 1 at first: one scale serves every rung.

    No norm stands before the pool: there a word counts by the length of its vector, as in the mean
    of word vectors, which a pre-norm stack is at its first step.

    Padding never changes an output: ``lengths`` says where each text ends. A text without words
    is answered from the biases (with CLS: from CLS).

    >>> settings = TextClassifierSettings(width=6, layers=0)
    >>> model = TextClassifier(settings, vocabulary=10, labels=2)
    >>> model(torch.tensor([[4, 5, 0], [2, 7, 9]]), torch.tensor([2, 3])).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        settings: TextClassifierSettings,
        vocabulary: int,
        labels: int,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__()
        self.reads_trees = settings.position.startswith("tree-")
        self.embedding = WordEmbedding(
            vocabulary,
            settings.width,
            spread=settings.spread,
            dropout=settings.dropout,
            word_dropout=settings.word_dropout,
            vectors=vectors,
        )
        width = self.embedding.width
        first = settings.pool == "cls"
        self.cls = nn.Parameter(torch.randn(width) * settings.spread) if first else None
        length = settings.length + first
        self.positions = input_positions(
            settings.position, width, length=length, sines=settings.spread
        )
        self.pattern = named_mask(settings.pattern, length)
        if not settings.layers and self.positions is None and settings.position != "none":
            raise RegardError(
                f"position={settings.position} acts between words that compare themselves; "
                f"layers=0 has none: take layers=1 or more, or position=sinusoidal"
            )
        self.blocks = nn.ModuleList(_block(settings, width, length) for _ in range(settings.layers))
        #: Makes one vector of a text; None: every token has an answer of its own.
        self.pool: nn.Module | None = _pool(settings, width, length)
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(width, labels)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of the labels: of each text, or without a pool of each token.

        ``parents``: the word that each word hangs on, for positions along trees; −1: a root, which
        hangs on CLS where there is one. Without them what `regard.attention.parsed` says, or each
        word hangs on the one before.
        """
        if parents is not None:
            if self.cls is not None:
                parents = F.pad(parents + 1, (1, 0), value=-1)
            with parsed(parents):
                along: Tensor = self(tokens, lengths)
            return along
        x = self.embedding(tokens, lengths)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], 1, -1), x], 1)
            lengths = lengths + 1
        if self.positions is not None:
            x = self.positions(x)
        mask = within(up_to(lengths), self.pattern)
        for block in self.blocks:
            x = block(x, mask)
        if self.pool is not None:
            x = self.pool(x, lengths)
        elif self.cls is not None:
            x = x[:, 1:]
        logits: Tensor = self.to_labels(drop(x, self.dropout, self.training))
        return logits


def _block(settings: TextClassifierSettings, width: int, length: int) -> nn.Module:
    attention = named_mechanism(settings.attention)(
        width,
        settings.heads,
        score=settings.score,
        position=settings.position,
        normalize=settings.normalize,
        dropout=settings.attention_dropout,
        key_value_heads=settings.key_value_heads or None,
        output_projection=settings.block == "pre-norm",
        length=length,
        compress=settings.compress,
    )
    if settings.block == "plain":
        return Plain(width, attention)
    if settings.block == "residual":
        return Residual(width, attention)
    feedforward = FeedForward(width, settings.feedforward)
    return EncoderBlock(width, attention, feedforward, settings.dropout, "pre")


def _pool(settings: TextClassifierSettings, width: int, length: int) -> nn.Module:
    if settings.pool == "mean":
        return MeanPool()
    if settings.pool == "cls":
        return FirstPool()
    score = make_score(settings.pool_score, query_width=width, key_width=width, length=length)
    if settings.pool == "attention":
        return AttentionPool(width, score, settings.normalize)
    return QueryFromMeanPool(width, score, settings.normalize)
