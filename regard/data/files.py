"""The user's own files: CSV, TSV, JSON lines, CoNLL-U, plain or gzip, one labelled text a row."""

import codecs
import contextlib
import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from regard.data.conllu import BadSentence, Sentence, is_conllu, no_comment, sentences
from regard.data.titles import OtherFileError, columns_of, listed
from regard.errors import RegardError
from regard.reading import parse_json

KINDS = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
Binary = IO[bytes] | gzip.GzipFile
LINE_LIMIT = 1_000_000  # bytes; the longest IMDB review has 13,704 characters
FILE_LIMIT = 4_000_000_000  # bytes once unpacked: what a gzip bomb may cost
TOLERATED = 0.01  # the share of empty rows that is skipped with a note; more is an error


@dataclass(frozen=True, slots=True)
class Example:
    """A text, its label as it stands in the file, and where it stands: ``reviews.csv:12``.

    Texts of one `group` (a film, an author, a customer) are alike in more than their label, so no
    split puts them on two sides. Of a parsed sentence `parents` says for each word, of those that
    stand between the text's spaces, on which one it hangs, from 0; −1: it is a root.
    """

    text: str
    label: str
    source: str
    group: str = ""
    parents: tuple[int, ...] | None = None

    @property
    def words(self) -> list[str]:
        """The words of a parsed sentence, one for each of its `parents`."""
        return self.text.split(" ")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no example, and why. An empty one is harmless where it is rare."""

    source: str
    why: str
    empty: bool = False


def read_examples(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> list[Example]:
    """All rows of a .csv, .tsv, .jsonl or .conllu file (or .gz of it), in their order.

    The columns are `text` and `label`, or those with usual names (text, review, sentence, …;
    label, sentiment, class, …), whatever their case; `group` is a column only if named. Numbers
    count columns from 1, for files without a header. Rows whose text or label is empty are
    skipped while they are under 1 %. Of CoNLL-U a row is a sentence, and `label` and `group` are
    keys of its comments (``sent_id``, ``newdoc id``; by default ``label``), or ``KEY:SIGN``: the
    comment's beginning up to a sign.

    Errors: all of `RegardError`, with file:line where there is one; see `read`.
    """
    return read(path, text=text, label=label, group=group)[0]


def read(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> tuple[list[Example], list[BadRow]]:
    """The examples of a file and the empty rows skipped; the first bad row is an error."""
    examples: list[Example] = []
    empty: list[BadRow] = []
    for row in scan(path, text=text, label=label, group=group):
        if isinstance(row, Example):
            examples.append(row)
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
    return examples, empty


def scan(
    path: Path | str,
    *,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
) -> Iterator[Example | BadRow]:
    """Every row of a file, good or bad. Only what spoils the whole file is raised."""
    path = Path(path)
    kind = "conllu" if is_conllu(path) else kind_of(path)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        if kind == "conllu":
            yield from _parsed_rows(lines, text, label, group)
        elif kind == "jsonl":
            yield from _json_rows(lines, text, label, group)
        else:
            yield from _table_rows(lines, kind, text, label, group)


def path_of(given: Path | str) -> Path:
    """A path as someone typed it, ``~`` and all. Errors: what the system takes for none."""
    try:
        path = Path(given).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RegardError(f"{str(given)[:60]!r} is no path: {why}") from None
    return path


def table_kind(path: Path) -> str | None:
    """csv, tsv or jsonl, by the file's name, plain or .gz; None of another.

    >>> table_kind(Path("new.ndjson.gz")), table_kind(Path("new.txt"))
    ('jsonl', None)
    """
    return KINDS.get(Path(path.name.lower().removesuffix(".gz")).suffix)


def kind_of(path: Path) -> str:
    """csv, tsv or jsonl, by the file's name. Errors: it is none of them."""
    if kind := table_kind(path):
        return kind
    raise OtherFileError(
        f"{path}: regard reads .csv, .tsv and .jsonl files, and .conllu of parsed sentences with "
        "labels, plain or .gz"
    )


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[Binary]:
    """Open a file, unpacking gzip; what the system or gzip refuses becomes one line."""
    try:
        if path.is_dir():
            raise RegardError(f"{path}: is a folder; give one file of it")
        if path.stat().st_size == 0:
            raise RegardError(f"{path}: is empty")
        with path.open("rb") as file:
            if path.name.lower().endswith((".gz", ".tgz")):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield unpacked
            else:
                yield file
    except EOFError:
        raise RegardError(f"{path}: is cut off; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RegardError(f"{path}: is damaged or no gzip file ({error})") from None
    except FileNotFoundError:
        raise RegardError(f"{path}: there is no such file") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot be read: {error.strerror or error}") from None


class Lines:
    """The lines of a file as text, counted from 1, each within a limit.

    A line that is not UTF-8 comes with its bad bytes replaced and is remembered in `spoiled`.
    """

    def __init__(
        self, file: Binary, name: str, limit: int = LINE_LIMIT, most: int = FILE_LIMIT
    ) -> None:
        self.file, self.name, self.limit, self.most = file, name, limit, most
        self.number = 0
        self.read = 0
        self.spoiled: dict[int, str] = {}

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = self.file.readline(self.limit + 1)
        if not line:
            raise StopIteration
        self.number += 1
        self.read += len(line)
        if len(line) > self.limit:
            raise RegardError(f"{self.here}: the line is longer than {self.limit:,} bytes")
        if self.read > self.most:
            raise RegardError(f"{self.here}: the file holds more than {self.most:,} bytes")
        if self.number == 1:
            line = self._without_mark(line)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            byte = line[error.start]
            self.spoiled[self.number] = (
                f"not UTF-8 (byte 0x{byte:02x} at {error.start + 1}); save the file as UTF-8 (if "
                "it is Latin-1: iconv -f latin1 -t utf-8 FILE > NEW)"
            )
            return line.decode(errors="replace")

    @property
    def here(self) -> str:
        return f"{self.name}:{self.number}"

    def complaint(self) -> str | None:
        """What spoils the lines read since the last question: those of one row."""
        says = next(iter(self.spoiled.values()), None)
        self.spoiled.clear()
        return says

    def _without_mark(self, line: bytes) -> bytes:
        if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RegardError(f"{self.here}: not UTF-8 but UTF-16; save the file as UTF-8")
        return line.removeprefix(codecs.BOM_UTF8)


def _table_rows(
    lines: Lines, kind: str, text: str | None, label: str | None, group: str | None
) -> Iterator[Example | BadRow]:
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
        if isinstance(fields, str) or spoiled:
            yield BadRow(here, spoiled or str(fields))
        elif len(fields) != len(header):
            yield BadRow(here, f"has {len(fields)} fields where the first row has {len(header)}")
        else:
            together = "" if columns.group is None else fields[columns.group].strip()
            yield _example(fields[columns.text], fields[columns.label], here, together)
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
        yield _json_example(row[keys[0]], row[keys[1]], here, together)
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
        row = _example(text, values["label"] or "", here, values.get("group") or "")
        yield replace(row, parents=found.parents) if isinstance(row, Example) else row


def _json_object(line: str) -> dict[str, Any] | str:
    """The object of a line, or what is wrong with it."""
    try:
        row = parse_json(line, "it")
    except RegardError as error:
        return str(error).replace("it is not sound JSON", "not JSON")
    return row if isinstance(row, dict) else "not a JSON object: {…}"


def _json_example(text: Any, label: Any, here: str, group: str) -> Example | BadRow:
    if text is not None and not isinstance(text, str):
        return BadRow(here, f"the text is not a string but {json.dumps(text)[:40]}")
    if isinstance(label, dict | list):
        return BadRow(here, f"the label is neither string nor number but {json.dumps(label)[:40]}")
    if label is None:
        label = ""
    text = text or ""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return BadRow(here, f"half a surrogate pair at character {error.start + 1} of the text")
    return _example(text, label if isinstance(label, str) else json.dumps(label), here, group)


def _example(text: str, label: str, here: str, group: str) -> Example | BadRow:
    if not text.strip():
        return BadRow(here, "the text is empty", empty=True)
    if not label.strip():
        return BadRow(here, "the label is empty", empty=True)
    return Example(text, label.strip(), here, group)
