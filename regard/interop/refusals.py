"""What another program cannot express, said by the setting to change."""

from collections.abc import Collection, Mapping

from regard.errors import RegardError
from regard.settings import Settings


def must_be(settings: Settings, where: str, allowed: Mapping[str, Collection[object]]) -> None:
    """Refuse settings that ``where`` has no place for, each by its name and what would do.

    >>> from regard.models.settings import GPTSettings
    >>> must_be(GPTSettings(score="additive"), "GPT-2", {"score": ["scaled-dot"]})
    Traceback (most recent call last):
    regard.errors.RegardError: GPT-2 has no place for score=additive; it takes score=scaled-dot...
    """
    for key, values in allowed.items():
        value = getattr(settings, key)
        if value not in values:
            raise RegardError(
                f"{where} has no place for {key}={value}; it takes {key}="
                f"{' or '.join(map(str, values))}: train with that, or export to another program"
            )


def same_heads(settings: Settings, where: str) -> None:
    """Refuse shared heads of keys and values."""
    shared, heads = getattr(settings, "key_value_heads"), getattr(settings, "heads")  # noqa: B009
    if shared not in (0, heads):
        raise RegardError(
            f"{where} has no place for key_value_heads={shared}; it takes key_value_heads=0: train "
            "with that, or export to another program"
        )
