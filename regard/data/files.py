"""The user's own labelled texts, from every kind of file: a text a row, or a class a file.

* ``.csv``, ``.tsv``, ``.jsonl``: columns by name, or of a table by number from 1.
* ``.txt``: a label, a tab and a text a line, or the text first; see `_labelled_lines`.
* ``.conllu``: parsed sentences with a label in their comments.
* a folder or ``neg.txt,pos.txt``: a file or a folder for each class (`regard.data.class_files`).
* ``.parquet``, and a folder that Hugging Face datasets saved (`regard.data.arrow`).

Files with lines may be .gz. What a file leaves open is told in a remark.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.data import arrow, class_files
from regard.data.conllu import BadSentence, Sentence, is_conllu, no_comment, sentences
from regard.data.examples import BadRow, Example, Remark, Row, example_of
from regard.data.lines import (
    FILE_LIMIT,
    LINE_LIMIT,
    Binary,
    Lines,
    open_binary,
    path_of,
)
from regard.data.titles import LABEL_NAMES, TEXT_NAMES, OtherFileError, columns_of, listed
from regard.errors import RegardError
from regard.reading import parse_json

__all__ = [
    "FILE_LIMIT",
    "KINDS",
    "LINE_LIMIT",
    "BadRow",
    "Binary",
    "Example",
    "Lines",
    "Read",
    "Remark",
    "is_folder",
    "open_binary",
    "path_of",
    "read",
    "read_examples",
    "scan",
    "table_kind",
]

KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
FORMATS = (
    "regard reads .csv, .tsv, .jsonl, .txt and .parquet files, .conllu of parsed sentences with "
    "labels, a folder or files with commas between them for one class each (neg.txt,pos.txt), and "
    "a folder of Hugging Face datasets"
)
TOLERATED = 0.01  # the share of empty rows that is skipped with a note; more is an error
DECIDING = 1_000  # rows of a .txt file that say which column is the label


class Read(NamedTuple):
    """The examples of a file, the empty rows skipped, and what was taken of what is open."""

    examples: list[Example]
    empty: list[BadRow]
    remarks: list[str]


def read_examples(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> list[Example]:
    """All labelled texts of a file or a folder (see the module), in their order.

    The columns are `text` and `label`, or those with usual names (text, review, sentence, …;
    label, sentiment, class, …), whatever their case; `group` is a column only if named. Numbers
    count columns from 1. Rows whose text or label is empty are skipped while they are under 1 %.
    Of CoNLL-U a row is a sentence, and `label` and `group` are keys of its comments (``sent_id``,
    ``newdoc id``; by default ``label``), or ``KEY:SIGN``: the comment's beginning up to a sign.

    Errors: all of `RegardError`, with file:line where there is one; see `read`.
    """
    return read(path, text=text, label=label, group=group).examples


def read(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> Read:
    """As `read_examples`, with what is to be told of it; the first bad row is an error."""
    examples: list[Example] = []
    empty: list[BadRow] = []
    remarks: list[str] = []
    for row in scan(path, text=text, label=label, group=group):
        if isinstance(row, Example):
            examples.append(row)
        elif isinstance(row, Remark):
            remarks.append(row.says)
        elif row.empty:
            empty.append(row)
        else:
            raise RegardError(f"{row.source}: {row.why}")
    if not examples:
        raise RegardError(f"{path}: holds no rows with a text and a label")
    if len(empty) > TOLERATED * (len(examples) + len(empty)):
        rows = len(examples) + len(empty)
        raise RegardError(
            f"{empty[0].source}: {empty[0].why}; so have {len(empty)} of {rows} rows, more than "
            f"{TOLERATED:.0%}: mend them (regard data check {path} lists them)"
        )
    return Read(examples, empty, remarks)


def scan(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> Iterator[Row]:
    """Every row of a file, good or bad, and remarks. Only what spoils the whole file is raised."""
    path = Path(path)
    if class_files.is_classes(path):
        if text or label or group:
            raise RegardError(
                f"{path}: a class in a file or a folder of its own has no columns to be named: "
                "leave text, label and group out"
            )
        yield from class_files.rows(path)
        return
    if arrow.is_arrow(path):
        yield from arrow.rows(path, text, label, group)
        return
    kind = "conllu" if is_conllu(path) else kind_of(path, {**KINDS, ".txt": "txt"})
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        if kind == "conllu":
            yield from _parsed_rows(lines, text, label, group)
        elif kind == "jsonl":
            yield from _json_rows(lines, text, label, group)
        elif kind == "txt" and not (text or label or group):
            yield from _labelled_lines(lines)
        else:
            kind = "tsv" if kind == "txt" else kind
            yield from _table_rows(lines, kind, text, label, group)


def is_folder(path: Path) -> bool:
    """Whether a folder, or files with commas between them, hold labelled texts that `scan` reads.

    Errors: a folder that does not say which of its parts is meant.
    """
    return class_files.is_classes(path) or (path.is_dir() and arrow.is_arrow(path))


def table_kind(path: Path) -> str | None:
    """csv, tsv or jsonl, by the file's name, plain or .gz; None of another.

    >>> table_kind(Path("new.ndjson.gz")), table_kind(Path("new.txt"))
    ('jsonl', None)
    """
    return KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix)


def kind_of(path: Path, kinds: Mapping[str, str] | None = None) -> str:
    """csv, tsv or jsonl, by the file's name, or another of `kinds`. Errors: it is none of them."""
    if kinds is None:
        if kind := table_kind(path):
            return kind
        raise OtherFileError(f"{path}: regard reads .csv, .tsv and .jsonl files here, plain or .gz")
    if kind := kinds.get(Path(path.name.lower().removesuffix(".gz")).suffix):
        return kind
    raise OtherFileError(f"{path}: {FORMATS}")


