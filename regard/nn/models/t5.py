"""T5: an encoder and a decoder with relative position biases. Raffel et al. 2020."""

from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    KeyValueCache,
    LayerMasks,
    Linformer,
    Mechanism,
    MultiHeadAttention,
    Score,
    causal,
    input_positions,
    make_score,
    named_compress,
    named_mechanism,
)
from regard.attention import lengths as up_to
from regard.attention.positions.biases import RelativeBias
from regard.core.names import at_layer
from regard.nn.layers.beam_ancestry import BeamAncestry
from regard.nn.layers.dropout import drop
from regard.nn.layers.embedding import inside
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock, Norm
from regard.nn.layers.vocabulary import WordLogits
from regard.nn.models.settings import T5Settings


class T5(nn.Module):
    """An encoder and a decoder with RMSNorm before each sublayer, whose maps have no bias.

    Raffel et al. 2020, section 2.1; ``score=dot`` does not scale the scores, as there. With
    ``position=t5-bias``, b[bucket(j − i)] is added to every score, and all layers of a stack share
    the b of each head. With ``tie`` the word vectors are the output matrix and states are
    multiplied by 1/√width before it (T5); otherwise the output has its own matrix and states are
    not scaled (T5 1.1). ``pattern`` applies to both self-attentions, ``compress`` to the encoder's;
    the attention to the memory has no positions and no pattern.

    >>> model = T5(T5Settings(width=8, heads=2, layers=1, feedforward=16), 11)
    >>> source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
    >>> model.to_logits(model(source, lengths, torch.tensor([[0, 9], [0, 3]]))).shape
    torch.Size([2, 2, 11])
    """

    def __init__(self, settings: T5Settings, vocabulary: int) -> None:
        super().__init__()
        width = settings.width
        # The target may be twice as long as the source.
        read = settings.length
        settings = settings.model_copy(update={"length": 2 * settings.length + 1})
        self.dropout, self.settings = settings.dropout, settings
        self.embedding = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.embedding.weight, std=settings.init_std)
        self.output = None if settings.tie else nn.Linear(width, vocabulary, bias=False)
        self.scale = width**-0.5 if settings.tie else 1.0
        self.positions = input_positions(settings.position, width, length=settings.length)
        self.patterns = LayerMasks(settings.pattern, settings.length)
        make_norm = partial(nn.RMSNorm, eps=settings.epsilon)
        pre: Norm = "pre"
        rest = (settings.dropout, pre, make_norm)

        def feedforward() -> FeedForward:
            return FeedForward(width, settings.feedforward, settings.activation, bias=False)

        mixing = settings.compress
        readers = [
            attention(settings, x, named_compress(mixing, read) or "none")
            for x in self._scores(settings.layers, both=True)
        ]
        self.encoder = nn.ModuleList(EncoderBlock(width, x, feedforward(), *rest) for x in readers)
        count = settings.decoder_layers or settings.layers
        writers = [attention(settings, x) for x in self._scores(count, both=False)]
        self.decoder = nn.ModuleList(
            DecoderBlock(width, x, attention(settings, score(settings)), feedforward(), *rest)
            for x in writers
        )
        self.encoder_norm, self.decoder_norm = make_norm(width), make_norm(width)

    def _scores(self, layers: int, *, both: bool) -> list[Score]:
        """Return the scores of a stack's self-attentions, which share T5's bias.

        ``both``: whether distances have both directions, as in an encoder.
        """
        settings, scores = self.settings, list[Score]()
        shared: RelativeBias | None = None
        for layer in range(layers):
            position = "none" if self.positions is not None else at_layer(settings.position, layer)
            if position != "t5-bias":
                scores.append(score(settings, position))
                continue
            own = RelativeBias(
                score(settings),
                buckets=settings.buckets,
                farthest=settings.farthest,
                bidirectional=both,
            )
            if shared is not None:
                own.bias = shared.bias
            shared = own
            scores.append(own)
        return scores

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
        memory, memory_mask = self.encode(source, source_lengths), up_to(source_lengths)
        x, positions = self.embed(target), torch.arange(target.shape[1], device=target.device)
        masks = self.patterns.of(causal(), len(self.decoder))
        for block, allowed in zip(self.decoder, masks, strict=True):
            x = block(x, memory, allowed, memory_mask, positions=positions)
        states = drop(self.decoder_norm(x), self.dropout, self.training)
        return states if target_lengths is None else states[inside(target_lengths, len(positions))]

    def to_logits(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch words"]:
        """Return the logits of the words."""
        return F.linear(*self.logit_parts(states))

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states * self.scale, self.embedding.weight, None
        return states, self.output.weight, self.output.bias

    def encode(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch read width"]:
        """Return the memory, the encoder's states of the source."""
        x, masks = self.embed(source), self.patterns.of(up_to(source_lengths), len(self.encoder))
        for block, allowed in zip(self.encoder, masks, strict=True):
            x = block(x, allowed)
        return drop(self.encoder_norm(x), self.dropout, self.training)

    def embed(
        self, tokens: Int[Tensor, "batch time"], positions: Int[Tensor, "... time"] | None = None
    ) -> Float[Tensor, "batch time width"]:
        """Return the word vectors, plus input positions if there are any."""
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x, positions)
        return drop(x, self.dropout, self.training)

    def start(
        self, source: Int[Tensor, "batch read"], source_lengths: Int[Tensor, " batch"]
    ) -> "Writing":
        """Read the source, and return a decoder that generates step by step."""
        return Writing(self, self.encode(source, source_lengths), source_lengths)


class Writing:
    """A batch of texts being generated; each step reads the words chosen last."""

    def __init__(self, model: T5, memory: Tensor, lengths: Tensor) -> None:
        self.model, self.memory, self.lengths = model, memory, lengths
        self.caches = [(KeyValueCache(), KeyValueCache(fixed=True)) for _ in model.decoder]
        self.ancestry, self.steps = BeamAncestry(), 0
        self.logits = WordLogits(model)

    def step(
        self, tokens: Int[Tensor, "batch rows"], parents: Int[Tensor, "batch rows"] | None = None
    ) -> Float[Tensor, "batch rows vocabulary"]:
        """Return the logits of the next words.

        ``parents``: for each row, the row of the previous step that it continues.
        """
        model, memory_mask = self.model, up_to(self.lengths)
        masks = model.patterns.of(self.ancestry.step(tokens, parents), len(model.decoder))
        positions = torch.full((tokens.shape[1],), self.steps, device=tokens.device)
        x = model.embed(tokens, positions)
        for block, allowed, (past, memory) in zip(model.decoder, masks, self.caches, strict=True):
            x = block(
                x,
                self.memory,
                allowed,
                memory_mask,
                positions=positions,
                cache=past,
                memory_cache=memory,
            )
        self.steps += 1
        return self.logits(model.decoder_norm(x))

    def keep(self, rows: Int[Tensor, " rows"]) -> None:
        """Drop all texts but these."""
        self.memory, self.lengths = self.memory[rows], self.lengths[rows]
        self.ancestry.keep(rows)
        for past, memory in self.caches:
            past.keep(rows)
            memory.keep(rows)


def score(settings: T5Settings, position: str = "none") -> Score:
    """Return the score of one layer, wrapped in a position if it is part of the score."""
    width, heads = settings.each_head, settings.heads
    return make_score(settings.score, position, width, width, heads=heads, length=settings.length)


def attention(settings: T5Settings, score: Score, compress: str | Linformer = "none") -> Mechanism:
    """Return attention without biases; unscaled scores start with smaller query weights."""
    mechanism = named_mechanism(settings.attention)(
        settings.width,
        settings.heads,
        score=score,
        normalize=settings.normalize,
        dropout=settings.attention_dropout,
        key_value_heads=settings.key_value_heads or None,
        head_width=settings.each_head,
        bias=False,
        compress=compress,
    )
    if settings.score == "dot" and isinstance(mechanism, MultiHeadAttention):
        with torch.no_grad():
            mechanism.project.weight[: mechanism.sizes[0]] *= settings.each_head**-0.5
    return mechanism
