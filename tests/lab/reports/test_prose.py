"""Pages of labs: what they may contain, and what a mistake in one is told as."""

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.reports.findings import Table, section_html
from regard.lab.reports.markup import Html
from regard.lab.reports.prose import Prose, read_page
from tests.lab.reports.hostile import HOSTILE

PAGE = """\
The slope is
{{ slope | fixed(2) }}, **{{ share | percent }}** of `{{ name }}`.

{% if more %}
A second answer.

{% endif %}
## Claims

* slope: the slope is {{ slope | short }}
{% for arm in arms %}
* of {{ arm }}: {{ arm }} wins
{% endfor %}

## About {{ name }}

*Why* {{ name }}
holds.

![A chart of {{ name }}.]({{ which }} "small")

![Rows of {{ name }}](rows "All {{ share | points }} of them.")
"""
VALUES = {
    "slope": 0.5,
    "share": 0.25,
    "name": "q·k",
    "more": False,
    "which": "chart",
    "arms": ["a*", "b_c_"],
}


def read(
    folder: Path, text: str = PAGE, figures: Any = None, tables: Any = None, **values: Any
) -> Prose:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    figures = {"chart": Html("<svg></svg>")} if figures is None else figures
    tables = {"rows": Table("", ["x"], [[1.0]])} if tables is None else tables
    return read_page(page, VALUES | values, figures, tables)


def test_a_page(tmp_path: Path) -> None:
    prose = read(tmp_path)
    assert prose.answer == ["The slope is 0.50, 25% of q·k."]
    assert prose.claims == {
        "slope": "the slope is 0.5", "of a*": "a* wins", "of b_c_": "b_c_ wins"
    }  # fmt: skip
    (section,) = prose.sections
    assert section.title == "About q·k"
    assert section.paragraphs == ["<em>Why</em> q·k holds."]
    (figure,) = section.figures
    assert (figure.chart, figure.caption, figure.small) == ("<svg></svg>", "A chart of q·k.", True)
    (table,) = section.tables
    assert (table.title, table.rows) == ("Rows of q·k", [[1.0]])
    assert table.note == "All 25.0 of them."
    assert len(read(tmp_path, more=True).answer) == 2


@pytest.mark.parametrize("text", [*HOSTILE, "**a** [b](javascript:c) `d` \\ &lt; ## e\n\n* f: g"])
def test_a_value_is_neither_markdown_nor_html(text: str, tmp_path: Path) -> None:
    prose = read(tmp_path, name=text)
    assert prose.answer[0].endswith(f"25% of {text}.")
    assert prose.claims.keys() == {"slope", "of a*", "of b_c_"}
    (section,) = prose.sections
    assert section.title == f"About {text}"
    assert section.tables[0].title == f"Rows of {text}"
    (paragraph,) = section.paragraphs
    assert paragraph.replace("<em>", "").replace("</em>", "").count("<") == 0
    assert "\u202e" not in paragraph
    written = "".join(section_html(section))
    assert "<script" not in written
    assert "<img" not in written


def test_html_of_a_page_is_text(tmp_path: Path) -> None:
    prose = read(tmp_path, "## S\n\n<b>bold</b> [x](javascript:y)\n", {}, {})
    assert prose.sections[0].paragraphs == ["&lt;b&gt;bold&lt;/b&gt; [x](javascript:y)"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\n\nOn {{ slop }}", ":3: 'slop' is undefined"),
        ("a\n{{ slope.steep }}", ":2: 'float object' has no attribute 'steep'"),
        ("a\n\n{{ name | percent }}\n\nb", ":3: Unknown format code '%' for object of type 'str'"),
        ("a\n\n{{ slope | percen }}", ":3: No filter named 'percen'"),
        ("{% if slope %}\na", ":2: Unexpected end of template"),
        ("## S\n\n![x](chart)\n\n![y](chrat)", ":5: there is no figure or table 'chrat'"),
        ("## S\n\na", ": does not show chart, rows"),
        ("## S\n\n1. a", ": an ordered list has no place in a section"),
        ("## Claims\n\na", ": a paragraph has no place in the claims"),
        ("{{ slope.__class__.mro() }}", ":1: access to attribute '__class__' of 'float' object is"),
    ],
)
def test_a_mistake_in_a_page(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(RegardError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path / 'page.md'}{says}")
    assert "\n" not in str(error.value)