def _table_rows(
    lines: Lines, kind: str, text: str | None, label: str | None, group: str | None
) -> Iterator[Row]:
    rows = _tab_rows(lines) if kind == "tsv" else _csv_rows(lines)
    header: Sequence[str] = ()
    for number, fields in rows:
        here = f"{lines.name}:{number}"
        spoiled = lines.complaint()
        if not header:
            if isinstance(fields, str) or spoiled:
                raise RegardError(f"{here}: {spoiled or fields}")
            header = fields
            columns = columns_of(here, header, text, label, group)
            if columns.titled:
                continue
            yield Remark(f"{here} is read as a row, not as names of columns")
        if isinstance(fields, str) or spoiled:
            yield BadRow(here, spoiled or str(fields))
        elif len(fields) != len(header):
            yield BadRow(here, f"has {len(fields)} fields where the first row has {len(header)}")
        else:
            together = "" if columns.group is None else fields[columns.group].strip()
            yield example_of(fields[columns.text], fields[columns.label], here, together)
    if not header:
        raise RegardError(f"{lines.name}: holds no rows")


def _csv_rows(lines: Lines, blank: bool = False) -> Iterator[tuple[int, list[str] | str]]:
    """Line number where each row begins, and its fields, or what is wrong with it.

    An empty line is no row, or with ``blank`` one without fields.
    """
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    head: list[str] = []
    while not (head and head[-1].strip()) and (line := next(lines, "")):
        head.append(line)
    first = head[-1] if head else ""
    delimiter = "," if "," in first else next((d for d in ";\t" if d in first), ",")

    def again() -> Iterator[str]:
        yield from head
        yield from lines

    reader = csv.reader(again(), delimiter=delimiter, strict=True)
    while True:
        begins = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield begins, _csv_complaint(str(error))
            continue
        if fields or blank:
            yield begins, fields


def _csv_complaint(error: str) -> str:
    if "unexpected end of data" in error:
        return "a quote opens here that never closes"
    if "field larger" in error:
        return f"a field is longer than {LINE_LIMIT:,} characters; is a quote left open?"
    if "expected after" in error:
        return 'text stands after a closing quote; a quote inside quotes is written ""'
    return error.partition(" - ")[0]


def _tab_rows(lines: Lines, blank: bool = False) -> Iterator[tuple[int, list[str] | str]]:
    """A tab-separated row is one line. Quotes mean something only around a whole field.

    An empty line is no row, or with ``blank`` one without fields.
    """
    for line in lines:
        line = line.rstrip("\r\n")
        if line or blank:
            yield lines.number, [_unquoted(field) for field in line.split("\t")] if line else []


def _unquoted(field: str) -> str:
    if len(field) < 2 or not (field[0] == field[-1] == '"'):
        return field
    inside = field[1:-1].replace('""', "\0")
    return field if '"' in inside else inside.replace("\0", '"')


def _json_rows(
    lines: Lines, text: str | None, label: str | None, group: str | None
) -> Iterator[Example | BadRow]:
    keys: list[str] | None = None
    for line in lines:
        if not line.strip():
            continue
        here = lines.here
        row = lines.complaint() or _json_object(line)
        if isinstance(row, str):
            yield BadRow(here, row)
            continue
        if keys is None:
            names = list(row)
            columns = columns_of(here, names, text, label, group, numbers=False)
            keys = [names[place] for place in columns.places]
        missing = [key for key in keys if key not in row]
        if missing:
            yield BadRow(here, f"has no {missing[0]!r}; it has {listed(list(row))}")
            continue
        together = str(row[keys[2]]) if group and row[keys[2]] is not None else ""
        yield example_of(row[keys[0]], row[keys[1]], here, together)
    if keys is None and lines.number == 0:
        raise RegardError(f"{lines.name}: holds no rows")


