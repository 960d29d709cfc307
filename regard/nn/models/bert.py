"""BERT: an encoder that predicts masked words. Devlin et al. 2019."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import LayerMasks, Mask, input_positions, within
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import padding
from regard.nn.layers.feedforward import ACTIVATIONS, GATED, FeedForward
from regard.nn.layers.stream import Stream
from regard.nn.layers.sublayers import EncoderBlock
from regard.nn.models.settings import BERTSettings
from regard.nn.models.stack import WordModel, attention_of, stack_of

INIT_STD = 0.02  # standard deviation of initial word vectors, as in BERT


class BERT(WordModel):
    """BERT, an encoder that predicts masked words: each word sees the whole text.

    x = LayerNorm(E[tokens] + positions + types), states = blocks(x). `to_logits` predicts masked
    words from their states, with the word vectors as output matrix; `next_sentence` predicts from
    the first state whether the second sentence follows the first.

    Args:
        settings: ``norm="post"`` is the norm of the paper; ``norm="pre"`` ends with another norm.
        vocabulary: The number of words.
        heads: Whether to build `to_logits` and `next_sentence`.

    Shape:
        tokens: (batch, time)
        lengths: (batch,)
        types: (batch, time): the sentence of each word, 0 or 1.
        output: (batch, time, width)

    Returns:
        The state of every word.

    Raises:
        RegardError: The settings do not fit together, or name an unknown part.

    Source:
        Devlin et al. 2019, section 3.

    Example:
        >>> model = BERT(BERTSettings(width=8, heads=2, layers=1, feedforward=16, length=6), 11)
        >>> tokens, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
        >>> states = model(tokens, lengths, torch.tensor([[0, 0, 1], [0, 1, 1]]))
        >>> model.to_logits(states).shape, model.next_sentence(states).shape
        (torch.Size([2, 3, 11]), torch.Size([2, 2]))
    """

    def __init__(self, settings: BERTSettings, vocabulary: int, *, heads: bool = True) -> None:
        super().__init__()
        width = settings.width
        self.dropout = settings.dropout
        make_norm = partial(nn.LayerNorm, eps=settings.epsilon)
        self.embedding = nn.Embedding(vocabulary, width)
        self.types = nn.Embedding(settings.types, width) if settings.types else None
        self.positions = input_positions(settings.position, width, length=settings.length)
        self.embedding_norm = make_norm(width)
        for table in (self.embedding, self.types):
            if table is not None:
                nn.init.normal_(table.weight, std=INIT_STD)
        self.patterns = LayerMasks(settings.pattern, settings.length)

        def block(layer: int) -> EncoderBlock:
            placed = self.positions is None
            attention = attention_of(settings, layer, placed=placed, compress=settings.compress)
            inner = FeedForward(width, settings.feedforward, settings.activation)
            return EncoderBlock(width, attention, inner, settings.dropout, settings.norm, make_norm)

        self.blocks = stack_of(map(block, range(settings.layers)), settings.residual)
        self.norm = make_norm(width) if settings.norm == "pre" else nn.Identity()
        if not heads:
            return
        self.head, self.head_norm = nn.Linear(width, width), make_norm(width)
        self.head_bias = nn.Parameter(torch.zeros(vocabulary))
        self.activation = ACTIVATIONS[settings.activation.removeprefix(GATED)]
        self.pool, self.follows = nn.Linear(width, width), nn.Linear(width, 2)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"] | None = None,
        types: Int[Tensor, "batch time"] | None = None,
        *,
        mask: Mask | None = None,
        positions: Int[Tensor, "... time"] | None = None,
    ) -> Float[Tensor, "batch time width"]:
        """Return the state of every word; each word attends to its whole text.

        ``types``: the sentence of each word, 0 (default) or 1. ``lengths``: by default there is no
        padding. ``mask`` hides further keys: ``documents(...)`` separates texts that are packed
        into one row, with ``positions`` that start anew for each.
        """
        visible = within(None if lengths is None else padding(lengths, tokens.shape[1]), mask)
        masks = self.patterns.of(visible, len(self.blocks))
        x = self.embedding(tokens)
        if self.types is not None:
            x = x + (self.types.weight[0] if types is None else self.types(types))
        if self.positions is not None:
            x = self.positions(x, positions)
        x = drop(self.embedding_norm(x), self.dropout, self.training)
        stream = Stream()
        for block, allowed in zip(self.blocks, masks, strict=True):
            x = block(x, allowed, positions=positions, stream=stream)
        states: Tensor = self.norm(x)
        return states

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return x, E and c with the logits of masked words E x + c, x = LayerNorm(f(W h + b)).

        E are the word vectors. Source: get_masked_lm_output in the code of Devlin et al.
        """
        transformed = self.head_norm(self.activation(self.head(states)))
        return transformed, self.embedding.weight, self.head_bias

    def pooled(self, states: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch width"]:
        """Return tanh(W h₁ + b), a vector of the text from the state of its first word."""
        first: Tensor = self.pool(states[:, 0])
        return first.tanh()

    def next_sentence(self, states: Float[Tensor, "batch time width"]) -> Float[Tensor, "batch 2"]:
        """Return the logits of 0 (the second sentence follows the first) and 1 (it does not)."""
        logits: Tensor = self.follows(self.pooled(states))
        return logits
