"""Settings: flat, frozen, validated; from Python, TOML files and ``key=value`` arguments."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.errors import RegardError, no_such
from regard.ranges import Range
from regard.usual import nearest

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """Base class of the settings of every model, task and trainer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    #: What `regard compare --tune` draws by default: ranges of settings that do not change what
    #: the model is (regularisation, first weights, the optimizer), never its parts or its size.
    search: ClassVar[Mapping[str, Range]] = {}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """Return the description of each setting, preceded by its choices if it has some."""
        return {
            key: f"{choices(field.annotation)}{field.description}"
            for key, field in cls.model_fields.items()
        }


def build(cls: type[S], values: Mapping[str, Any]) -> S:
    """Build settings from plain values. Errors: an invalid value, in one line.

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
        raise RegardError(f"{key}={first['input']!r}: {first['msg'].lower()}{hint}") from None


def key_value(pair: str) -> tuple[str, str]:
    """Return the two sides of ``key=value``; ``batch-tokens`` is ``batch_tokens``.

    Errors: no ``=``.

    >>> key_value("batch-tokens = 512")
    ('batch_tokens', '512')
    """
    key, equals, value = pair.partition("=")
    if not equals:
        raise RegardError(f"settings are written key=value, not {pair!r}")
    return key_of(key), value.strip()


def key_of(pair: str) -> str:
    """Return the key of ``key=value``, or of a key alone."""
    return pair.partition("=")[0].strip().replace("-", "_")


def split(overrides: Sequence[str], *classes: type[Settings]) -> list[dict[str, str]]:
    """Assign each ``key=value`` to the settings classes that have such a field.

    Errors: a pair without ``=``, a key that no class knows (with the nearest spellings), a key
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