def _parsed_rows(
    lines: Lines, text: str | None, label: str | None, group: str | None
) -> Iterator[Example | BadRow]:
    if text:
        raise RegardError(
            f"{lines.name}: the words of CoNLL-U are its FORM column; leave text={text} out"
        )
    keys = {"label": label or "label", **({"group": group} if group else {})}
    first = True
    for found in sentences(lines):
        here, spoiled = f"{lines.name}:{found.line}", lines.complaint()
        if isinstance(found, BadSentence) or spoiled:
            why, empty = ("", False) if isinstance(found, Sentence) else (found.why, found.empty)
            yield BadRow(here, spoiled or why, empty and not spoiled)
            continue
        values = {what: found.comment(key) for what, key in keys.items()}
        if first and (missing := [what for what, value in values.items() if value is None]):
            raise no_comment(found, here, missing[0], keys[missing[0]])
        first = False
        text = " ".join(found.words)
        row = example_of(text, values["label"] or "", here, values.get("group") or "")
        yield replace(row, parents=found.parents) if isinstance(row, Example) else row


def _labelled_lines(lines: Lines) -> Iterator[Row]:
    """The rows of a .txt file: a label and a text with a tab between, in either order.

    The first line may hold the names. Else the label is the column with fewer different values in
    the first thousand rows, or of as many the one with fewer characters.
    """
    rows = (
        (lines.here, lines.complaint() or [_unquoted(field) for field in line.split("\t")])
        for line in (line.rstrip("\r\n") for line in lines)
        if line.strip()
    )
    head = list(islice(rows, DECIDING))
    if not head:
        raise RegardError(f"{lines.name}: holds no rows")
    here, first = head[0]
    names = [] if isinstance(first, str) else [name.strip().casefold() for name in first]
    if all(set(names) & set(usual) for usual in (TEXT_NAMES, LABEL_NAMES)):
        columns = columns_of(here, first, None, None, None)
        label, text, head = columns.label, columns.text, head[1:]
    else:
        label = _label_column(here, head)
        text = 1 - label
        order = "a label, a tab and a text" if label == 0 else "a text, a tab and a label"
        yield Remark(
            f"{lines.name}: each line is read as {order}; if it is the other way round: "
            f"text={label + 1} label={text + 1}"
        )
    for here, fields in chain(head, rows):
        if isinstance(fields, str):
            yield BadRow(here, fields)
        elif len(fields) != max(len(names), 2):
            yield BadRow(here, f"has {len(fields)} fields where the first row has {len(names)}")
        else:
            yield example_of(fields[text], fields[label], here)


def _label_column(here: str, head: Sequence[tuple[str, list[str] | str]]) -> int:
    """Which of two columns holds the labels, 0 or 1, by what stands in them."""
    rows = [fields for _, fields in head if isinstance(fields, list)]
    width = len(rows[0]) if rows else 2
    if width != 2:
        says = "has no tab" if width == 1 else f"has {width:,} fields"
        raise OtherFileError(
            f"{here}: {says}; a .txt file has a label, a tab and a text in each line, or the text "
            "first; of more columns say which by text=NUMBER label=NUMBER, and files of one class "
            "each are given as neg.txt,pos.txt or as their folder"
        )
    columns = list(zip(*(fields for fields in rows if len(fields) == width), strict=True))
    kinds, sizes = ([f(column) for column in columns] for f in (_kinds, _characters))
    if kinds[0] == kinds[1] and sizes[0] == sizes[1]:
        raise RegardError(
            f"{here}: which is the label? Say text=2 label=1 where it stands before the tab, "
            "text=1 label=2 where it stands behind it"
        )
    return 0 if (kinds[0], sizes[0]) < (kinds[1], sizes[1]) else 1


def _kinds(column: Sequence[str]) -> int:
    return len(set(column))


def _characters(column: Sequence[str]) -> int:
    return sum(map(len, column))


def _json_object(line: str) -> dict[str, Any] | str:
    """The object of a line, or what is wrong with it."""
    try:
        row = parse_json(line, "it")
    except RegardError as error:
        says = str(error).removeprefix("it is not sound JSON: ")
        return says if "finite" in says or "larger than" in says else f"not JSON: {says}"
    return row if isinstance(row, dict) else "not a JSON object: {…}"
