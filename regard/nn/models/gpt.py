"""GPT: a decoder that predicts the next word. Radford et al. 2018, 2019."""

from collections.abc import Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    KeyValueCache,
    LayerMasks,
    Mask,
    causal,
    input_positions,
    within,
)
from regard.attention import lengths as up_to
from regard.nn.layers.beam_ancestry import BeamAncestry
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import inside, padding
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.stream import Stream
from regard.nn.layers.sublayers import EncoderBlock
from regard.nn.layers.vocabulary import WordLogits
from regard.nn.models.settings import GPTSettings
from regard.nn.models.stack import WordModel, attention_of, stack_of

INIT_STD = 0.02  # standard deviation of initial word vectors, as in GPT-2


class GPT(WordModel):
    """GPT, a decoder without memory: each word sees itself and the words before it.

    x = E[tokens] + positions, states = norm(blocks(x)) with pre-norm blocks of causal
    self-attention, logits = states Eᵀ. There is no output bias. The default settings have the
    architecture of GPT-2. `start` returns the decoder that `greedy`, `beam` and `sample` of
    `regard.decoding` call step by step.

    Args:
        settings: With ``tie`` the word vectors are the output matrix (Press & Wolf 2017).
        vocabulary: The number of words.

    Shape:
        tokens: (batch, time)
        lengths: (batch,)
        prefix: (batch,)
        output: (batch, time, width)

    Returns:
        The states from which `to_logits` predicts the word after each word.

    Raises:
        RegardError: The settings do not fit together, or name an unknown part.

    Source:
        Radford et al. 2019, section 2.3.

    Example:
        >>> settings = GPTSettings(width=8, heads=2, layers=1, feedforward=16, length=6)
        >>> model = GPT(settings, 11)
        >>> model.to_logits(model(torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2]))).shape
        torch.Size([2, 3, 11])
    """

    def __init__(self, settings: GPTSettings, vocabulary: int) -> None:
        super().__init__()
        width = settings.width
        self.dropout = settings.dropout
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=INIT_STD)
        self.positions = input_positions(settings.position, width, length=settings.length)
        self.patterns = LayerMasks(settings.pattern, settings.length)
        make_norm = partial(nn.LayerNorm, eps=settings.epsilon)

        def block(layer: int) -> EncoderBlock:
            attention = attention_of(settings, layer, placed=self.positions is None)
            inner = FeedForward(width, settings.feedforward, settings.activation)
            return EncoderBlock(width, attention, inner, settings.dropout, "pre", make_norm)

        self.blocks = stack_of(map(block, range(settings.layers)), settings.residual)
        self.norm = make_norm(width)
        self.output = None if settings.tie else nn.Linear(width, vocabulary, bias=False)

    def forward(
        self,
        tokens: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"] | None = None,
        *,
        prefix: Int[Tensor, " batch"] | None = None,
        mask: Mask | None = None,
        positions: Int[Tensor, "... time"] | None = None,
    ) -> Float[Tensor, "batch time width"]:
        """Return states from which `to_logits` predicts the word after each word.

        The words of a text's ``prefix`` attend to each other (Raffel et al. 2020, figure 4).
        ``mask`` hides further keys: ``documents(...)`` separates texts that are packed into one
        row, with ``positions`` that start anew for each. Padding follows a text, so no word
        attends to it, and its states are meaningless. ``lengths`` are only used to limit a prefix
        that is longer than its text.
        """
        visible = causal()
        if prefix is not None:
            inner = prefix if lengths is None else torch.minimum(prefix, lengths)
            visible = visible | up_to(inner)
        return self.read(tokens, within(visible, mask), positions)

    def read(
        self,
        tokens: Int[Tensor, "batch time"],
        mask: Mask | None,
        positions: Int[Tensor, "... time"] | None,
        caches: Sequence[KeyValueCache] = (),
    ) -> Float[Tensor, "batch time width"]:
        """Return the states of words under a mask; ``caches``: one for each block."""
        masks = self.patterns.of(mask, len(self.blocks))
        x = self.embed(tokens, positions)
        kept: Sequence[KeyValueCache | None] = caches or [None] * len(masks)
        stream = Stream()
        for block, allowed, cache in zip(self.blocks, masks, kept, strict=True):
            x = block(x, allowed, positions=positions, cache=cache, stream=stream)
        states: Tensor = self.norm(x)
        return states

    def embed(
        self, tokens: Int[Tensor, "batch time"], positions: Int[Tensor, "... time"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the word vectors, plus input positions if there are any."""
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x, positions)
        return drop(x, self.dropout, self.training)

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states, self.embedding.weight, None
        return states, self.output.weight, self.output.bias

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the beginnings of texts, and return a decoder that continues them.

        The tokens of the first step represent the beginnings and are not read. An empty beginning
        is replaced by the start symbol (0).
        """
        return Writing(self, source, source_lengths)


class Writing:
    """A batch of texts being generated; the first step predicts the word after each beginning."""

    def __init__(self, model: GPT, source: Tensor, lengths: Tensor) -> None:
        self.model, self.caches = model, [KeyValueCache() for _ in model.blocks]
        self.logits = WordLogits(model)
        self.lengths, self.steps = lengths.clamp(min=1), 0
        time = max(source.shape[1], 1)
        if not source.shape[1]:
            source = source.new_zeros(len(source), 1)
        read = source.masked_fill(~inside(lengths, time), 0)  # 0: the start symbol
        # All positions in a cache have the same shape: a row for each text.
        positions = torch.arange(time, device=source.device).expand(len(source), -1)
        states = model.read(
            read, within(causal(), padding(self.lengths, time)), positions, self.caches
        )
        self.first = states[torch.arange(len(read), device=source.device), self.lengths - 1]
        self.ancestry = BeamAncestry(inside(self.lengths, time))

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return the logits of the next words.

        ``parents``: for each row, the row of the previous step that it continues.
        """
        if not self.steps:
            states = self.first[:, None].expand(-1, tokens.shape[1], -1)
        else:
            positions = (self.lengths + self.steps - 1)[:, None].expand(-1, tokens.shape[1])
            if self.steps == 1:  # rows of the first step were not read: all continue the text
                parents = None
            mask = self.ancestry.step(tokens, parents)
            states = self.model.read(tokens, mask, positions, self.caches)
        self.steps += 1
        return self.logits(states)

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        self.lengths, self.first = self.lengths[rows], self.first[rows]
        self.ancestry.keep(rows)
        for cache in self.caches:
            cache.keep(rows)
