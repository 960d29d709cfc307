"""Texts without labels, one after another: a table's column, or the passages of a text file."""

from collections.abc import Iterator
from itertools import chain, dropwhile, groupby
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.data import arrow
from regard.lab.data.conllu import BadSentence, read_sentences
from regard.lab.data.examples import BadRow, Example, Remark
from regard.lab.data.lines import FILE_LIMIT, LINE_LIMIT, Lines, open_binary
from regard.lab.data.records import Record, kind_of, records, selected
from regard.lab.data.text_files import TextFile
from regard.lab.data.titles import TEXT_NAMES, Chosen, numbered, text_column

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
        rows = dropwhile(lambda row: not row.strip(), lines.sound())
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

    titles: list[str] = []

    def choose(here: str, header: list[str]) -> Chosen:
        names = [name.strip().casefold() for name in header]
        place = numbered(column, names)
        if kind == "jsonl":
            place = None
        elif len(header) == 1 and not column and names[0] not in TEXT_NAMES:
            place = 0
        if place is not None and 0 <= place < len(header):
            return Chosen([place], names[place] in TEXT_NAMES)
        place = text_column(here, header, column)
        titles.append(header[place])
        return Chosen([place], True)

    with open_binary(path) as file:
        lines = Lines(file, path.name, most=most)
        rows = records(lines, kind, blank=empty)
        if empty:
            rows = _with_empty_lines(rows)
        for row in selected(rows, choose, optional=1, joined=not empty):
            if isinstance(row, Remark):
                continue
            if isinstance(row, BadRow) and not row.empty:
                quote = "; quote texts with a comma or a tab" if " fields, " in row.why else ""
                raise RegardError(f"{row.source}: {row.why}{quote}")
            text = None if isinstance(row, BadRow) else row[1][0]
            if not isinstance(text, str | None):
                raise RegardError(f"{lines.here}: {titles[0]!r} must be a string, not {text!r:.40}")
            text = (text or "").encode(errors="replace").decode()
            if empty or text.strip():
                yield text


def _with_empty_lines(rows: Iterator[Record]) -> Iterator[Record]:
    """Yield the rows; an empty line of one column is an empty text, other empty lines are not."""
    width = 0
    for here, row in rows:
        width = width or len(row)
        if row or width == 1:
            yield here, row or [""]


def parsed_sentences(file: Path) -> Iterator[Example]:
    """Yield the sentences of a CoNLL-U file, without labels. Raises: by file:line."""
    with open_binary(file) as opened:
        for here, sentence in read_sentences(Lines(opened, file.name)):
            if isinstance(sentence, BadSentence):
                raise RegardError(f"{here}: {sentence.why}")
            yield Example(" ".join(sentence.words), "", here, "", sentence.parents)
