"""Labelled texts from files of every supported kind: one text per row, or one class per file.

* ``.csv``, ``.tsv``, ``.jsonl``: columns by name, or for tables by number from 1.
* ``.txt``: a label, a tab and a text per line, or the text first; see `_labelled_lines`.
* ``.conllu``: parsed sentences with a label in their comments.
* a folder or ``neg.txt,pos.txt``: one file or folder per class (`regard.lab.data.class_files`).
* ``.parquet``, ``.arrow``, ``.feather``, and folders saved by Hugging Face datasets
  (`regard.lab.data.arrow`).

Files with lines may be .gz. A remark says how an ambiguous file was read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from regard.core.errors import RegardError
from regard.lab.data import arrow, class_files
from regard.lab.data.conllu import BadSentence, is_conllu, no_comment, read_sentences
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import BadRow, Example, Input, Remark, Row, example_from, example_of
from regard.lab.data.frames import Frame
from regard.lab.data.lines import Lines, open_binary
from regard.lab.data.records import KINDS, kind_of, records, selected
from regard.lab.data.spelling import counted
from regard.lab.data.titles import LABEL_NAMES, TEXT_NAMES, Chosen, OtherFileError, columns_of

TOLERATED = 0.01  # fraction of empty rows that is skipped with a note; more is an error
DECIDING = 1_000  # rows of a .txt file that decide which column is the label


class Read(NamedTuple):
    """The examples of a file, the bad rows, and remarks on how it was read."""

    examples: list[Example]
    bad: list[BadRow]
    remarks: list[str]

    @property
    def notes(self) -> list[str]:
        """Return the remarks, and a note about the rows skipped."""
        if not self.bad:
            return self.remarks
        count, first = counted(len(self.bad), "row"), self.bad[0].source
        return [*self.remarks, f"{count} skipped, without text or label, first {first}"]


def read_examples(path: Path | str | Frame, columns: Columns = NAMED) -> list[Example]:
    """Return all labelled texts of a file or a folder (see the module), in order.

    Common names are text, review, sentence, …; label, sentiment, class, …, in any case; there is a
    group only if given. Rows with an empty text or label are skipped while they are under 1 %. For
    CoNLL-U a row is a sentence, and label and group are keys of its comments (``sent_id``,
    ``newdoc id``; by default ``label``), or ``KEY:SIGN``: the comment's beginning up to a sign.

    Raises: all of `RegardError`, with file:line where there is one; see `read`.
    """
    return read(path, columns).examples


def read(path: Path | str | Frame, columns: Columns = NAMED) -> Read:
    """Return the examples with skipped rows and remarks; the first bad row is an error."""
    rows = collect(path, columns)
    if wrong := next((row for row in rows.bad if not row.empty), None):
        raise RegardError(f"{wrong.source}: {wrong.why}")
    if not rows.examples:
        raise RegardError(f"{path}: no row has a text and a label")
    count = len(rows.examples) + len(rows.bad)
    if len(rows.bad) > TOLERATED * count:
        raise RegardError(
            f"{rows.bad[0].source}: {rows.bad[0].why}; {len(rows.bad)} of {count} rows are empty, "
            f"more than {TOLERATED:.0%}; fix them (regard data check {path} lists them)"
        )
    return rows


def collect(path: Path | str | Frame, columns: Columns = NAMED) -> Read:
    """Return all rows of a file. Only errors of the whole file are raised."""
    rows = Read([], [], [])
    for row in scan(path, columns):
        if isinstance(row, Example):
            rows.examples.append(row)
        elif isinstance(row, Remark):
            rows.remarks.append(row.says)
        else:
            rows.bad.append(row)
    return rows


def scan(path: Path | str | Frame, columns: Columns = NAMED) -> Iterator[Row]:
    """Yield every row, valid or not, and remarks. Only errors of the whole file are raised."""
    if isinstance(path, Frame):
        choose = partial(columns_of, columns=columns, numbers=False)
        yield from _examples(selected(path.records(), choose, optional=2), columns)
        return
    path = Path(path)
    if class_files.is_classes(path):
        if columns.named:
            raise RegardError(
                f"{path}: files or folders of one class each have no columns; remove text, label "
                "and group"
            )
        yield from class_files.rows(path)
        return
    if arrow.is_arrow(path):
        yield from arrow.rows(path, columns)
        return
    kind = "conllu" if is_conllu(path) else kind_of(path, {**KINDS, ".txt": "txt"})
    with open_binary(path) as file:
        lines = Lines(file, path.name)
        if kind == "conllu":
            yield from _parsed_rows(lines, columns)
        elif kind == "txt" and not columns.named:
            yield from _labelled_lines(lines)
        else:
            kind = "tsv" if kind == "txt" else kind
            choose = partial(columns_of, columns=columns, numbers=kind != "jsonl")
            yield from _examples(selected(records(lines, kind), choose, optional=2), columns)


def read_inputs(path: Path | Frame, columns: Columns) -> Iterator[str]:
    """Yield the inputs of a table, in order, also those with an empty text.

    Raises: no such column; a row that cannot be read, by file:line.
    """
    empty = Input("", "" if columns.second else None, dict.fromkeys(columns.further))
    for row in scan(path, replace(columns, unlabelled=True)):
        if isinstance(row, BadRow) and not row.empty:
            raise RegardError(f"{row.source}: {row.why}")
        if not isinstance(row, Remark):
            yield row.text or empty


def is_folder(path: Path) -> bool:
    """Return whether a folder, or comma-separated files, contain texts that `scan` reads.

    Raises: a folder of train and test parts, which must be named one by one.
    """
    return class_files.is_classes(path) or (path.is_dir() and arrow.is_arrow(path))


def _parsed_rows(lines: Lines, columns: Columns) -> Iterator[Example | BadRow]:
    for name, value in (("text", columns.text), ("features", columns.features)):
        if value:
            raise RegardError(
                f"{lines.name}: CoNLL-U takes the words from its FORM column; remove {name}={value}"
            )
    keys = {"label": columns.label or "label"}
    if columns.group:
        keys["group"] = columns.group
    first, headless = True, False
    for here, sentence in read_sentences(lines):
        if isinstance(sentence, BadSentence):
            yield BadRow(here, sentence.why, sentence.empty)
            continue
        values = {what: sentence.comment(key) for what, key in keys.items()}
        if first and (missing := [what for what, value in values.items() if value is None]):
            raise no_comment(sentence, here, missing[0], keys[missing[0]])
        headless = sentence.parents is None if first else headless
        first = False
        if headless != (sentence.parents is None):
            which = "no heads (HEAD is _)" if sentence.parents is None else "heads"
            yield BadRow(here, f"the sentence has {which}, unlike the sentences before")
            continue
        text = " ".join(sentence.words)
        label, group = values["label"] or "", values.get("group") or ""
        row = example_of(text, label, here, group, unlabelled=columns.several)
        yield replace(row, parents=sentence.parents) if isinstance(row, Example) else row


def _examples(
    rows: Iterable[tuple[str, list[Any]] | BadRow | Remark], columns: Columns = NAMED
) -> Iterator[Row]:
    """Yield the examples of the chosen values."""
    for row in rows:
        if isinstance(row, BadRow) and row.values:
            yield replace(row, text=example_from(row.values, columns, row.source).text)
        else:
            yield row if isinstance(row, BadRow | Remark) else example_from(row[1], columns, row[0])


def _labelled_lines(lines: Lines) -> Iterator[Row]:
    """Yield the rows of a .txt file: a label and a text separated by a tab, in either order.

    The first line may be a header. Else the label is the column with fewer distinct values in the
    first thousand rows, or if equal the one with fewer characters.
    """
    rows = (row for row in records(lines, "tsv") if any(map(str.strip, row[1])))
    head = list(islice(rows, DECIDING))
    if not head:
        raise RegardError(f"{lines.name}: contains no rows")

    def choose(here: str, header: list[str]) -> Chosen:
        names = {name.strip().casefold() for name in header}
        if all(names & set(usual) for usual in (TEXT_NAMES, LABEL_NAMES)):
            return columns_of(here, header)
        label = _label_column(here, [fields for _, fields in head if isinstance(fields, list)])
        order = "a label, a tab and a text" if label == 0 else "a text, a tab and a label"
        remark = (
            f"{lines.name}: each line is read as {order}; for the reverse order set "
            f"text={label + 1} label={2 - label}"
        )
        return Chosen([1 - label, label], False, remark)

    yield from _examples(selected(chain(head, rows), choose))


def _label_column(here: str, rows: Sequence[Sequence[str]]) -> int:
    """Return which of two columns, 0 or 1, contains the labels."""
    width = len(rows[0])
    if width != 2:
        problem = "no tab" if width == 1 else f"{width:,} fields"
        raise OtherFileError(
            f"{here}: {problem}; each line of a .txt file needs a label, a tab and a text, or the "
            "text first; for more columns set text=NUMBER label=NUMBER; give files of one class "
            "each as neg.txt,pos.txt or as their folder"
        )
    columns = list(zip(*(fields for fields in rows if len(fields) == width), strict=True))
    sizes = [(len(set(column)), sum(map(len, column))) for column in columns]
    if sizes[0] == sizes[1]:
        raise RegardError(
            f"{here}: cannot tell the label from the text; set text=2 label=1 if the label comes "
            "before the tab, text=1 label=2 if it comes after"
        )
    return 0 if sizes[0] < sizes[1] else 1
