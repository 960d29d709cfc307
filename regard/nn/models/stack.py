"""The attention of stacks of blocks, and models that give the logits of words."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import Mechanism, named_mechanism
from regard.core.names import at_layer
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
