"""The models of the sentiment ladder, from a mean of word vectors to a transformer, as one class.

(CLS +) words → vectors (+ positions) → self-attention blocks → pooled vector → labels
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    LayerMasks,
    input_positions,
    make_score,
    named_mechanism,
    parsed,
)
from regard.core.errors import RegardError
from regard.core.names import at_layer, reads_trees
from regard.nn.layers.blocks import Plain, Residual
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import Vectors, WordEmbedding, padding
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.pooling import AttentionPool, FirstPool, MeanPool, QueryFromMeanPool
from regard.nn.layers.stream import Stream
from regard.nn.layers.sublayers import EncoderBlock, Norm
from regard.nn.models.settings import TextClassifierSettings
from regard.nn.models.stack import stack_of

NORMS: dict[str, Norm] = {"pre-norm": "pre", "post-norm": "post"}  # blocks of a Transformer


class TextClassifier(nn.Module):
    """A text classifier; `regard.lab.tasks.models.MODELS` has a row for each rung of the ladder.

    Sinusoidal positions are scaled by ``init_std``, the standard deviation of the initial word
    vectors, so that x = init_std · (e + pe) with e of size 1 at first, and one scale serves all
    rungs.

    Except after post-norm blocks there is no norm before the pool, so that the length of a word's
    vector matters, as in a mean of word vectors. An untrained pre-norm stack computes that mean.

    Padding after ``lengths`` never changes an output. A text without words is classified from the
    biases, or from CLS if there is one.

    Raises: a position that is part of a score, with ``layers=0``.

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
        self.reads_trees = reads_trees(settings.position)
        self.embedding = WordEmbedding(
            vocabulary,
            settings.width,
            init_std=settings.init_std,
            dropout=settings.dropout,
            word_dropout=settings.word_dropout,
            vectors=vectors,
        )
        width = self.embedding.width
        first = settings.pool == "cls"
        self.cls = nn.Parameter(torch.randn(width) * settings.init_std) if first else None
        length = settings.length + first
        self.positions = input_positions(
            settings.position, width, length=length, sines=settings.init_std
        )
        self.patterns = LayerMasks(settings.pattern, length)
        if not settings.layers and self.positions is None and settings.position != "none":
            raise RegardError(
                f"position={settings.position} is part of self-attention, which layers=0 does not "
                "have; use layers=1 or more, or position=sinusoidal"
            )
        self.blocks = stack_of(
            (_block(settings, width, length, layer) for layer in range(settings.layers)),
            settings.residual,
        )
        #: Reduces the states to one vector; None: one answer for each token.
        self.pool: nn.Module | None = _pool(settings, width, length)
        self.dropout = settings.dropout
        self.to_labels = nn.Linear(width, labels)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        parents: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "batch *time labels"]:
        """Return the logits of each text's labels, or of each token's if there is no pool.

        ``parents``: the parent of each word, for tree positions; −1 for a root, whose parent is CLS
        if there is one. By default those of `regard.attention.parsed`, or the previous word.
        """
        if parents is not None:
            if self.cls is not None:
                parents = F.pad(parents + 1, (1, 0), value=-1)
            with parsed(parents):
                tree_logits: Tensor = self(tokens, lengths)
            return tree_logits
        x = self.embedding(tokens, lengths)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(x.shape[0], 1, -1), x], 1)
            lengths = lengths + 1
        if self.positions is not None:
            x = self.positions(x)
        masks = self.patterns.of(padding(lengths, x.shape[1]), len(self.blocks))
        stream = Stream()
        for block, allowed in zip(self.blocks, masks, strict=True):
            x = block(x, allowed, stream=stream)
        if self.pool is not None:
            x = self.pool(x, lengths)
        elif self.cls is not None:
            x = x[:, 1:]
        logits: Tensor = self.to_labels(drop(x, self.dropout, self.training))
        return logits


def _block(settings: TextClassifierSettings, width: int, length: int, layer: int) -> nn.Module:
    attention = named_mechanism(at_layer(settings.attention, layer))(
        width,
        settings.heads,
        score=settings.score,
        position=at_layer(settings.position, layer),
        normalize=settings.normalize,
        dropout=settings.attention_dropout,
        key_value_heads=settings.key_value_heads or None,
        output_projection=settings.block in NORMS,
        length=length,
        compress=settings.compress,
    )
    if settings.block == "plain":
        return Plain(width, attention)
    if settings.block == "residual":
        return Residual(width, attention)
    feedforward = FeedForward(width, settings.feedforward, settings.activation)
    norm = NORMS[settings.block]
    return EncoderBlock(width, attention, feedforward, settings.dropout, norm)


def _pool(settings: TextClassifierSettings, width: int, length: int) -> nn.Module:
    if settings.pool == "mean":
        return MeanPool()
    if settings.pool == "cls":
        return FirstPool()
    score = make_score(settings.pool_score, query_width=width, key_width=width, length=length)
    if settings.pool == "attention":
        return AttentionPool(width, score, settings.normalize)
    return QueryFromMeanPool(width, score, settings.normalize)
