"""The Transformer: an encoder and a decoder of attention. Vaswani et al. 2017."""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    KeyValueCache,
    Mechanism,
    Packing,
    causal,
    input_positions,
    named_mask,
    within,
)
from regard.attention import lengths as up_to
from regard.layers.beam_ancestry import BeamAncestry
from regard.layers.dropout import drop
from regard.layers.embedding import WordEmbedding
from regard.layers.feedforward import FeedForward
from regard.layers.sublayers import DecoderBlock, EncoderBlock
from regard.models.settings import TransformerSettings
from regard.models.stack import attention_of


class Transformer(nn.Module):
    """Words read by an encoder, words written by a decoder that looks at both.

    Embeddings are scaled by √width; with ``tie`` source, target and output are one matrix (Press
    & Wolf 2017). Score, position and normaliser by name; positions that are part of a score serve
    self-attention, and so does ``pattern``; the attention to the memory has neither. ``compress``
    is the encoder's alone. ``norm="pre"`` ends each stack with a norm of its own.

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
        # What is written may be twice as long as what is read, and begins with a symbol.
        read = settings.length
        settings = settings.model_copy(update={"length": 2 * settings.length + 1})
        width = settings.width
        self.scale, self.dropout = math.sqrt(width), settings.dropout

        def words(count: int) -> WordEmbedding:
            return WordEmbedding(count, width, spread=width**-0.5)

        self.source = words(source_vocabulary)
        self.target = self.source if settings.tie else words(target_vocabulary)
        self.output = None if settings.tie else nn.Linear(width, target_vocabulary)
        self.positions = input_positions(settings.position, width, length=settings.length)
        self.pattern = named_mask(settings.pattern, settings.length)
        in_score = settings.position if self.positions is None else "none"

        def feedforward() -> FeedForward:
            return FeedForward(width, settings.feedforward, settings.activation)

        rest = (settings.dropout, settings.norm)

        def reading() -> Mechanism:
            if settings.compress == "none":
                return attention_of(settings, in_score)
            return attention_of(settings, in_score, compress=settings.compress, length=read)

        self.encoder = nn.ModuleList(
            EncoderBlock(width, reading(), feedforward(), *rest) for _ in range(settings.layers)
        )
        self.decoder = nn.ModuleList(
            DecoderBlock(
                width,
                attention_of(settings, in_score),
                attention_of(settings),
                feedforward(),
                *rest,
            )
            for _ in range(settings.decoder_layers or settings.layers)
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
        """What each word is read out of (`to_logits`), given the true words before it.

        ``target`` begins with the start symbol (0) and ends before the last word. Given its
        lengths, the states of the real words alone, one text behind the other: (words, width).
        Nothing is computed for padding but the attention's own products.
        """
        read, written = (
            padding(*side) for side in ((source, source_lengths), (target, target_lengths))
        )
        memory = self._read(source, source_lengths, read)
        positions = torch.arange(target.shape[1], device=target.device)
        x, seen = self.embed(self.target, target, positions, written), up_to(source_lengths)
        before = within(causal(), self.pattern)
        for block in self.decoder:
            x = block(
                x, memory, before, seen, positions=positions, packing=written, memory_packing=read
            )
        states: Tensor = self.decoder_norm(x)
        return states if written or target_lengths is None else states.flatten(0, 1)

    def to_logits(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch words"]:
        """Logits of the words; with ``tie`` the embedding's own rows."""
        return F.linear(*self.logit_parts(states))

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """States, matrix (words, width) and bias with logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states, self.target.weight, None
        return states, self.output.weight, self.output.bias

    def encode(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch read width"]:
        """The memory: what the encoder makes of the source. Its padding holds anything finite."""
        packing = padding(source, source_lengths)
        memory = self._read(source, source_lengths, packing)
        return memory if packing is None else packing.unpack(memory)

    def _read(self, source: Tensor, lengths: Tensor, packing: Packing | None) -> Tensor:
        """The memory, packed where there is padding to leave out."""
        positions = torch.arange(source.shape[1], device=source.device)
        x = self.embed(self.source, source, positions, packing)
        mask = within(up_to(lengths), self.pattern)
        for block in self.encoder:
            x = block(x, mask, packing=packing)
        memory: Tensor = self.encoder_norm(x)
        return memory

    def embed(
        self,
        words: WordEmbedding,
        tokens: Tensor,
        positions: Tensor,
        packing: Packing | None = None,
    ) -> Tensor:
        """Scaled vectors of words, with their positions where those are added to the input."""
        every = torch.full((len(tokens),), tokens.shape[1], device=tokens.device)
        x = words(tokens, every) * self.scale
        if self.positions is not None:
            x = self.positions(x, positions)
        if packing is not None:
            x = packing.pack(x)
        return drop(x, self.dropout, self.training)

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source; what then writes, step by step, shares its memory among beams."""
        return Writing(self, self.encode(source, source_lengths), source_lengths)


def padding(
    tokens: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"] | None
) -> Packing | None:
    """How to leave out what lies behind the texts; None where all fill the table."""
    if lengths is None or bool((lengths == tokens.shape[1]).all()):
        return None
    return Packing(lengths, tokens.shape[1])


class Writing:
    """A batch of texts being written: each step reads the words chosen last.

    The rows of a step (a beam's) are so many queries of one text: they share its memory, and its
    past is kept once, each row looking at its own ancestors in it. So a beam copies nothing.
    """

    def __init__(self, model: Transformer, memory: Tensor, lengths: Tensor) -> None:
        self.model, self.memory, self.lengths = model, memory, lengths
        self.seen = up_to(lengths)
        self.caches = [(KeyValueCache(), KeyValueCache(fixed=True)) for _ in model.decoder]
        self.ancestry, self.steps = BeamAncestry(), 0

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Logits of the words after these. ``parents``: the row of the step before of each row."""
        model = self.model
        mask = within(self.ancestry.step(tokens, parents), model.pattern)
        positions = torch.full((tokens.shape[1],), self.steps, device=tokens.device)
        x = model.embed(model.target, tokens, positions)
        for block, (past, memory) in zip(model.decoder, self.caches, strict=True):
            x = block(
                x,
                self.memory,
                mask,
                self.seen,
                positions=positions,
                cache=past,
                memory_cache=memory,
            )
        self.steps += 1
        return model.to_logits(model.decoder_norm(x))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Go on with these texts alone."""
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        self.seen = up_to(self.lengths)
        self.ancestry.keep(rows)
        for past, memory in self.caches:
            past.keep(rows)
            memory.keep(rows)
