"""DataFrames of pandas, polars and pyarrow as data, read through narwhals."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError
from regard.lab.data.fetch import cache
from regard.lab.data.records import Record

#: How Python, NumPy and pandas write a missing value.
MISSING = frozenset({"None", "nan", "NaT", "<NA>"})


def is_frame(data: object) -> bool:
    """Return whether data is a DataFrame, or a pyarrow table.

    >>> is_frame("reviews.csv"), is_frame([["text", "label"]])
    (False, False)
    """
    if isinstance(data, str | Path) or not (hasattr(data, "columns") or hasattr(data, "schema")):
        return False
    import narwhals

    return bool(narwhals.dependencies.is_into_dataframe(data))


@dataclass(frozen=True, eq=False)
class Frame:
    """A DataFrame whose rows are read like those of a file."""

    inner: Any

    def __str__(self) -> str:
        return "DataFrame"

    def records(self) -> Iterator[Record]:
        """Yield each row by the titles of its columns; missing values are None.

        Raises: no rows; titles that are not strings, or not distinct.
        """
        import narwhals

        try:
            frame = narwhals.from_native(self.inner, eager_only=True)
            titles = frame.columns
        except (TypeError, ValueError) as error:
            raise RegardError(f"DataFrame: {' '.join(str(error).split())[:200]}") from None
        if wrong := [title for title in titles if not isinstance(title, str)]:
            raise RegardError(f"DataFrame: the column name {wrong[0]!r:.60} must be a string")
        if not len(frame):
            raise RegardError("DataFrame: contains no rows")
        for number, row in enumerate(frame.iter_rows(named=True)):
            yield f"row {number}", {title: json_value(value) for title, value in row.items()}

    def file(self) -> Path:
        """Write the rows to a .jsonl file in the cache folder, named by its hash.

        A run, its workers and its resumption read that file.
        """
        lines = (json.dumps(row, ensure_ascii=False) for _, row in self.records())
        content = "".join(f"{line}\n" for line in lines).encode(errors="replace")
        path = cache() / "frames" / f"{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(path, content)
        return path


def json_value(value: Any) -> Any:
    """Return a value as JSON has it: dates and decimals as strings, missing values as None."""
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str | bool | int | list | dict | None):
        return value
    written = str(value)
    if written in MISSING:
        return None
    return value if isinstance(value, float) else written
