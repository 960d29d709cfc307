"""The report of a measuring lab: claims, then sections of text, figures and tables.

The same `Table` is printed in the terminal, in the report and in ``--json``.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from regard.core.atomic_io import write_bytes
from regard.lab.data.spelling import aligned
from regard.lab.reports.markup import Html, shorten, tag
from regard.lab.reports.page import LIMIT, page
from regard.lab.reports.scales import number

Cell = str | float | int
NUMBER = re.compile(r"[+−-]?[\d,.]+ ?%?")  # a cell that is a number, though written as a text
SHOWN = 24  # rows of a table in the terminal; all are in the report
WIDEST = 60  # characters of a cell in the terminal
REGION = {"class_": "scroll", "tabindex": "0", "role": "region"}


@dataclass(frozen=True)
class Table:
    """A table of words and numbers under named columns; NaN is shown as a dash.

    >>> print(Table("Cost", ["arm", "seconds"], [["mean", 0.5], ["transformer", 12.25]]).text())
    arm          seconds
    mean             0.5
    transformer     12.2
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""

    def text(self, most: int = SHOWN) -> str:
        """Return the table as plain text, the first column left-aligned, the others right.

        Long cells are cut.
        """
        rows = [list(self.columns), *([_as_text(v) for v in row] for row in self.rows[:most])]
        lines = aligned(rows)
        if len(self.rows) > most:
            lines.append(f"… and {len(self.rows) - most} more rows in the report")
        return "\n".join(lines)

    def html(self) -> Html:
        """Return the table as HTML with sortable columns."""
        cells = [(i, value) for row in self.rows for i, value in enumerate(row)]
        words = {i for i, value in cells if isinstance(value, str) and not NUMBER.fullmatch(value)}
        classes = ("words" if i in words else None for i in range(len(self.columns)))
        heads = zip(self.columns, classes, strict=True)
        head = tag("tr", *(tag("th", column, class_=look) for column, look in heads))
        rows = [tag("tr", *(_cell(value) for value in row)) for row in self.rows]
        table = tag("table", tag("thead", head), tag("tbody", *rows), class_="sortable")
        note = [tag("p", self.note, class_="note")] if self.note else []
        region = tag("div", table, aria_label=self.title, **REGION)
        return tag("section", tag("h3", self.title), region, *note)

    def json(self) -> dict[str, Any]:
        """Return the table as plain values; numbers that are not finite are None."""
        rows = [[_plain(value) for value in row] for row in self.rows]
        plain = {"title": self.title, "columns": list(self.columns), "rows": rows}
        return plain | ({"note": self.note} if self.note else {})


@dataclass(frozen=True)
class Figure:
    """A chart with a caption. Small ones are placed side by side."""

    chart: Html
    caption: str = ""
    small: bool = False

    def html(self) -> Html:
        """Return the figure as HTML; a wide chart is scrolled."""
        caption = [tag("figcaption", self.caption)] if self.caption else []
        return tag("figure", tag("div", self.chart, class_="scroll"), *caption)


@dataclass(frozen=True)
class Section:
    """A section of a lab's report: paragraphs, then figures, then tables."""

    title: str
    paragraphs: Sequence[str] = ()
    figures: Sequence[Figure] = field(default=())
    tables: Sequence[Table] = field(default=())


def film(title: str, frames: Sequence[tuple[str, Html]]) -> Html:
    """Return charts as an animation with a slider, each with its own label.

    Without JavaScript only the last one is shown.
    """
    pictures = [
        tag("div", chart, class_="frame", data_says=label,
            hidden=None if i == len(frames) - 1 else "")
        for i, (label, chart) in enumerate(frames)
    ]  # fmt: skip
    return tag("div", *pictures, class_="film", data_says=title)


def write_findings(record: Mapping[str, Any], sections: Sequence[Section], folder: Path) -> Path:
    """Write ``report.html`` into the folder of a lab and return its path.

    `record` has the keys of ``regard lab --json``, including question, command, data and machine.
    If the page exceeds 5 MB, the figures are omitted with a note.

    Raises: the disk is full.
    """
    parts = [*_top(record), *(part for section in sections for part in section_html(section))]
    write = partial(page, str(record["question"]), lang=record.get("lang", "en"))
    text = write([*parts, *_foot(record)])
    if len(text.encode()) > LIMIT:
        bare = [part for section in sections for part in section_html(section, figures=False)]
        note = tag("p", "Figures omitted: over 5 MB.", class_="note")
        text = write([*_top(record), note, *bare, *_foot(record)])
    path = folder / "report.html"
    write_bytes(path, text.encode("utf-8", errors="replace"))
    return path


def claims_list(claims: Sequence[Mapping[str, Any]]) -> list[Html]:
    """Return the list of expected findings, each marked as confirmed or not."""
    items = [
        tag("li", str(claim["says"]), class_="holds" if claim.get("holds") else "fails")
        for claim in claims
    ]
    if not items:
        return []
    return [tag("h3", "Expected findings, and whether they were confirmed"), tag("ul", *items)]


def _top(record: Mapping[str, Any]) -> list[Html]:
    data = record.get("data")
    over = f"regard · {record['task']}" + (f" on {data}" if data else "")
    answer = [tag("p", str(record["answer"]), class_="answer")] if record.get("answer") else []
    return [
        tag("p", over, class_="over"),
        tag("h1", str(record["question"])),
        *answer,
        *claims_list(record.get("claims", [])),
    ]


def section_html(section: Section, *, figures: bool = True) -> list[Html]:
    """Return a section as HTML: its paragraphs, figures and tables."""
    parts = [tag("h2", section.title), *(tag("p", text) for text in section.paragraphs)]
    shown = section.figures if figures else ()
    for small, group in groupby(shown, lambda figure: figure.small):
        drawn = [figure.html() for figure in group]
        parts += [tag("div", *drawn, class_="grid")] if small else drawn
    return [*parts, *(table.html() for table in section.tables)]


def _foot(record: Mapping[str, Any]) -> list[Html]:
    parts = [tag("h2", "Reproduce"), tag("pre", str(record["command"]))]
    return [*parts, *machine(record.get("machine", {}))]


def machine(environment: Mapping[str, Any]) -> list[Html]:
    """Return a collapsed table of the machine and the versions that gave the numbers."""
    rows = [
        tag("tr", tag("td", key), tag("td", shorten(_flat(value), 300), class_="words"))
        for key, value in environment.items()
    ]
    if not rows:
        return []
    table = tag("div", tag("table", tag("tbody", *rows)), class_="scroll")
    return [tag("details", tag("summary", "Machine and versions"), table)]


def _flat(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_flat(entry)}" for key, entry in value.items())
    return ", ".join(map(_flat, value)) if isinstance(value, list) else str(value)


def _as_text(value: Cell) -> str:
    return shorten(value, WIDEST) if isinstance(value, str) else number(value)


def _cell(value: Cell) -> Html:
    if isinstance(value, str):
        return tag("td", shorten(value, 120), class_="words")
    exact = repr(float(value)) if math.isfinite(value) else ""
    return tag("td", number(value), data_value=exact)


def _plain(value: Cell) -> Cell | None:
    if isinstance(value, str):
        return value
    return value if math.isfinite(value) else None
