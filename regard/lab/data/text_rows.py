"""Texts without labels, one after another: a table's column, or the passages of a text file."""

from collections.abc import Iterator
from itertools import chain, dropwhile, groupby
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.lab.data import arrow
from regard.lab.data.conllu import Sentence, sentences
from regard.lab.data.delimited import table_rows
from regard.lab.data.examples import Example
from regard.lab.data.files import (
    FILE_LIMIT,
    LINE_LIMIT,
    Lines,
    json_object,
    kind_of,
    open_binary,
)
from regard.lab.data.spelling import repeats
from regard.lab.data.text_files import TextFile
from regard.lab.data.titles import TEXT_NAMES, numbered, text_column

PLAIN = (".txt", ".md")  # text files without columns
DECIDING = 10_000_000  # characters read to decide whether empty lines separate passages
PASSAGE_LIMIT = 16 * LINE_LIMIT  # characters


def is_plain(name: str) -> bool:
    """Return whether a file of this name has passages and no columns."""
    return name.lower().removesuffix(".gz").endswith(PLAIN)


def documents(file: TextFile, column: str = "", most: int = FILE_LIMIT) -> Iterator[str]:
    """Yield the non-empty texts of a file of any kind, reading it once, in constant memory.

    Raises: no such column; more than `most` bytes of text; a row or a line that cannot be read, by
    file:line.
    """
    if is_plain(file.name):
        if column:
            raise RegardError(f"{file} has no columns; remove text={column}")
        yield from passages(file, most)
    elif file.suffix.lower() == ".parquet":
        yield from (text for text in arrow.texts(file, column, most) if text.strip())
    else:
        yield from text_rows(file, column, most=most)


def passages(path: Path | TextFile, most: int = FILE_LIMIT) -> Iterator[str]:
    """Yield the passages of a text file: separated by empty lines, or its lines if none is empty.

    The first ten million characters decide which. Raises: a line or a passage that is too long.
    """
    with open_binary(path) as file:
        lines = Lines(file, path.name, most=most)
        rows = dropwhile(lambda row: not row.strip(), _plain_lines(lines))
        head, size = [], 0
        while size < DECIDING and (row := next(rows, None)) is not None:
            head.append(row)
            size += len(row) + 1
        last = max((place for place, row in enumerate(head) if row.strip()), default=-1)
        by_line = all(row.strip() for row in head[: last + 1])  # without trailing empty lines
        if by_line:
            yield from (row for row in chain(head, rows) if row.strip())
            return
        for filled, block in groupby(chain(head, rows), key=lambda row: bool(row.strip())):
            if filled:
                yield _passage(block, lines)


def _plain_lines(lines: Lines) -> Iterator[str]:
    for line in lines:
        if problem := lines.complaint():
            raise RegardError(f"{lines.here}: {problem}")
        yield line.rstrip("\r\n")


def _passage(rows: Iterator[str], lines: Lines) -> str:
    parts, size = [], 0
    for row in rows:
        parts.append(row)
        if (size := size + len(row)) > PASSAGE_LIMIT:
            raise RegardError(
                f"{lines.here}: the passage is longer than {PASSAGE_LIMIT:,} characters; separate "
                "passages by empty lines"
            )
    return "\n".join(parts)


def text_rows(
    path: Path | str | TextFile, column: str = "", *, empty: bool = False, most: int = FILE_LIMIT
) -> Iterator[str]:
    """Yield the non-empty texts, or with ``empty`` all, in order, reading line by line.

    The column is `column`, or one with a common name (text, review, sentence, …). A table has no
    header if the column is given by number (from 1), nor has a .tsv of one column without a common
    name: there every line is a text.

    Raises: no such column; a line that cannot be read, by file:line.
    """
    path = Path(path) if isinstance(path, str) else path
    kind = kind_of(path if isinstance(path, Path) else Path(path.name))
    with open_binary(path) as file:
        lines = Lines(file, path.name, most=most)
        if kind == "jsonl":
            rows = _of_json(lines, column)
        else:
            rows = _of_table(lines, kind, column, blank=empty)
        for text in rows:
            if empty or text.strip():
                yield text


def _of_table(lines: Lines, kind: str, column: str, *, blank: bool) -> Iterator[str]:
    """Yield a table's texts; with ``blank`` an empty line of one column is an empty text.

    A repeated header, as in joined files, is skipped, except with ``blank``.
    """
    place, width = -1, 0
    header: list[str] = []
    for number, fields in table_rows(lines, kind, blank=blank):
        here = f"{lines.name}:{number}"
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
            place, header = text_column(here, fields, column), fields
            continue
        if len(fields) != width:
            raise RegardError(
                f"{here}: {len(fields)} fields, but the first row has {width}; quote texts with a "
                "comma or a tab"
            )
        if blank or not repeats(fields, header):
            yield fields[place]


def _of_json(lines: Lines, column: str) -> Iterator[str]:
    key = ""
    for line in lines:
        if not line.strip():
            continue
        here = lines.here
        row: dict[str, Any] | str = lines.complaint() or json_object(line)
        if isinstance(row, str):
            raise RegardError(f"{here}: {row}")
        if not key:
            names = list(row)
            key = names[text_column(here, names, column)]
        text = "" if row.get(key) is None else row[key]
        if not isinstance(text, str):
            raise RegardError(f"{here}: {key!r} must be a string, not {text!r:.40}")
        yield text.encode(errors="replace").decode()


def parsed_sentences(file: Path) -> Iterator[Example]:
    """Yield the sentences of a CoNLL-U file, without labels. Raises: by file:line."""
    with open_binary(file) as opened:
        read = Lines(opened, file.name)
        for sentence in sentences(read):
            if complaint := read.complaint() or getattr(sentence, "why", ""):
                raise RegardError(f"{file.name}:{sentence.line}: {complaint}")
            assert isinstance(sentence, Sentence)
            yield Example(
                " ".join(sentence.words), "", f"{file.name}:{sentence.line}", "", sentence.parents
            )
