"""Guess the task and the columns of a data file from its first rows."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from regard.core.errors import RegardError
from regard.lab.data import arrow
from regard.lab.data.conllu import is_conllu
from regard.lab.data.files import is_folder, scan
from regard.lab.data.labels import number_of, too_many
from regard.lab.data.lines import Lines, open_binary, path_of
from regard.lab.data.pair_rows import usual_sides
from regard.lab.data.records import KINDS, kind_of, records, table_kind
from regard.lab.data.tagged import tags_by_name
from regard.lab.data.text_rows import is_plain
from regard.lab.data.titles import (
    LABEL_NAMES,
    TEXT_NAMES,
    OtherFileError,
    column,
    first_of,
    listed,
    must_be_distinct,
    numbered,
)

LOOKED_AT = 1_000  # rows that are read
CLASSES = 200  # maximum distinct values of a label column without a common name


class Guess(NamedTuple):
    """A task, its settings for a file, and one sentence for each decision."""

    task: str
    settings: dict[str, str]
    reasons: list[str]


def guess(data: str, text: str = "", label: str = "") -> Guess:
    """Return the probable task of a data file; ``text`` and ``label`` name its columns.

    Raises: no such file; an unsupported file; an unknown column.
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
    here = str(path)
    if not rows:
        raise RegardError(f"{here}: no rows below the column names {listed(names)}")
    if not named and (sides := usual_sides(here, names, "csv")):
        must_be_distinct(here, names)
        source, target = (names[place].strip() for place in sides)
        settings = {"source_name": source, "target_name": target}
        return Guess("translation", settings, [f"the columns {source!r} and {target!r} are a pair"])
    columns = list(zip(*rows, strict=True))
    text = _place(here, names, "text", named, TEXT_NAMES)
    usual = text is not None
    reason = "" if usual else ", whose values are the longest"
    if text is None:
        text = max(range(len(names)), key=lambda place: sum(map(len, columns[place])))
    reasons = [f"text: the column {names[text]!r}{reason}"]
    label = _place(here, names, "label", named, LABEL_NAMES)
    if label is None or (label == text and "label" not in named):
        label = _label_like({i: values for i, values in enumerate(columns) if i != text})
        reason = ", whose values repeat"
    else:
        reason = ""
    if label is None:
        if table_kind(path) == "tsv" and len(names) == 2 and not usual:
            return Guess("translation", {}, ["each line is a pair of texts, separated by a tab"])
        must_be_distinct(here, names)
        settings = {"text": _called(names, text)}
        return Guess("language-modeling", settings, [*reasons, "no column of labels was found"])
    title = names[label]
    if title not in LABEL_NAMES and title in columns[label] and table_kind(path) in ("csv", "tsv"):
        reasons = [
            f"the first row has no column names, but the label {title!r}, as other rows have"
        ]
        settings = {"text": str(text + 1), "label": str(label + 1)}
        return Guess("classification", settings, reasons)
    must_be_distinct(here, names)
    reasons.append(f"label: the column {title!r}{reason}")
    settings = {"text": _called(names, text), "label": _called(names, label)}
    return Guess("classification", settings, reasons)


def _place(
    here: str, names: Sequence[str], key: str, named: dict[str, str], usual: Sequence[str]
) -> int | None:
    """Return the column that the user named, or one with a common name. Raises: unknown."""
    if key not in named:
        return first_of(here, names, usual)
    return column(here, names, named[key])


def _called(names: Sequence[str], place: int) -> str:
    """Return the title of a column, or its number from 1 if no setting can name the title."""
    title = names[place].strip()
    return title if title and numbered(title, names) is None else str(place + 1)


def _label_like(columns: Mapping[int, Sequence[str]]) -> int | None:
    """Return the column with the fewest distinct values that repeat, or None."""
    kinds = {place: len({*values}) for place, values in columns.items()}
    fit = [
        place
        for place, values in columns.items()
        if 2 <= kinds[place] <= min(CLASSES, len(values) // 2)
        and all(values)
        and not too_many(kinds[place], len(values))
    ]
    words = [place for place in fit if not all(number_of(x) is not None for x in columns[place])]
    return min(words or fit, key=lambda place: kinds[place], default=None)


def head(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the column names and the first rows of a table, without rows of another width.

    Raises: no rows; a first row that cannot be read.
    """
    if table_kind(path) is None:
        return arrow.head(path, LOOKED_AT)
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        rows = _fields(lines, kind_of(path))
        names = next(rows, [])
        if not names:
            raise RegardError(f"{path}: contains no rows")
        return names, [row for row in islice(rows, LOOKED_AT) if len(row) == len(names)]


def _fields(lines: Lines, kind: str) -> Iterator[list[str]]:
    """Yield the names and the rows without errors; an error before the names is raised."""
    names: list[str] = []
    for here, row in records(lines, kind):
        if isinstance(row, str):
            if not names:
                raise RegardError(f"{here}: {row}")
            continue
        if not names:
            yield (names := list(row))
            if isinstance(row, list):
                continue
        values = [row.get(name) for name in names] if isinstance(row, dict) else row
        yield ["" if value is None else str(value) for value in values]
