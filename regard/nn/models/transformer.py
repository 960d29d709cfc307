"""The Transformer, an encoder and a decoder. Vaswani et al. 2017."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import LayerMasks, Mechanism, input_positions
from regard.nn.layers.embedding import WordEmbedding
from regard.nn.layers.feedforward import FeedForward
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock
from regard.nn.models.encoder_decoder import EncoderDecoder
from regard.nn.models.settings import TransformerSettings
from regard.nn.models.stack import attention_of, stack_of


class Transformer(EncoderDecoder):
    """The Transformer: an encoder of the source, and a decoder that attends to its states.

    memory = encoder(√width E_source + positions), states = decoder(√width E_target + positions,
    memory), logits = states Wᵀ + b. With ``norm="pre"`` each stack ends with a norm. `start`
    returns the decoder that `greedy`, `beam` and `sample` of `regard.decoding` call step by step.

    Args:
        settings: With ``tie`` source, target and output share one matrix (Press & Wolf 2017). A
            position in the score and ``pattern`` apply to self-attention, not to the attention to
            the memory; ``compress`` applies to the encoder.
        source_vocabulary: The number of words of the source.
        target_vocabulary: The number of words of the target.

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
        Vaswani et al. 2017, section 3.

    Example:
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

        def feedforward() -> FeedForward:
            return FeedForward(width, settings.feedforward, settings.activation)

        rest = (settings.dropout, settings.norm)
        placed, compress = self.positions is None, settings.compress
        reads = None if compress == "none" else read

        def reading(layer: int) -> Mechanism:
            return attention_of(settings, layer, placed=placed, compress=compress, length=reads)

        def reader(layer: int) -> EncoderBlock:
            return EncoderBlock(width, reading(layer), feedforward(), *rest)

        def writer(layer: int) -> DecoderBlock:
            own = attention_of(settings, layer, placed=placed)
            return DecoderBlock(width, own, attention_of(settings, layer), feedforward(), *rest)

        self.encoder = stack_of(map(reader, range(settings.layers)), settings.residual)
        written = range(settings.decoder_layers or settings.layers)
        self.decoder = stack_of(map(writer, written), settings.residual)
        pre = settings.norm == "pre"
        self.encoder_norm = nn.LayerNorm(width) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(width) if pre else nn.Identity()

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        if self.output is None:
            return states, self.target.weight, None
        return states, self.output.weight, self.output.bias

    def embed(
        self,
        tokens: Int[Tensor, "batch time"],
        positions: Int[Tensor, "... time"],
        *,
        target: bool = False,
    ) -> Float[Tensor, "batch time width"]:
        """Return the scaled word vectors, plus input positions if there are any."""
        every = torch.full((tokens.shape[0],), tokens.shape[1], device=tokens.device)
        x: Tensor = (self.target if target else self.source)(tokens, every) * self.scale
        if self.positions is not None:
            x = self.positions(x, positions)
        return x
