"""Settings: flat, frozen, checked; from Python, TOML files and ``key=value`` of a command."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from regard.errors import RegardError, no_such
from regard.ranges import Range
from regard.usual import nearest

S = TypeVar("S", bound="Settings")


class Settings(BaseModel):
    """The base of every settings model: one flat model beside each model, task and trainer."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    #: What `regard compare --tune` draws by default: ranges of settings that do not change what
    #: the model is (regularisation, first weights, the optimizer), never its parts or its size.
    search: ClassVar[Mapping[str, Range]] = {}

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """What each setting means; where it is one of a few words, these first."""
        return {
            key: f"{choices(field.annotation)}{field.description}"
            for key, field in cls.model_fields.items()
        }


def build(cls: type[S], values: Mapping[str, Any]) -> S:
    """Settings from plain values; what does not fit is an error of one line.

    Strings are converted, so that values from a command line are as good as Python's.
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
    """Hand each ``key=value`` to the one settings class that has such a field.

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
    """The words that a setting may be, before its meaning, if they are listed.

    >>> choices(Literal["mean", "max", "cls"]), choices(int)
    ('mean, max or cls: ', '')
    """
    if get_origin(annotation) is not Literal:
        return ""
    *first, last = get_args(annotation)
    return f"{', '.join(first)} or {last}: "


def words(cls: type[Settings], key: str) -> tuple[str, ...]:
    """Return the words that a setting may be; none of one that is a number or a free text."""
    annotation = cls.model_fields[key].annotation if key in cls.model_fields else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()


def unknown_key(key: str, known: Sequence[str]) -> str:
    """The sentence for a setting that does not exist."""
    return no_such(key, sorted(set(known)), "setting")
