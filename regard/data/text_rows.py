"""The texts of one column of a .csv, .tsv or .jsonl file, without labels."""

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
    """Yield the non-empty texts, or with ``empty`` all, in order, reading line by line.

    The column is `column`, or one with a common name (text, review, sentence, …). A table whose
    column is given by number (from 1) has no header, nor does a .tsv of one column without such a
    name: every line is a text.

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
    """Yield a table's texts; with ``blank`` an empty line of one column is an empty text."""
    rows = _tab_rows(lines, blank) if kind == "tsv" else _csv_rows(lines, blank)
    place, width = -1, 0
    for number, fields in rows:
        here = f"{lines.name}:{number}"
        if problem := lines.complaint():
            raise RegardError(f"{here}: {problem}")
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
            index = numbered(column, names)
            if index is not None and 0 <= index < width:
                place = index
                if names[place] not in TEXT_NAMES:
                    yield fields[place]
                continue
            place = _place(here, fields, names, column)
            continue
        if len(fields) != width:
            raise RegardError(
                f"{here}: {len(fields)} fields, but the first row has {width}; quote texts with a "
                "comma or a tab"
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
            raise RegardError(f"{here}: {key!r} must be a string, not {text!r:.40}")
        yield text.encode(errors="replace").decode()


def _place(here: str, titles: Sequence[str], names: Sequence[str], column: str) -> int:
    wanted = (column.strip().casefold(),) if column else TEXT_NAMES
    for name in wanted:
        if name in names:
            return names.index(name)
    problem = f"unknown column {column!r}" if column else "cannot find the text column"
    raise RegardError(
        f"{here}: {problem}; columns: {listed(titles)}; set text=NAME (predict, evaluate: "
        "--text NAME; for without=: without_text=NAME)"
    )


def parsed_sentences(file: Path) -> Iterator[Example]:
    """Yield the sentences of a CoNLL-U file, without labels. Errors: by file:line."""
    with open_binary(file) as opened:
        read = Lines(opened, file.name)
        for sentence in sentences(read):
            if complaint := read.complaint() or getattr(sentence, "why", ""):
                raise RegardError(f"{file.name}:{sentence.line}: {complaint}")
            assert isinstance(sentence, Sentence)
            yield Example(
                " ".join(sentence.words), "", f"{file.name}:{sentence.line}", "", sentence.parents
            )
