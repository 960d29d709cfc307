"""Names of parts with numbers: ``top-k-8``, ``rotary-base-500000-part-0.25``."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from regard.core.errors import RegardError, look_up
from regard.core.plugins import is_part
from regard.core.tables import Table

T = TypeVar("T")
_number = re.compile(r"\d+(\.\d+)?(e\d+)?")


def named_part(table: Table[T], name: str) -> tuple[T, dict[str, Any]]:
    """Return the row of a name and the options that follow it.

    A row's ``options`` give, by name, how many numbers each takes; the name of a row's only option
    may be left out. One number is itself, more are a tuple. Raises: an unknown name, an unknown
    option, another count of numbers.

    >>> from regard.attention.normalizers import NORMALIZERS
    >>> named_part(NORMALIZERS, "top-k-8")[1]
    {'k': 8}
    """
    if name in table.rows or (is_part(name) and "-" not in name.rpartition(":")[2]):
        return table[name], {}
    file, colon, words = name.rpartition(":")
    tokens = words.split("-")
    for end in range(len(tokens), 0, -1):
        base = f"{file}{colon}{'-'.join(tokens[:end])}"
        if base in table:
            row = table[base]
            if end < len(tokens):
                return row, _options(name, row, tokens[end:])
            return row, {}
    return look_up(table, name, table.what), {}


def is_row(table: Table[T], name: str) -> bool:
    """Return whether a name is a row of a table, with or without options.

    >>> from regard.attention.normalizers import NORMALIZERS
    >>> is_row(NORMALIZERS, "top-k-8"), is_row(NORMALIZERS, "top")
    (True, False)
    """
    return any(name == row or name.startswith(f"{row}-") for row in table)


def _options(name: str, row: object, tokens: list[str]) -> dict[str, Any]:
    known: Mapping[str, int] = getattr(row, "options", {})
    settings: dict[str, list[float]] = {}
    key = next(iter(known)) if len(known) == 1 else ""  # of numbers right behind the name
    for token in tokens:
        if _number.fullmatch(token):
            settings.setdefault(key, []).append(float(token) if "." in token else int(float(token)))
        else:
            key = token
            settings[key] = []
    counts = {key: len(numbers) for key, numbers in settings.items()}
    if any(known.get(key) != count for key, count in counts.items()):
        raise RegardError(f"{name!r} has other numbers than its part takes: {_usage(name, row)}")
    return {
        key: numbers[0] if len(numbers) == 1 else tuple(numbers)
        for key, numbers in settings.items()
    }


def _usage(name: str, row: object) -> str:
    known: Mapping[str, int] = getattr(row, "options", {})
    ways = [f"-{key}" + "-NUMBER" * count for key, count in known.items()]
    return f"it may be followed by {', '.join(ways)}" if ways else "it takes none"
