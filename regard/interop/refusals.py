"""Errors for settings that another program does not support."""

from collections.abc import Collection, Mapping

from regard.core.errors import RegardError
from regard.core.settings import Settings


def must_be(settings: Settings, program: str, allowed: Mapping[str, Collection[object]]) -> None:
    """Reject settings that ``program`` does not support, naming the supported values.

    >>> from regard.nn.models.settings import GPTSettings
    >>> must_be(GPTSettings(score="additive"), "GPT-2", {"score": ["scaled-dot"]})
    Traceback (most recent call last):
    RegardError: GPT-2 does not support score=additive; train with score=scaled-dot...
    """
    for key, values in allowed.items():
        value = getattr(settings, key)
        if value not in values:
            raise RegardError(
                f"{program} does not support {key}={value}; train with {key}="
                f"{' or '.join(map(str, values))}, or export to another program"
            )


def same_heads(settings: Settings, program: str) -> None:
    """Reject keys and values that query heads share."""
    shared, heads = getattr(settings, "key_value_heads"), getattr(settings, "heads")  # noqa: B009
    if shared not in (0, heads):
        raise RegardError(
            f"{program} does not support key_value_heads={shared}; train with key_value_heads=0, "
            "or export to another program"
        )
