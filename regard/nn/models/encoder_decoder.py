"""An encoder and a decoder: the common part of the Transformer and T5."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import KeyValueCache, LayerMasks, Mask, Packing, causal
from regard.attention.tracing import readable
from regard.nn.layers.beam_ancestry import BeamAncestry
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import inside, padding
from regard.nn.layers.stream import Stream
from regard.nn.layers.vocabulary import WordLogits
from regard.nn.models.stack import WordModel

#: The caches of a decoder's block: of the words written, and of the memory.
Caches = Sequence[tuple[KeyValueCache | None, KeyValueCache | None]]


class EncoderDecoder(WordModel):
    """Source → encoder → memory; target → decoder, which attends to the memory → states.

    A model makes the two stacks and their norms, and defines `embed`, `logit_parts` and `end`.
    """

    #: Whether the stacks compute without padding; their states then have another dropout.
    packs: ClassVar[bool] = True
    encoder: nn.ModuleList
    decoder: nn.ModuleList
    encoder_norm: nn.Module
    decoder_norm: nn.Module
    patterns: LayerMasks
    dropout: float

    def embed(
        self,
        tokens: Int[Tensor, "batch time"],
        positions: Int[Tensor, "... time"],
        *,
        target: bool = False,
    ) -> Float[Tensor, "batch time width"]:
        """Return the word vectors of the source or the target, plus input positions if any."""
        raise NotImplementedError

    def entering(
        self,
        tokens: Int[Tensor, "batch time"],
        positions: Int[Tensor, "... time"],
        packing: Packing | None = None,
        *,
        target: bool = False,
    ) -> Float[Tensor, "*batch_time width"]:
        """Return the embedded words as a stack reads them, after dropout, and packed if asked."""
        x = self.embed(tokens, positions, target=target)
        return drop(x if packing is None else packing.pack(x), self.dropout, self.training)

    def end(self, states: Tensor) -> Tensor:
        """Return the states of a stack as the next part reads them."""
        return states

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
        """
        read, written = self._packing(source, source_lengths), self._packing(target, target_lengths)
        memory = self._read(source, source_lengths, read)
        positions = torch.arange(target.shape[1], device=target.device)
        states = self.decode(
            self.entering(target, positions, written, target=True),
            memory,
            causal(),
            padding(source_lengths, source.shape[1]),
            positions=positions,
            packing=(written, read),
        )
        if written or target_lengths is None:
            return states
        return (
            states.flatten(0, 1) if self.packs else states[inside(target_lengths, len(positions))]
        )

    def encode(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch read width"]:
        """Return the memory, the encoder's states; those of padding are arbitrary but finite."""
        packing = self._packing(source, source_lengths)
        memory = self._read(source, source_lengths, packing)
        return memory if packing is None else packing.unpack(memory)

    def decode(
        self,
        x: Float[Tensor, "*batch written width"],
        memory: Float[Tensor, "*memory_batch read width"],
        mask: Mask | None,
        memory_mask: Mask | None,
        *,
        positions: Int[Tensor, "... written"],
        caches: Caches = (),
        packing: tuple[Packing | None, Packing | None] = (None, None),
    ) -> Float[Tensor, "*batch written width"]:
        """Return the decoder's states; ``caches`` keep a pair for each block."""
        masks = self.patterns.of(mask, len(self.decoder))
        kept, stream = caches or [(None, None)] * len(masks), Stream()
        for block, allowed, (past, read) in zip(self.decoder, masks, kept, strict=True):
            x = block(
                x,
                memory,
                allowed,
                memory_mask,
                positions=positions,
                cache=past,
                memory_cache=read,
                packing=packing[0],
                memory_packing=packing[1],
                stream=stream,
            )
        return self.end(self.decoder_norm(x))

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source, and return a decoder that generates step by step."""
        return Writing(self, self.encode(source, source_lengths), source_lengths)

    def _packing(self, tokens: Tensor, lengths: Tensor | None) -> Packing | None:
        """Return the packing that removes padding, or None without padding and in a graph."""
        if not self.packs or lengths is None or not readable(lengths):
            return None
        whole = bool((lengths == tokens.shape[1]).all())
        return None if whole else Packing(lengths, tokens.shape[1])

    def _read(self, source: Tensor, lengths: Tensor, packing: Packing | None) -> Tensor:
        """Return the memory, packed if there is a packing."""
        positions = torch.arange(source.shape[1], device=source.device)
        x = self.entering(source, positions, packing)
        masks = self.patterns.of(padding(lengths, source.shape[1]), len(self.encoder))
        stream = Stream()
        for block, allowed in zip(self.encoder, masks, strict=True):
            x = block(x, allowed, packing=packing, stream=stream)
        return self.end(self.encoder_norm(x))


class Writing:
    """A batch of texts being generated; each step reads the words chosen last.

    The rows of a step (its beams) are queries of one text: they share the memory and one cache of
    keys, in which each row attends to its own ancestors. So a beam copies nothing.
    """

    def __init__(self, model: EncoderDecoder, memory: Tensor, lengths: Tensor) -> None:
        self.model, self.memory, self.lengths = model, memory, lengths
        self.memory_mask = padding(lengths, memory.shape[1])
        self.caches = [(KeyValueCache(), KeyValueCache(fixed=True)) for _ in model.decoder]
        self.ancestry, self.steps = BeamAncestry(), 0
        self.logits = WordLogits(model)

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return the logits of the next words.

        ``parents``: for each row, the row of the previous step that it continues.
        """
        positions = torch.full((tokens.shape[1],), self.steps, device=tokens.device)
        self.steps += 1
        states = self.model.decode(
            self.model.entering(tokens, positions, target=True),
            self.memory,
            self.ancestry.step(tokens, parents),
            self.memory_mask,
            positions=positions,
            caches=self.caches,
        )
        return self.logits(states)

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        self.memory_mask = padding(self.lengths, self.memory.shape[1])
        self.ancestry.keep(rows)
        for past, memory in self.caches:
            past.keep(rows)
            memory.keep(rows)
