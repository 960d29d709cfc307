"""Settings: flat, frozen, validated; from Python, TOML files and ``key=value`` arguments."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.core.errors import RegardError, no_such
from regard.core.ranges import Range
from regard.core.reading import problem
from regard.core.usual import nearest

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """Base class of the settings of every model, task and trainer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    #: Default ranges of `regard compare --tune`: settings of regularisation, initial weights and
    #: the optimizer, which do not change the model's parts or size.
    search: ClassVar[Mapping[str, Range]] = {}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return the description of each setting, preceded by its choices if it has some."""
        return {
            key: f"{choices(field.annotation)}{field.description}"
            for key, field in cls.model_fields.items()
        }


def build(cls: type[S], values: Mapping[str, Any]) -> S:
    """Build settings from plain values. Raises: an invalid value, in one line.

    Strings are converted, as for values from a command line.
    """
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or cls.__name__
        if first["type"] == "extra_forbidden":
            raise RegardError(unknown_key(key, list(cls.model_fields))) from None
        near = nearest(str(first["input"]), words(cls, key))
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise RegardError(f"{key}={first['input']!r}: {problem(first)}{hint}") from None


def key_value(pair: str) -> tuple[str, str]:
    """Return the two sides of ``key=value``; ``batch-tokens`` is ``batch_tokens``.

    Raises: no ``=``; an argument that is not valid UTF-8, which a settings file cannot hold.

    >>> key_value("batch-tokens = 512")
    ('batch_tokens', '512')
    """
    key, equals, value = pair.partition("=")
    if not equals:
        raise RegardError(
            f"settings are written key=value, not {pair!r}; put quotes around names with spaces"
        )
    try:
        pair.encode()
    except UnicodeEncodeError:
        raise RegardError(
            f"{pair!r:.80} is not valid UTF-8; rename the file, or set PYTHONUTF8=1 if the locale "
            "is not UTF-8"
        ) from None
    return key_of(key), value.strip()


def key_of(pair: str) -> str:
    """Return the key of ``key=value``, or of a key alone."""
    return pair.partition("=")[0].strip().replace("-", "_")


def split(overrides: Sequence[str], *classes: type[Settings]) -> list[dict[str, str]]:
    """Assign each ``key=value`` to the settings classes that have such a field.

    Raises: a pair without ``=``, a key that no class knows (with the nearest spellings), a key
    given twice.
    """
    shares: list[dict[str, str]] = [{} for _ in classes]
    seen: set[str] = set()
    for pair in overrides:
        key, value = key_value(pair)
        if key in seen:
            raise RegardError(f"{key} is set twice")
        seen.add(key)
        owners = [i for i, cls in enumerate(classes) if key in cls.model_fields]
        if not owners:
            raise RegardError(unknown_key(key, [f for cls in classes for f in cls.model_fields]))
        for owner in owners:
            shares[owner][key] = value
    return shares


def described(default: Any, help: str, **option: Any) -> Any:
    """Return a field of a frozen dataclass with the help of its command-line option.

    `option` has arguments of `typer.Option` and, where they differ from those of the field, the
    ``name``, the ``flags`` and the ``type`` of the option. ``MISSING`` is no default.
    """
    return field(default=default, metadata={"help": help, **option})


def choices(annotation: Any) -> str:
    """Return the choices of a setting as a prefix of its description.

    >>> choices(Literal["mean", "max", "cls"]), choices(int)
    ('mean, max or cls: ', '')
    """
    if get_origin(annotation) is not Literal:
        return ""
    *first, last = get_args(annotation)
    return f"{', '.join(first)} or {last}: "


def words(cls: type[Settings], key: str) -> tuple[str, ...]:
    """Return the choices of a setting; none for a number or free text."""
    annotation = cls.model_fields[key].annotation if key in cls.model_fields else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def unknown_key(key: str, known: Sequence[str]) -> str:
    """Return the error message for an unknown setting."""
    return no_such(key, sorted(set(known)), "setting")


def pairs(settings: Mapping[str, Any]) -> list[str]:
    """Return settings as ``key=value`` pairs, without empty ones and None.

    Raises: a value that is not a string, a number or a list of these.

    >>> pairs({"heads": 2, "tie": True, "widths": [3, 4], "data": "", "steps": None})
    ['heads=2', 'tie=1', 'widths=3,4']
    """
    texts = {key: _word(key, value) for key, value in settings.items() if value is not None}
    return [f"{key}={text}" for key, text in texts.items() if text]


def _word(key: str, value: Any) -> str:
    if isinstance(value, list | tuple):
        return ",".join(_word(key, one) for one in value)
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:  # a NumPy scalar
        value = value.item()
    if not isinstance(value, str | int | float):
        raise RegardError(
            f"{key} has the unsupported type {type(value).__name__}; give a string or a number, "
            "for your own class its FILE.py:Name, for data a file"
        )
    return in_words(value)


def in_words(value: object) -> str:
    """Format a setting as the command line reads it.

    >>> in_words(True), in_words(30.0), in_words(1e-5), in_words("corpus-1.0")
    ('1', '30', '1e-05', 'corpus-1.0')
    """
    if isinstance(value, float):
        return str(value).removesuffix(".0")
    return str(int(value) if isinstance(value, bool) else value)
