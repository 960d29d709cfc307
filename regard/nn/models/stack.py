"""The attention of stacks of blocks, and models that give the logits of words."""

from collections.abc import Iterable

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mechanism, named_mechanism
from regard.core.errors import RegardError
from regard.core.names import at_layer
from regard.nn.layers.depth import DepthAttention
from regard.nn.layers.sublayers import DecoderBlock, EncoderBlock, Sublayer
from regard.nn.models.settings import StackSettings


def attention_of(
    settings: StackSettings,
    layer: int,
    *,
    placed: bool = False,
    compress: str = "none",
    length: int | None = None,
) -> Mechanism:
    """Return the attention of one block.

    ``placed``: whether the score has the settings' positions. ``length`` is the longest input, by
    default that of the settings.
    """
    position = at_layer(settings.position, layer) if placed else "none"
    return named_mechanism(at_layer(settings.attention, layer))(
        settings.width,
        settings.heads,
        score=settings.score,
        position=position,
        normalize=settings.normalize,
        dropout=settings.attention_dropout,
        key_value_heads=settings.key_value_heads or None,
        length=length or settings.length,
        compress=compress,
    )


def stack_of(blocks: Iterable[nn.Module], residual: str) -> nn.ModuleList:
    """Return a stack of blocks; with ``residual="depth-attention"`` they attend over depth.

    Raises: attention over depth with blocks that are not a Transformer's with ``norm="pre"``.
    """
    stack = nn.ModuleList(blocks)
    if residual == "sum":
        return stack
    layers = [x for block in stack for x in block.children() if isinstance(x, Sublayer)]
    if not layers or not all(layer.norm_first for layer in layers):
        raise RegardError(
            f"residual={residual} weighs the outputs of pre-norm blocks; use norm=pre, or in a "
            "classifier block=pre-norm and layers=1 or more"
        )
    for index, layer in enumerate(layers):
        layer.depth = DepthAttention(layer.width, index)
    last = stack[-1]
    assert isinstance(last, EncoderBlock | DecoderBlock)
    last.end = DepthAttention(layers[-1].width, len(layers))
    return stack


class WordModel(nn.Module):
    """A model whose states give the logits of words."""

    def logit_parts(
        self, states: Float[Tensor, "*batch width"]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, matrix (words, width) and bias: logits = states @ matrixᵀ + bias."""
        raise NotImplementedError

    def to_logits(self, states: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch words"]:
        """Return the logits of the words."""
        return F.linear(*self.logit_parts(states))
