"""The Transformer, an encoder and a decoder. Vaswani et al. 2017."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    KeyValueCache,
    LayerMasks,
    Mechanism,
    Packing,
    causal,
    input_positions,
)
from regard.attention import lengths as up_to
from regard.attention.tracing import readable
from regard.core.names import at_layer
from regard.nn.layers.beam_ancestry import BeamAncestry
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import WordEmbedding
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock
from regard.nn.layers.vocabulary import WordLogits
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.stack import attention_of


class Transformer(nn.Module):
    """An encoder of the source and a decoder that attends to it.

    Embeddings are scaled by √width; with ``tie`` source, target and output share one matrix (Press
    & Wolf 2017). Positions in the score and ``pattern`` apply to self-attention, not to the
    attention to the memory; ``compress`` applies to the encoder. With ``norm="pre"`` each stack
    ends with a norm.

    >>> settings = TransformerSettings(width=8, heads=2, layers=1, feedforward=16, tie=False)
    >>> model = Transformer(settings, 11, 12)
    >>> source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    >>> model.to_logits(model(source, lengths, torch.tensor([[0, 9], [0, 3]]))).shape
    torch.Size([2, 2, 12])
    """

    def __init__(
        self, settings: TransformerSettings, source_vocabulary: int, target_vocabulary: int
    ) -> None:
        super().__init__()
        # The target may be twice as long as the source, and begins with a symbol.
        read = settings.length
        settings = settings.model_copy(update={"length": 2 * settings.length + 1})
        width = settings.width
        self.scale, self.dropout = math.sqrt(width), settings.dropout

        def words(count: int) -> WordEmbedding:
            return WordEmbedding(count, width, init_std=width**-0.5)

        self.source = words(source_vocabulary)
        self.target = self.source if settings.tie else words(target_vocabulary)
        self.output = None if settings.tie else nn.Linear(width, target_vocabulary)
        self.positions = input_positions(settings.position, width, length=settings.length)
        self.patterns = LayerMasks(settings.pattern, settings.length)

        def in_score(layer: int) -> str:
            return at_layer(settings.position, layer) if self.positions is None else "none"

        def feedforward() -> FeedForward:
            return FeedForward(width, settings.feedforward, settings.activation)

        rest = (settings.dropout, settings.norm)

        def reading(layer: int) -> Mechanism:
            if settings.compress == "none":
                return attention_of(settings, in_score(layer))
            position = in_score(layer)
            return attention_of(settings, position, compress=settings.compress, length=read)

        self.encoder = nn.ModuleList(
            EncoderBlock(width, reading(layer), feedforward(), *rest)
            for layer in range(settings.layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(
                width,
                attention_of(settings, in_score(layer)),
                attention_of(settings),
                feedforward(),
                *rest,
            )
            for layer in range(settings.decoder_layers or settings.layers)
        )
        pre = settings.norm == "pre"
        self.encoder_norm = nn.LayerNorm(width) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if pre else nn.Identity()

    def forward(
        self,
        source: Int[Tensor, "batch read"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch written"],
        target_lengths: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "*batch_written width"]:
        """Return states from which `to_logits` predicts each word, given the words before it.

        ``target`` begins with the start symbol (0) and ends before the last word. With
        ``target_lengths`` the states of padding are left out and the texts joined: (words, width).
        Padding is only computed inside attention.
        """
        read, written = (
            padding(*side) for side in ((source, source_lengths), (target, target_lengths))
        )
        memory = self._read(source, source_lengths, read)
        positions = torch.arange(target.shape[1], device=target.device)
        x, memory_mask = self.embed(self.target, target, positions, written), up_to(source_lengths)
        masks = self.patterns.of(causal(), len(self.decoder))
        for block, allowed in zip(self.decoder, masks, strict=True):
            x = block(
                x,
                memory,
                allowed,
                memory_mask,
                positions=positions,
                packing=written,
                memory_packing=read,
            )
        states: Tensor = self.decoder_norm(x)
        return states if written or target_lengths is None else states.flatten(0, 1)

    def to_logits(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch words"]:
        """Return the logits of the words."""
        return F.linear(*self.logit_parts(states))

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states, self.target.weight, None
        return states, self.output.weight, self.output.bias

    def encode(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch read width"]:
        """Return the memory, the encoder's states; those of padding are arbitrary but finite."""
        packing = padding(source, source_lengths)
        memory = self._read(source, source_lengths, packing)
        return memory if packing is None else packing.unpack(memory)

    def _read(self, source: Tensor, lengths: Tensor, packing: Packing | None) -> Tensor:
        """Return the memory, packed if there is a packing."""
        positions = torch.arange(source.shape[1], device=source.device)
        x = self.embed(self.source, source, positions, packing)
        masks = self.patterns.of(up_to(lengths), len(self.encoder))
        for block, allowed in zip(self.encoder, masks, strict=True):
            x = block(x, allowed, packing=packing)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def embed(
        self,
        words: WordEmbedding,
        tokens: Tensor,
        positions: Tensor,
        packing: Packing | None = None,
    ) -> Tensor:
        """Return the scaled word vectors, plus input positions if there are any."""
        every = torch.full((tokens.shape[0],), tokens.shape[1], device=tokens.device)
        x = words(tokens, every) * self.scale
        if self.positions is not None:
            x = self.positions(x, positions)
        if packing is not None:
            x = packing.pack(x)
        return drop(x, self.dropout, self.training)

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source, and return a decoder that generates step by step."""
        return Writing(self, self.encode(source, source_lengths), source_lengths)


def padding(
    tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None
) -> Packing | None:
    """Return the packing that removes padding, or None without padding and in a graph."""
    if lengths is None or not readable(lengths) or bool((lengths == tokens.shape[1]).all()):
        return None
    return Packing(lengths, tokens.shape[1])


class Writing:
    """A batch of texts being generated; each step reads the words chosen last.

    The rows of a step (its beams) are queries of one text: they share the memory and one cache of
    keys, in which each row attends to its own ancestors. So a beam copies nothing.
    """

    def __init__(self, model: Transformer, memory: Tensor, lengths: Tensor) -> None:
        self.model, self.memory, self.lengths = model, memory, lengths
        self.memory_mask = up_to(lengths)
        self.caches = [(KeyValueCache(), KeyValueCache(fixed=True)) for _ in model.decoder]
        self.ancestry, self.steps = BeamAncestry(), 0
        self.logits = WordLogits(model)

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return the logits of the next words.

        ``parents``: for each row, the row of the previous step that it continues.
        """
        model = self.model
        masks = model.patterns.of(self.ancestry.step(tokens, parents), len(model.decoder))
        positions = torch.full((tokens.shape[1],), self.steps, device=tokens.device)
        x = model.embed(model.target, tokens, positions)
        for block, allowed, (past, memory) in zip(model.decoder, masks, self.caches, strict=True):
            x = block(
                x,
                self.memory,
                allowed,
                self.memory_mask,
                positions=positions,
                cache=past,
                memory_cache=memory,
            )
        self.steps += 1
        return self.logits(model.decoder_norm(x))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        self.memory_mask = up_to(self.lengths)
        self.ancestry.keep(rows)
        for past, memory in self.caches:
            past.keep(rows)
            memory.keep(rows)
