"""Rows of comma-separated and tab-separated files: the delimiter, quotes, and empty rows.

* CSV: quotes follow RFC 4180. The delimiter is the one of ``, ; | tab`` that divides most rows
equally, or the one of a first line ``sep=;``, as written by Excel.
* TSV: the delimiter is a tab. Quotes are text, except around a whole field; a quoted field
  may contain line ends and tabs, as pandas writes it.

Trailing rows with only empty fields, as written by spreadsheets, are omitted.
"""

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise

from regard.lab.data.lines import LINE_LIMIT, Lines

DECIDING = 100  # rows that decide on the delimiter
DELIMITERS = "\t;,|"  # if several divide the rows equally, the first is the delimiter
SHEET = 1_048_576  # rows of a spreadsheet: the maximum of omitted empty rows
NOT_CLOSED = "unclosed quote"
IN_QUOTES = (
    "a field in quotes contains a line end or a tab, but in tab-separated pairs quotes are text; "
    "save the file as .csv or .jsonl"
)

_named = re.compile(r'(")?sep=([^\s\w"]|\t)(?(1)"|)[\r\n]*', re.IGNORECASE)

Fields = list[str] | str  # the fields of a row, or its error
NumberedRows = Iterator[tuple[int, Fields]]


def table_rows(
    lines: Lines, kind: str, *, blank: bool = False, quotes: bool = True
) -> NumberedRows:
    """Yield the first line number of each row with its fields, or with an error message.

    ``kind`` is csv or tsv. An empty line is skipped, or with ``blank`` yielded as a row without
    fields. Without ``quotes``, quotes in a tab-separated file are always text.
    """
    named = _named.fullmatch(next(lines.ahead(), ""))
    if named:
        next(lines)
    if kind == "csv" or named:
        before = lines.number
        delimiter = named[2] if named else delimiter_of([*lines.ahead()])
        rows: NumberedRows = ((before + n, fields) for n, fields in _parsed(lines, delimiter))
    else:
        rows = _tab_rows(lines, quotes)
    checked = ((number, lines.complaint() or fields) for number, fields in rows)
    return _without_empty_end(checked, blank)


def delimiter_of(lines: Sequence[str]) -> str:
    """Return the delimiter that divides most rows into as many fields as the first row.

    If several do, those followed by a space (in a text) and commas between digits (in a number) are
    excluded, and the first of the others in `DELIMITERS` is used. If none divides the first row, it
    is a comma.

    >>> delimiter_of(["1;Great, really good", "0;Bad, boring"])
    ';'
    >>> delimiter_of(["x,y", "1,2"])
    ','
    """
    ranks = {delimiter: _rank(lines, delimiter) for delimiter in DELIMITERS}
    best = max(DELIMITERS, key=lambda delimiter: ranks[delimiter])  # the first of equal ones
    return best if ranks[best] > _NONE else ","


_Rank = tuple[bool, bool, float]
_NONE: _Rank = (False, False, 0.0)


def _rank(lines: Sequence[str], delimiter: str) -> _Rank:
    """Return how well a delimiter fits; the largest fits best."""
    rows = list(islice(_parsed(iter(lines), delimiter), DECIDING))
    rows = [(number, fields) for number, fields in rows if fields]
    if len(rows) > 1 and rows[-1][1] == NOT_CLOSED:  # cut off where the lines end
        del rows[-1]
    whole = [fields for _, fields in rows if isinstance(fields, list)]
    width = len(whole[0]) if whole and whole[0] is rows[0][1] else 0
    if width < 2:
        return _NONE
    alike = [fields for fields in whole if len(fields) == width]
    share = len(alike) / len(rows)
    sides = [pair for row in alike for pair in pairwise(row)]
    inside = sum(
        right.startswith(" ")
        or (delimiter == "," and left[-1:].isdecimal() and right[:1].isdecimal())
        for left, right in sides
    )
    return share > 0.5, 2 * inside < len(sides), share


def _parsed(lines: Iterator[str], delimiter: str) -> NumberedRows:
    """Yield the rows of lines with quotes, the first line of each numbered from 1."""
    csv.field_size_limit(max(csv.field_size_limit(), LINE_LIMIT))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    while True:
        begins = reader.line_num + 1
        try:
            yield begins, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield begins, _complaint(str(error))


def _complaint(error: str) -> str:
    if "unexpected end of data" in error:
        return NOT_CLOSED
    if "field larger" in error:
        return f"a field is longer than {LINE_LIMIT:,} characters; is a quote unclosed?"
    if "expected after" in error:
        return 'text after a closing quote; write a quote inside quotes as ""'
    return error.partition(" - ")[0]


def _tab_rows(lines: Lines, quotes: bool) -> NumberedRows:
    width = 0
    texts = not quotes  # becomes True when a quote is found that is not around a field
    for line in lines:
        number = lines.number
        bare = line.rstrip("\r\n")
        fields = bare.split("\t") if bare else []
        if '"' in line:
            row = _quoted_row(line, lines, fields, width, one_column=not texts)
            if row is not None and not quotes:
                yield number, IN_QUOTES
                continue
            plain = [_unquoted(field) for field in fields] if quotes else fields
            texts = texts or (row is None and any('"' in x for x in {*plain} & {*fields}))
            fields = row or plain
        width = width or len(fields)
        yield number, fields


def _quoted_row(
    line: str, lines: Lines, plain: Sequence[str], width: int, *, one_column: bool
) -> list[str] | None:
    """Return the fields of a row with line ends or tabs in quotes, and take its lines; or None.

    The quotes must be closed as in CSV, the row must have ``width`` fields (0: any number), and its
    lines, split without quotes, another number. In a file of one column the last condition cannot
    hold; there ``one_column`` tells whether quotes follow CSV.
    """
    reader = csv.reader(chain([line], lines.ahead()), delimiter="\t", strict=True)
    try:
        fields = next(reader)
    except (csv.Error, StopIteration):
        return None
    more = list(islice(lines.ahead(), reader.line_num - 1))
    widths = {len(plain), *(each.count("\t") + 1 for each in more)}
    if len(fields) != (width or len(fields)) or widths == {width or len(plain)} != {1}:
        return None
    if widths == {len(fields)} == {1} and not (more and one_column):
        return None
    for _ in more:
        next(lines)
    return fields


def _unquoted(field: str) -> str:
    if len(field) < 2 or not (field[0] == field[-1] == '"'):
        return field
    inside = field[1:-1].replace('""', "\0")
    return field if '"' in inside else inside.replace("\0", '"')


def _without_empty_end(rows: NumberedRows, blank: bool) -> NumberedRows:
    """Yield the rows without trailing rows of several empty fields."""
    held: list[tuple[int, Fields]] = []
    for number, fields in rows:
        if isinstance(fields, list):
            several = len(fields) > 1 or (held and not fields)
            if several and len(held) < SHEET and not any(map(str.strip, fields)):
                held.append((number, fields))
                continue
            if not (fields or blank):
                continue
        yield from held
        held.clear()
        yield number, fields
