"""Attention for stacks of blocks, from the settings that all stacks share."""

from regard.attention import Mechanism, named_mechanism
from regard.nn.models.settings import StackSettings


def attention_of(
    settings: StackSettings,
    position: str = "none",
    *,
    compress: str = "none",
    length: int | None = None,
) -> Mechanism:
    """Return the attention of one block.

    ``position`` is wrapped around the score. ``length`` is the longest input, by default that of
    the settings.
    """
    return named_mechanism(settings.attention)(
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
