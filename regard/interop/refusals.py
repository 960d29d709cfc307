"""Errors for settings that another program does not support."""

from collections.abc import Collection, Mapping

from regard.core.errors import RegardError
from regard.core.settings import Settings

#: Settings of which every other program supports one value.
COMMON: Mapping[str, Collection[object]] = {
    "attention": ["multi-head"],
    "normalize": ["softmax"],
    "pattern": ["none"],
}


def must_be(settings: Settings, program: str, allowed: Mapping[str, Collection[object]]) -> None:
    """Reject settings that ``program`` does not support, naming the supported values.

    Each query head must have keys and values of its own.

    >>> from regard.nn.models.settings import GPTSettings
    >>> must_be(GPTSettings(score="additive"), "GPT-2", {"score": ["scaled-dot"]})
    Traceback (most recent call last):
    RegardError: GPT-2 does not support score=additive; train with score=scaled-dot...
    """
    required = {**allowed, **COMMON}
    if getattr(settings, "key_value_heads") != getattr(settings, "heads"):  # noqa: B009
        required["key_value_heads"] = [0]
    for key, values in required.items():
        value = getattr(settings, key)
        if value not in values:
            raise RegardError(
                f"{program} does not support {key}={value}; train with {key}="
                f"{' or '.join(map(str, values))}, or export to another program"
            )
