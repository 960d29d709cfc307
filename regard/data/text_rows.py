"""The texts of one column of a .csv, .tsv or .jsonl file, labels unread."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.data.conllu import Sentence, sentences
from regard.data.examples import Example
from regard.data.files import (
    Lines,
    _csv_rows,
    _json_object,
    _tab_rows,
    kind_of,
    open_binary,
)
from regard.data.titles import TEXT_NAMES, listed, numbered
from regard.errors import RegardError


def text_rows(path: Path | str, column: str = "", *, empty: bool = False) -> Iterator[str]:
    """Every text that is not empty, or all (``empty``), in order, in a memory of one line.

    The column is `column`, or the one with a usual name (text, review, sentence, …). A table whose
    column is given by its number (from 1) has no header, nor has a .tsv of one column without such
    a name: every line holds a text.

    Errors: no such column; a line that cannot be read, by file:line.
    """
    path = Path(path)
    kind = kind_of(path)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        if kind == "jsonl":
            rows = _of_json(lines, column)
        else:
            rows = _of_table(lines, kind, column, blank=empty)
        for text in rows:
            if empty or text.strip():
                yield text


def _of_table(lines: Lines, kind: str, column: str, *, blank: bool) -> Iterator[str]:
    """``blank``: in a table of one column an empty line is a row, whose text is empty."""
    rows = _tab_rows(lines, blank) if kind == "tsv" else _csv_rows(lines, blank)
    place, width = -1, 0
    for number, fields in rows:
        here = f"{lines.name}:{number}"
        if says := lines.complaint():
            raise RegardError(f"{here}: {says}")
        if isinstance(fields, str):
            raise RegardError(f"{here}: {fields}")
        if not fields:
            if width == 1:
                yield ""
            continue
        if place < 0:
            width = len(fields)
            names = [name.strip().casefold() for name in fields]
            if len(fields) == 1 and not column and names[0] not in TEXT_NAMES:
                place = 0
                yield fields[0]
                continue
            given = numbered(column, names)
            if given is not None and 0 <= given < width:
                place = given
                if names[place] not in TEXT_NAMES:
                    yield fields[place]
                continue
            place = _place(here, fields, names, column)
            continue
        if len(fields) != width:
            raise RegardError(
                f"{here}: has {len(fields)} fields and the first row {width}; a text with a comma "
                "or a tab stands in quotes"
            )
        yield fields[place]


def _of_json(lines: Lines, column: str) -> Iterator[str]:
    key = ""
    for line in lines:
        if not line.strip():
            continue
        here = lines.here
        row: dict[str, Any] | str = lines.complaint() or _json_object(line)
        if isinstance(row, str):
            raise RegardError(f"{here}: {row}")
        if not key:
            names = list(row)
            key = names[_place(here, names, [name.strip().casefold() for name in names], column)]
        text = "" if row.get(key) is None else row[key]
        if not isinstance(text, str):
            raise RegardError(f"{here}: {key!r} is not a string but {text!r:.40}")
        yield text.encode(errors="replace").decode()


def _place(here: str, titles: Sequence[str], names: Sequence[str], column: str) -> int:
    wanted = (column.strip().casefold(),) if column else TEXT_NAMES
    for name in wanted:
        if name in names:
            return names.index(name)
    asked = f"no column {column!r}" if column else "no column looks like the text"
    raise RegardError(
        f"{here}: {asked}; there are {listed(titles)}; name it by text=NAME (predict, evaluate: "
        "--text NAME; of without=: without_text=NAME)"
    )


def parsed_sentences(file: Path) -> Iterator[Example]:
    """Yield the sentences of a CoNLL-U file, labels unread. Errors: by file:line."""
    with open_binary(file) as opened:
        read = Lines(opened, file.name)
        for found in sentences(read):
            if complaint := read.complaint() or getattr(found, "why", ""):
                raise RegardError(f"{file.name}:{found.line}: {complaint}")
            assert isinstance(found, Sentence)
            yield Example(" ".join(found.words), "", f"{file.name}:{found.line}", "", found.parents)
