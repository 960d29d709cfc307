"""Guess what can be learned from a data file: the task and the columns, from its first rows."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.data import arrow
from regard.data.conllu import is_conllu
from regard.data.delimited import table_rows
from regard.data.files import (
    KINDS,
    Lines,
    is_folder,
    json_object,
    kind_of,
    open_binary,
    path_of,
    scan,
    table_kind,
)
from regard.data.labels import number_of, too_many
from regard.data.pair_rows import usual_sides
from regard.data.tagged import tags_by_name
from regard.data.text_rows import is_plain
from regard.data.titles import LABEL_NAMES, TEXT_NAMES, OtherFileError, listed
from regard.errors import RegardError

LOOKED_AT = 1_000  # rows that decide
CLASSES = 200  # most distinct values of a column of labels that has no common name


class Guess(NamedTuple):
    """A task, its settings for a file, and one sentence for each decision."""

    task: str
    settings: dict[str, str]
    reasons: list[str]


def guess(data: str, text: str = "", label: str = "") -> Guess:
    """Return what a data file seems to be for; ``text`` and ``label`` name its columns.

    Errors: no such file; a file that no task reads; a named column that is not there.
    """
    path = path_of(data)
    if "," not in data and not path.exists():
        raise RegardError(f"{data}: no such file; give a file of texts, such as reviews.csv")
    named = {key: name for key, name in (("text", text), ("label", label)) if name}
    if tags_by_name(path):
        return Guess("tagging", named, ["one word and its tag per line"])
    if table_kind(path) or (path.is_file() and arrow.is_arrow(path)):
        return _of_columns(path, named)
    if is_conllu(path):
        return Guess("classification", named, ["parsed sentences with a label in their comments"])
    if is_folder(path):
        return Guess("classification", named, ["one file or folder for each label"])
    if not is_plain(path.name):
        kind_of(path, KINDS)
    try:
        next(scan(path))
    except OtherFileError:
        return Guess("language-modeling", {}, ["texts without labels"])
    return Guess("classification", named, ["a label and a text on each line"])


def _of_columns(path: Path, named: dict[str, str]) -> Guess:
    names, rows = head(path)
    if not rows:
        raise RegardError(f"{path}: no rows below the column names {listed(names)}")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    for key, name in named.items():
        if name not in columns:
            raise RegardError(f"{path}: no {key} column {name!r}; columns: {listed(names)}")
    if not named and (sides := usual_sides(names, "csv")):
        source, target = (names[place] for place in sides)
        settings = {"source_name": source, "target_name": target}
        return Guess("translation", settings, [f"the columns {source!r} and {target!r} are a pair"])
    text = named.get("text") or _usual(names, TEXT_NAMES)
    reasons = [f"text: the column {text!r}"]
    if not text:
        text = max(columns, key=lambda name: sum(map(len, columns[name])))
        reasons = [f"text: the column {text!r}, whose values are the longest"]
    rest = {name: values for name, values in columns.items() if name != text}
    label = named.get("label") or _usual(list(rest), LABEL_NAMES)
    reasons.append(f"label: the column {label!r}")
    if not label:
        label = _label_like(rest)
        reasons[-1] = f"label: the column {label!r}, whose values repeat"
    if not label:
        if table_kind(path) == "tsv" and len(names) == 2 and not _usual(names, TEXT_NAMES):
            return Guess("translation", {}, ["each line is a pair of texts, separated by a tab"])
        settings = {"text": text}
        return Guess("language-modeling", settings, [reasons[0], "no column of labels was found"])
    if label not in LABEL_NAMES and label in rest[label] and table_kind(path) in ("csv", "tsv"):
        number = {
            key: str(names.index(name) + 1) for key, name in (("text", text), ("label", label))
        }
        reasons = [
            f"the first row has no column names, but the label {label!r}, as other rows have"
        ]
        return Guess("classification", number, reasons)
    return Guess("classification", {"text": text, "label": label}, reasons)


def _usual(names: Sequence[str], usual: Sequence[str]) -> str:
    """Return the column with the first of the common names, or ""."""
    known = {name.strip().casefold(): name for name in reversed(names)}
    return next((known[name] for name in usual if name in known), "")


def _label_like(columns: dict[str, tuple[str, ...]]) -> str:
    """Return the column with the fewest distinct values that repeat, or ""."""
    kinds = {name: len({*values}) for name, values in columns.items()}
    fit = [
        name
        for name, values in columns.items()
        if 2 <= kinds[name] <= min(CLASSES, len(values) // 2)
        and all(values)
        and not too_many(kinds[name], len(values))
    ]
    words = [name for name in fit if not all(number_of(x) is not None for x in columns[name])]
    return min(words or fit, key=lambda name: kinds[name], default="")


def head(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the first rows of a table; rows of another width are left out.

    Errors: no rows; a first row that cannot be read.
    """
    if table_kind(path) is None:
        return arrow.head(path, LOOKED_AT)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        kind = kind_of(path)
        rows = _objects(lines) if kind == "jsonl" else _fields(lines, kind)
        names = next(rows, [])
        if not names:
            raise RegardError(f"{path}: contains no rows")
        return names, [row for row in islice(rows, LOOKED_AT) if len(row) == len(names)]


def _fields(lines: Lines, kind: str) -> Iterator[list[str]]:
    for number, fields in table_rows(lines, kind):
        if isinstance(fields, list):
            yield fields
        elif number == 1:
            raise RegardError(f"{lines.name}:{number}: {fields}")


def _objects(lines: Lines) -> Iterator[list[str]]:
    names: list[str] = []
    for line in lines:
        if not line.strip():
            continue
        row = json_object(line)
        if isinstance(row, str):
            if not names:
                raise RegardError(f"{lines.here}: {row}")
            continue
        if not names:
            yield (names := list(row))
        values = [row.get(name) for name in names]
        yield ["" if value is None else str(value) for value in values]
