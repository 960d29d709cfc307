"""The prose of a report: a Markdown page, with the measured values filled in by Jinja.

A page consists of the answer in a few sentences, the claims, and sections::

    The variance grows as d^{{ slope | fixed(2) }}.

    ## Claims

    * slope: the slope is {{ slope | fixed(3) }}

    ## The variance of q·k

    A paragraph.

    ![The caption of a figure.](variance)
    ![The title of a table](rows "A note below it.")

The sentence of a claim follows its key; in Chinese the heading is ``## 论断``. An image inserts
the figure or table of that name; ``(name "small")`` places small figures side by side. Values
are never read as Markdown or HTML.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from jinja2 import FileSystemLoader, StrictUndefined, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode
from markupsafe import Markup

from regard.core.errors import RegardError
from regard.lab.reports.findings import Figure, Section, Table
from regard.lab.reports.markup import Html, show_hidden
from regard.lab.reports.scales import duration, number, rounded

CLAIMS = ("Claims", "论断")
SMALL = "small"
PLACE = re.compile("\ue000([0-9]+)\ue001")  # stands for a value while Markdown is read
FORMATS: Mapping[str, Callable[..., str]] = {
    "percent": lambda value, digits=0: f"{value:.{digits}%}",
    "points": lambda value, digits=1: f"{100 * value:.{digits}f}".replace("-", "−"),
    "fixed": lambda value, digits=0: f"{value:.{digits}f}",
    "count": lambda value, digits=0: f"{value:,.{digits}f}",
    "scientific": lambda value, digits=1: f"{value:.{digits}e}",
    "short": lambda value, digits=6: f"{value:.{digits}g}",
    "number": number,
    "rounded": rounded,
    "duration": duration,
}


@dataclass(frozen=True)
class Prose:
    """A rendered page: sentences of the answer, the sentence of each claim, sections."""

    answer: Sequence[str]
    claims: Mapping[str, str]
    sections: Sequence[Section]


def read_page(
    page: Path, values: Mapping[str, Any], figures: Mapping[str, Html], tables: Mapping[str, Table]
) -> Prose:
    """Fill in a page. Figures and tables get their captions, titles and notes from it.

    `values` are shown by the filters ``percent``, ``points``, ``fixed``, ``count`` (with commas),
    ``scientific`` and ``short``, each with a number of digits: ``{{ share | percent(1) }}``, and
    by `number`, `rounded` and `duration` of `regard.lab.reports.scales`.

    Raises: a value that is missing or has the wrong type, with file and line; a figure or table
    that the page does not show, or shows without having it; a part that is not a heading,
    paragraph, image or list of claims.
    """
    shown: list[str] = []

    def keep(value: object) -> Markup:
        if isinstance(value, Markup):
            return value
        shown.append(str(value))
        return Markup(f"\ue000{len(shown) - 1}\ue001")  # noqa: S704

    markdown = MarkdownIt("commonmark", {"html": False})
    tokens = markdown.parse(_filled(page, values, keep))
    _put_back(tokens, shown)
    reader = _Reader(page, markdown, dict(figures), dict(tables), [], {}, [])
    for node in SyntaxTreeNode(tokens).children:
        reader.read(node)
    if unseen := [*reader.figures, *reader.tables]:
        raise RegardError(f"{page}: does not show {', '.join(unseen)}; add ![caption](name)")
    return Prose(reader.answer, reader.claims, reader.sections)


def _filled(page: Path, values: Mapping[str, Any], keep: Any) -> str:
    """Render the template. Raises: a mistake in it or in the values, with file and line."""
    environment = ImmutableSandboxedEnvironment(
        loader=FileSystemLoader(page.parent), undefined=StrictUndefined, finalize=keep,
        autoescape=True, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(FORMATS)
    try:
        return environment.get_template(page.name).render(values)
    except (TemplateError, TypeError, ValueError) as error:
        calls = traceback.extract_tb(error.__traceback__)
        lines = [call.lineno for call in calls if call.filename == str(page)]
        line = getattr(error, "lineno", None) or (lines or [1])[-1]
        raise RegardError(f"{page}:{line}: {error}") from None


def _put_back(tokens: Sequence[Token], shown: Sequence[str]) -> None:
    """Replace the places of values by the values, in texts and attributes."""

    def put(text: object) -> Any:
        return (
            PLACE.sub(lambda found: shown[int(found[1])], text) if isinstance(text, str) else text
        )

    for token in tokens:
        token.content = put(token.content)
        if token.type == "image":
            token.attrs["src"] = unquote(str(token.attrs["src"]))
        token.attrs = {key: put(value) for key, value in token.attrs.items()}
        _put_back(token.children or [], shown)


@dataclass
class _Reader:
    """The parsed part of a page, and the figures and tables that are not shown yet."""

    page: Path
    markdown: MarkdownIt
    figures: dict[str, Html]
    tables: dict[str, Table]
    answer: list[str]
    claims: dict[str, str]
    sections: list[Section]
    in_claims: bool = False

    def read(self, node: SyntaxTreeNode) -> None:
        """Read a part of the page."""
        if node.type == "heading":
            title = _plain(node.children[0])
            self.in_claims = title in CLAIMS
            if not self.in_claims:
                self.sections.append(Section(title))
        elif node.type == "bullet_list" and self.in_claims:
            for item in node.children:
                key, _, says = _plain(item.children[0].children[0]).partition(": ")
                self.claims[key] = says
        elif node.type != "paragraph" or self.in_claims:
            part = "the claims" if self.in_claims else "a section"
            kind = node.type.replace("_", " ")
            raise RegardError(
                f"{self.page}: {'an' if kind[0] in 'aeiou' else 'a'} {kind} has no place in {part}"
            )
        elif not self.sections:
            self.answer.append(_plain(node.children[0]))
        elif images := [*_images(node.children[0])]:
            for image in images:
                self.show(image)
        else:
            tokens = node.children[0].to_tokens()[0].children or []
            html = self.markdown.renderer.render(tokens, self.markdown.options, {})
            self.add(paragraphs=[Html(show_hidden(html.replace("\n", " ")))])

    def show(self, image: SyntaxTreeNode) -> None:
        """Show a figure or table."""
        name, says = str(image.attrs["src"]), _plain(image)
        note = str(image.attrs.get("title", ""))
        if name in self.figures:
            self.add(figures=[Figure(self.figures.pop(name), says, note == SMALL)])
        elif name in self.tables:
            self.add(tables=[replace(self.tables.pop(name), title=says, note=note)])
        else:
            lines = self.page.read_text(encoding="utf-8").splitlines()
            at = next((i for i, line in enumerate(lines, 1) if f"]({name}" in line), 1)
            raise RegardError(f"{self.page}:{at}: there is no figure or table {name!r}")

    def add(self, **parts: list[Any]) -> None:
        """Add paragraphs, figures or tables to the last section."""
        section = self.sections[-1]
        longer: dict[str, Any] = {key: [*getattr(section, key), *new] for key, new in parts.items()}
        self.sections[-1] = replace(section, **longer)


def _images(inline: SyntaxTreeNode) -> Iterator[SyntaxTreeNode]:
    """Return the images of a paragraph that holds nothing else."""
    if all(child.type in ("image", "softbreak") for child in inline.children):
        yield from (child for child in inline.children if child.type == "image")


def _plain(node: SyntaxTreeNode) -> str:
    """Return a text without its markup."""
    if node.type in ("softbreak", "hardbreak"):
        return " "
    return "".join(map(_plain, node.children)) if node.children else node.content
