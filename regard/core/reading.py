"""Validated reading of files, with size limits and one-line errors.

Files are not trusted: a stranger, a full disk or another version may have written them. In JSON,
numbers must be finite and fit 64 bits, keys must be unique, nesting is limited to `DEEPEST`
levels, and fields must match the class that is read.
"""

import json
import math
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from torch import Tensor

T = TypeVar("T")
MOST = 100_000_000  # maximum bytes of a JSON file
DEEPEST = 100  # maximum nesting of lists and objects
WIDEST = 1 << 63  # bound of a whole number


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """Return a file's content. Raises: no file, or unreadable; more than ``most`` bytes."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would block
            raise RegardError(f"{path} cannot be read: it is not a file")
        if status.st_size > most:
            raise RegardError(f"{path} is larger than {most:,} bytes")
        with path.open("rb") as file:
            return file.read(status.st_size)
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        raise RegardError(f"{path} cannot be read: {_why(error)}") from None


def parse_json(data: bytes | str, source: object, widest: int = WIDEST) -> Any:
    """Return the value of a JSON document; ``source`` names it in errors.

    Raises: invalid JSON; NaN, infinite numbers, integers of ``widest`` or more; duplicate keys;
    nesting deeper than `DEEPEST`.

    >>> parse_json("[1, 2.5]", "example")
    [1, 2.5]
    >>> parse_json("[1e999]", "example")
    Traceback (most recent call last):
    regard.core.errors.RegardError: example is not valid JSON: 1e999 is not a finite number
    """
    try:
        text = data.decode() if isinstance(data, bytes) else data
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_float=_finite,
            parse_int=partial(_whole, widest),
            parse_constant=_finite,
        )
        _must_be_shallow(value)
    except (ValueError, RecursionError) as error:
        raise RegardError(f"{source} is not valid JSON: {_why(error)}") from None
    return value


def read_json(path: Path, most: int = MOST, widest: int = WIDEST) -> dict[str, Any]:
    """Return a JSON file's object. Raises: as `read_bytes` and `parse_json`; not an object."""
    value = parse_json(read_bytes(path, most), path, widest)
    if not isinstance(value, dict):
        raise RegardError(f"{path} is not a JSON object")
    return value


def parse_rows(data: bytes, source: object) -> Iterator[dict[str, Any]]:
    """Return the JSON object of each line. Raises: as `parse_json`, with the line number."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            value = parse_json(line, f"{source}:{number}")
            if not isinstance(value, dict):
                raise RegardError(f"{source}:{number} is not a JSON object")
            yield value


#: regard's message for each kind of pydantic error; the fields come from the error's context.
KINDS = {
    "int_": "must be a whole number",
    "float_": "must be a number",
    "decimal_": "must be a number",
    "finite_number": "must be a finite number",
    "bool_": "must be true or false",
    "string_type": "must be a text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must be an object",
    "model_": "must be an object",
    "dataclass_": "must be an object",
    "literal_error": "must be {expected}",
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be greater than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
    "string_too_long": "must have at most {max_length:,} characters",
    "string_too_short": "must have at least {min_length:,} characters",
    "too_long": "must have at most {max_length:,} items",
    "too_short": "must have at least {min_length:,} items",
    "missing": "is missing",
    "extra_forbidden": "is unknown",
}


def problem(error: Mapping[str, Any]) -> str:
    """Translate a pydantic error into regard's message about the value.

    >>> problem({"type": "int_parsing", "msg": "Input should be a valid integer, …"})
    'must be a whole number'
    >>> problem({"type": "greater_than", "ctx": {"gt": 0}, "msg": "Input should be …"})
    'must be greater than 0'
    """
    if "error" in error.get("ctx", {}):  # raised by regard
        return str(error["ctx"]["error"])
    name = next((name for name in KINDS if str(error["type"]).startswith(name)), "")
    says = KINDS.get(str(error["type"]), KINDS.get(name, ""))
    return says.format(**error.get("ctx", {})) if says else str(error["msg"]).lower()


def checked(kind: type[T], value: Any, source: object) -> T:
    """Validate a plain value as a dataclass, a TypedDict or another type known to pydantic.

    Raises: a field that is missing, unknown or of another type, by its name.

    >>> checked(dict[str, int], {"a": "x"}, "example")
    Traceback (most recent call last):
    regard.core.errors.RegardError: example: a is 'x': must be a whole number
    """
    from pydantic import ValidationError  # takes a tenth of a second, which `regard.attend` saves

    if is_dataclass(kind) and isinstance(value, dict):
        known = {field.name for field in fields(kind)}
        if odd := sorted(map(str, value.keys() - known)):
            raise RegardError(f"{source}: unknown field {odd[0]!r:.60}")
    try:
        adapter: "TypeAdapter[T]" = _adapter(kind)  # type: ignore[arg-type]
        converted = adapter.validate_python(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        says = problem(first)
        if first["type"] == "missing":
            raise RegardError(f"{source}: {where:.100} {says}") from None
        raise RegardError(f"{source}: {where:.100} is {first['input']!r:.60}: {says}") from None
    return converted


def parse_tensors(data: bytes, source: object) -> "dict[str, Tensor]":
    """Return the tensors of a safetensors file. Raises: it is damaged."""
    import safetensors.torch

    with _valid_tensors(source):
        return dict(safetensors.torch.load(data))


def open_tensors(path: Path) -> "dict[str, Tensor]":
    """Return the tensors of a safetensors file, read when they are used. Raises: as parse_tensors.

    The file must not change while they are in use; it may be deleted.
    """
    import safetensors

    with _valid_tensors(path), safetensors.safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@contextmanager
def _valid_tensors(source: object) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise RegardError(f"{source} is not a valid safetensors file: {_why(error)}") from None


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {keys.most_common(1)[0][0]!r:.60} occurs twice in one object")
    return value


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number:.20} is not a finite number")
    return value


def _whole(widest: int, number: str) -> int:
    if len(number) > 400 or not -widest <= (integer := int(number)) < widest:
        raise ValueError(f"{number:.20}… is larger than {widest.bit_length()} bits hold")
    return integer


def _must_be_shallow(value: Any) -> None:
    """Raises: a value whose lists and objects are nested deeper than `DEEPEST`."""
    level = [value]
    for _ in range(DEEPEST):
        level = [
            part
            for whole in level
            if isinstance(whole, dict | list)
            for part in (whole.values() if isinstance(whole, dict) else whole)
            if isinstance(part, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"it is nested deeper than {DEEPEST} levels")


def _why(error: BaseException) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} at character {error.pos + 1}"
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return first[:200]
