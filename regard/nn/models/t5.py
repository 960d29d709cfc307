"""T5: an encoder and a decoder with relative position biases. Raffel et al. 2020."""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import (
    LayerMasks,
    Linformer,
    Mechanism,
    MultiHeadAttention,
    Score,
    input_positions,
    make_score,
    named_compress,
    named_mechanism,
)
from regard.attention.positions.biases import RelativeBias
from regard.core.names import at_layer
from regard.nn.layers.dropout import drop
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock, Norm
from regard.nn.models.encoder_decoder import EncoderDecoder
from regard.nn.models.settings import T5Settings
from regard.nn.models.stack import stack_of


class T5(EncoderDecoder):
    """T5, an encoder and a decoder with RMSNorm before each sublayer, whose maps have no bias.

    memory = norm(encoder(E[source])), states = norm(decoder(E[target], memory)), logits = states
    Eᵀ / √width. With ``position=t5-bias``, b[bucket(j − i)] is added to every score, and all layers
    of a stack share the b of each head. ``score=dot`` does not scale the scores, as in the paper.

    Args:
        settings: With ``tie`` the word vectors are the output matrix (T5); otherwise the output has
            its own matrix and states are not scaled (T5 1.1). ``pattern`` applies to both
            self-attentions, ``compress`` to the encoder's; the attention to the memory has no
            positions and no pattern.
        vocabulary: The number of words of source and target.

    Shape:
        source: (batch, read)
        source_lengths: (batch,)
        target: (batch, written): the start symbol (0), then all words but the last.
        target_lengths: (batch,)
        output: (batch, written, width), or (words, width) with ``target_lengths``

    Returns:
        The states from which `to_logits` predicts each word, given the words before it.

    Raises:
        RegardError: The settings do not fit together, or name an unknown part.

    Source:
        Raffel et al. 2020, section 2.1.

    Example:
        >>> model = T5(T5Settings(width=8, heads=2, layers=1, feedforward=16), 11)
        >>> source, lengths = torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([3, 2])
        >>> model.to_logits(model(source, lengths, torch.tensor([[0, 9], [0, 3]]))).shape
        torch.Size([2, 2, 11])
    """

    packs = False

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
            attention(settings, layer, x, named_compress(mixing, read) or "none")
            for layer, x in enumerate(self._scores(settings.layers, both=True))
        ]
        self.encoder = stack_of(
            (EncoderBlock(width, x, feedforward(), *rest) for x in readers), settings.residual
        )
        count = settings.decoder_layers or settings.layers
        writers = [
            attention(settings, layer, x) for layer, x in enumerate(self._scores(count, both=False))
        ]
        self.decoder = stack_of(
            (
                DecoderBlock(
                    width, x, attention(settings, layer, score(settings)), feedforward(), *rest
                )
                for layer, x in enumerate(writers)
            ),
            settings.residual,
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

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states * self.scale, self.embedding.weight, None
        return states, self.output.weight, self.output.bias

    def embed(
        self,
        tokens: Int[Tensor, "batch time"],
        positions: Int[Tensor, "... time"],
        *,
        target: bool = False,
    ) -> Float[Tensor, "batch time width"]:
        """Return the word vectors, plus input positions if there are any."""
        x: Tensor = self.embedding(tokens)
        if self.positions is not None:
            x = self.positions(x, positions)
        return x

    def end(self, states: Tensor) -> Tensor:
        """Return the states of a stack after dropout."""
        return drop(states, self.dropout, self.training)


def score(settings: T5Settings, position: str = "none") -> Score:
    """Return the score of one layer, wrapped in a position if it is part of the score."""
    width, heads = settings.each_head, settings.heads
    return make_score(settings.score, position, width, width, heads=heads, length=settings.length)


def attention(
    settings: T5Settings, layer: int, score: Score, compress: str | Linformer = "none"
) -> Mechanism:
    """Return attention without biases; unscaled scores start with smaller query weights."""
    mechanism = named_mechanism(at_layer(settings.attention, layer))(
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
