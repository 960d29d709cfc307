"""Rows of tables and of JSON lines, which every loader reads in the same way."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import parse_json
from regard.lab.data.delimited import table_rows
from regard.lab.data.examples import BadRow, Remark
from regard.lab.data.lines import Lines
from regard.lab.data.spelling import counted, repeats
from regard.lab.data.titles import Chosen, OtherFileError, listed, unread

KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FORMATS = (
    "unsupported file type; use a .csv, .tsv, .jsonl, .txt or .parquet file, a .conllu file of "
    "labelled sentences, a folder or comma-separated files of one class each (neg.txt,pos.txt), "
    "or a folder of Hugging Face datasets"
)
SHEET = "save the sheet as CSV UTF-8"
REMEDIES = {
    ".json": "write a JSON array as one object per line: jq -c '.[]' FILE > NEW.jsonl",
    ".xlsx": SHEET,
    ".xls": SHEET,
    ".ods": SHEET,
}

#: file:line of a row with its fields, its JSON object, or its error.
Record = tuple[str, list[str] | dict[str, Any] | str]


def table_kind(path: Path | str, kinds: Mapping[str, str] = KINDS) -> str | None:
    """Return csv, tsv or jsonl by the file's name, plain or .gz; None for another kind.

    >>> table_kind(Path("new.ndjson.gz")), table_kind(Path("new.txt"))
    ('jsonl', None)
    """
    return kinds.get(Path(Path(path).name.lower().removesuffix(".gz")).suffix)


def kind_of(path: Path, kinds: Mapping[str, str] | None = None) -> str:
    """Return csv, tsv or jsonl by the file's name, or one of `kinds`. Raises: another kind."""
    if kind := table_kind(path, kinds or KINDS):
        return kind
    if kinds is None:
        raise OtherFileError(
            f"{path}: unsupported file type; use .csv, .tsv or .jsonl, plain or .gz"
        )
    suffix = Path(path.name.lower().removesuffix(".gz")).suffix
    if remedy := REMEDIES.get(suffix):
        raise OtherFileError(f"{path}: unsupported file type; {remedy}")
    raise OtherFileError(f"{path}: {FORMATS}")


def records(
    lines: Lines, kind: str, *, blank: bool = False, quotes: bool = True
) -> Iterator[Record]:
    """Yield each row of a file of a kind: csv, tsv or jsonl. Options: as `table_rows`.

    Raises: no rows; a first row of a table that cannot be read.
    """
    none = True
    if kind == "jsonl":
        for line in lines:
            if line.strip():
                none = False
                yield lines.here, lines.complaint() or json_object(line)
    else:
        for number, fields in table_rows(lines, kind, blank=blank, quotes=quotes):
            here = f"{lines.name}:{number}"
            if none and isinstance(fields, str):
                raise RegardError(f"{here}: {fields}")
            none = False
            yield here, fields
    if none:
        raise RegardError(f"{lines.name}: contains no rows")


def sound(rows: Iterable[Record]) -> Iterator[tuple[str, list[str] | dict[str, Any]]]:
    """Yield the rows. Raises: the first error, by file:line."""
    for here, row in rows:
        if isinstance(row, str):
            raise RegardError(f"{here}: {row}")
        yield here, row


def selected(
    rows: Iterable[Record],
    choose: Callable[[str, list[str]], Chosen],
    *,
    optional: int = 0,
    joined: bool = True,
) -> Iterator[tuple[str, list[Any]] | BadRow | Remark]:
    """Yield the chosen values of each row with file:line, bad rows, and remarks.

    `choose` returns the columns, given the first row or the keys of the first object. The first
    `optional` of them may be missing in an object, which is then an empty row. `joined`: rows that
    repeat the header, as in joined files, are skipped with a remark.
    """
    header: list[str] = []
    again: list[str] = []
    for here, row in rows:
        if isinstance(row, str):
            yield BadRow(here, row)
            continue
        fields = list(row)
        if first := not header:
            header, chosen = fields, choose(here, fields)
            keys = [header[place] for place in chosen.places]
            yield from unread(header, chosen.places) if chosen.titled else ()
            yield from [Remark(chosen.remark)] if chosen.remark else ()
        if isinstance(row, dict):
            if missing := [key for key in keys if key not in row]:
                why = f"missing key {missing[0]!r}; keys: {listed(fields)}"
                empty = missing[0] in keys[:optional]  # as null is
                yield BadRow(here, why, empty, values=tuple(map(row.get, keys)) if empty else ())
            else:
                yield here, [row[key] for key in keys]
        elif first and chosen.titled:
            continue
        elif len(fields) != len(header):
            yield BadRow(here, f"{len(fields)} fields, but the first row has {len(header)}")
        elif joined and chosen.titled and repeats(fields, header):
            again.append(here)
        else:
            yield here, [fields[place] for place in chosen.places]
    if again:
        rows_again = counted(len(again), "row")
        yield Remark(f"{again[0]}: the header again, as in joined files; {rows_again} skipped")


def json_object(line: str) -> dict[str, Any] | str:
    """Return the object of a line, or a description of the error."""
    try:
        row = parse_json(line, "it")
    except RegardError as error:
        reason = str(error).removeprefix("it is not valid JSON: ")
        is_json = any(says in reason for says in ("finite", "larger than", "occurs twice"))
        return reason if is_json else f"not JSON: {reason}"
    return row if isinstance(row, dict) else "not a JSON object: {…}"
