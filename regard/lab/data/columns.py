"""Numeric columns of a CSV, TSV or JSON lines file, plain or gzip."""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from regard.core.errors import RegardError
from regard.lab.data.lines import Lines, open_binary
from regard.lab.data.numbers import parse_number, remedy
from regard.lab.data.records import kind_of, records, sound
from regard.lab.data.titles import column, must_be_distinct

#: Markers of missing numbers, in lower case.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
TOLERATED = 0.2  # fraction of rows with a missing number that is dropped with a note


@dataclass(frozen=True)
class NumberTable:
    """Numbers in named columns, the target last; rows with a missing number are dropped.

    `missing` counts the dropped rows; `first` describes the first of them.
    """

    names: Sequence[str]
    values: Float[np.ndarray, "rows columns"]
    missing: int = 0
    first: str = ""

    @property
    def x(self) -> Float[np.ndarray, "rows x"]:
        """Return the input columns."""
        return self.values[:, :-1]

    @property
    def y(self) -> Float[np.ndarray, " rows"]:
        """Return the target column."""
        return self.values[:, -1]


def read_columns(path: Path | str, x: Sequence[str] = (), y: str = "") -> NumberTable:
    """Return the columns `x` and `y` of a .csv, .tsv or .jsonl file, plain or .gz.

    Without names: all columns whose first entry is a number, the last of them `y`. The first row
    is the header, unless it is all numbers: then columns are named 1, 2, …

    Raises, with file:line: a text among numbers; infinity; an unknown column; missing numbers in
    more than a fifth of the rows; no rows.
    """
    path = Path(path)
    kind = kind_of(path)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        return _gather(path.name, _rows(lines, kind), [name.strip() for name in x], y.strip())


Row = tuple[str, Sequence[Any]]  # file:line and the fields
Rows = tuple[list[str], Iterator[Row]]


def _rows(lines: Lines, kind: str) -> Rows:
    """Return the column names and the rows; a missing key of a JSON object is null."""
    rows = sound(records(lines, kind))
    here, first = next(rows)
    names = [str(name).strip() for name in first]
    if isinstance(first, dict):
        names = list(first)
        rows = chain([(here, first)], rows)
    elif all(map(_is_numeric, names)):
        names = [str(i + 1) for i in range(len(names))]
        rows = chain([(here, first)], rows)
    else:
        must_be_distinct(here, names)
    return names, _whole(names, rows)


def _whole(
    names: Sequence[str], rows: Iterable[tuple[str, list[str] | dict[str, Any]]]
) -> Iterator[Row]:
    for here, row in rows:
        fields = [row.get(name) for name in names] if isinstance(row, dict) else row
        if len(fields) != len(names):
            raise RegardError(f"{here}: {len(fields)} fields, but the first row has {len(names)}")
        yield here, fields


def _gather(file: str, rows: Rows, x: Sequence[str], y: str) -> NumberTable:
    """Return the chosen columns as numbers."""
    names, rest = rows
    first = next(rest, None)
    if first is None:
        raise RegardError(f"{file}: contains a header but no rows")
    places = _chosen(file, names, first, x, y)
    chosen = [names[place] or str(place + 1) for place in places]
    numbers, missing, where, count = array("d"), 0, "", 0
    for here, fields in chain([first], rest):
        count += 1
        row = []
        for name, place in zip(chosen, places, strict=True):
            value = _number(fields[place])
            if isinstance(value, str):
                how = remedy(fields[place]) if isinstance(fields[place], str) else ""
                raise RegardError(
                    f"{here}: column {name!r} must be numeric, not {value}"
                    + (f"; {how}, or choose other columns: x=NAME,NAME y=NAME" if how else "")
                )
            if math.isnan(value):
                where = where or f"{here}: missing number in column {name!r}"
                break
            row.append(value)
        else:
            numbers.extend(row)
            continue
        missing += 1
    if missing > TOLERATED * count:
        raise RegardError(
            f"{where}; {missing} of {count} rows have missing numbers, more than {TOLERATED:.0%}; "
            "fill them in or drop the column"
        )
    return NumberTable(chosen, np.array(numbers).reshape(-1, len(chosen)), missing, where)


def _chosen(file: str, names: Sequence[str], first: Row, x: Sequence[str], y: str) -> list[int]:
    """Return the input columns, then the target column.

    By default, columns without a title are omitted, since pandas writes row numbers there.
    """
    inputs = [column(file, names, name) for name in x]
    here, fields = first
    numeric = [place for place, x in enumerate(fields) if names[place] and _is_numeric(x)]
    target = column(file, names, y) if y else None
    if target in inputs:
        raise RegardError(f"y={y} is also in x={','.join(x)}; remove it from x")
    if twice := next((name for i, name in enumerate(x) if inputs[i] in inputs[:i]), ""):
        raise RegardError(f"x={','.join(x)} names {twice!r} twice")
    if target is None:
        left = [place for place in numeric if place not in inputs]
        if not left:
            raise RegardError(f"{here}: no numeric column is left to predict; set y=NAME")
        target = left[-1]
    inputs = inputs or [place for place in numeric if place != target]
    if not inputs:
        raise RegardError(
            f"{here}: no numeric column to predict {names[target]!r} from; set x=NAME,NAME"
        )
    return [*inputs, target]


def _is_numeric(field: Any) -> bool:
    """Return whether a field is a number, even in an unsupported notation."""
    return isinstance(_number(field), float) or (isinstance(field, str) and bool(remedy(field)))


def _number(field: Any) -> float | str:
    """Return a number, NaN if it is missing, or a description of any other value."""
    if isinstance(field, str):
        text = field.strip()
        if text.lower() in MISSING:
            return math.nan
        value = parse_number(text)
        if value is None or math.isnan(value):
            return repr(text if len(text) <= 30 else text[:29] + "…")
    elif field is None:
        return math.nan
    elif isinstance(field, bool) or not isinstance(field, int | float):
        return json.dumps(field)[:40]
    else:
        try:
            value = float(field)
        except OverflowError:
            return "a whole number beyond 1e308"
    return "infinity" if math.isinf(value) else value
