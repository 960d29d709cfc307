"""The attention that a stack of blocks is made of, by the settings that all stacks share."""

from regard.attention import Mechanism, named_mechanism
from regard.models.settings import StackSettings


def attention_of(
    settings: StackSettings,
    position: str = "none",
    *,
    compress: str = "none",
    length: int | None = None,
) -> Mechanism:
    """Return the mechanism, with the score, the position that is part of it, and the normaliser.

    ``length``: the longest input, if it is not that of the settings.
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
