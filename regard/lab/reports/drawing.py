"""Draw charts with matplotlib: on any axes, into a file, or as SVG for a page.

The SVG has the colours of the page's style sheet as variables, so that it follows the theme, and
neither styles nor ids: the page's security policy forbids the first, many charts share a page.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from regard.core.atomic_io import write_bytes
from regard.core.errors import RegardError
from regard.lab.reports.markup import SIZE, Html, framed, shorten, show_hidden, tag
from regard.lab.reports.page import static

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Settings of matplotlib for every chart: the typeface comes with it, so that every machine
#: measures the same widths; a dollar sign does not begin a formula; text stays text.
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": SIZE,
    "text.parse_math": False,
    "lines.scale_dashes": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "regard",
    "pdf.fonttype": 42,
}
#: Rules of matplotlib's styles that a chart keeps, and those of them that change nothing.
LOOKS = ("fill", "stroke", "opacity", "text-anchor", "font-weight", "font-size")
USUAL = {
    ("text-anchor", "start"), ("stroke-linecap", "square"), ("stroke-dashoffset", "0"),
    ("font-size", f"{SIZE}px"),
}  # fmt: skip
XLINK = "{http://www.w3.org/1999/xlink}href"
GLYPH = "Glyph .* missing from font"  # a warning of matplotlib
SAYS = "says:"  # begins the id of an element with a hover text


@dataclass(frozen=True)
class Drawing:
    """A chart's drawing function, and the margins around its axes, in points.

    `text` describes the chart for screen readers.
    """

    title: str
    text: str
    width: float
    height: float
    draw: "Callable[[Axes], object]"
    left: float = 60
    right: float = 34
    top: float = 50
    bottom: float = 52

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the chart on axes, by default those of a new figure of pyplot, and return them.

        A notebook shows such a figure below the cell.
        """
        if ax is None:
            from matplotlib import pyplot

            with _style():
                return self._on(pyplot.figure)[1]
        with _style(own=False):
            self._fill(ax)
        return ax

    def save(self, path: Path) -> None:
        """Write the chart to a file in the format of its suffix.

        Raises: a character that the typeface lacks, unless the file is an SVG; the disk is full.
        """
        from matplotlib.figure import Figure

        kind = path.suffix.lower().removeprefix(".")
        if kind == "svg":
            write_bytes(path, self.svg("light").encode())
            return
        file, date = io.BytesIO(), {"CreationDate": None} if kind == "pdf" else {}
        try:
            with _style(), warnings.catch_warnings():
                warnings.filterwarnings("error", GLYPH)
                self._on(Figure)[0].savefig(file, format=kind, dpi=144, metadata=date)
        except UserWarning as error:
            raise RegardError(f"{path}: {error} Write an .svg, whose viewer has it") from None
        write_bytes(path, file.getvalue())

    def svg(self, theme: str | None = None) -> Html:
        """Return the chart as SVG, with the variables of the page or the colours of a theme."""
        from matplotlib.figure import Figure

        file = io.StringIO()
        with _style(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", GLYPH)  # the reader's browser has other typefaces
            figure, _ = self._on(Figure)
            figure.patch.set_visible(theme is not None)
            figure.savefig(file, format="svg", facecolor=colours()["ground"])
        root = ElementTree.fromstring(file.getvalue())  # noqa: S314 (matplotlib wrote it)
        written, light = colours(theme or "light"), colours()
        variables = {
            light[name]: f"var(--{name})" if theme is None else written[name]
            for name in reversed(light)  # of two names of one colour the first is taken
        }
        shapes = {key: node for node in root.iter() if (key := node.get("id"))}
        body = [part for node in root for part in _markup(node, shapes, variables, {})]
        return framed(self.title, self.text, self.width, self.height, body)

    def _on(self, new: "Callable[..., Figure]") -> "tuple[Figure, Axes]":
        """Draw the chart on the axes of a new figure of its size, and return both."""
        figure = new(figsize=(self.width / 72, self.height / 72), dpi=72)
        width, height = self.width - self.left - self.right, self.height - self.top - self.bottom
        ax = figure.add_axes((self.left / self.width, self.bottom / self.height,
                              width / self.width, height / self.height))  # fmt: skip
        self._fill(ax)
        return figure, ax

    def _fill(self, ax: "Axes") -> None:
        import matplotlib

        colour = colours()
        ax.patch.set_visible(False)
        for side, spine in ax.spines.items():
            spine.set(visible=side == "bottom", color=colour["soft"], linewidth=1)
        ax.grid(visible=True, color=colour["grid"], linewidth=1)
        ax.set_axisbelow(True)
        ax.tick_params(which="both", length=0, pad=8, labelcolor=colour["soft"],
                       labelsize=matplotlib.rcParams["font.size"])  # fmt: skip
        self.draw(ax)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set_parse_math(False)
        ax.xaxis.label.set_color(colour["ink"])
        ax.yaxis.label.set(color=colour["soft"], rotation=0, ha="left", va="bottom")
        width, height = size_of(ax)
        edge = (8 - self.left) / width  # title and y label begin at the edge of the figure
        ax.yaxis.set_label_coords(edge, 1 + 10 / height)
        room = int(self.width / (SIZE * 0.62))
        ax.set_title(shorten(plain(self.title), room), loc="left", x=edge, pad=self.top - 20,
                     parse_math=False,
                     fontsize="medium", fontweight="bold", color=colour["ink"])  # fmt: skip


class Chart(Html):
    """The SVG of a `Drawing`, which can be drawn again on axes or into a file."""

    drawing: Drawing

    @classmethod
    def of(cls, drawing: Drawing) -> "Chart":
        """Draw a chart for a page."""
        chart = cls(drawing.svg())
        chart.drawing = drawing
        return chart


def plain(text: str) -> str:
    """Return a text in one line, without the characters that no picture can show."""
    return " ".join(show_hidden(text).split())


@cache
def colours(theme: str = "light") -> dict[str, str]:
    """Return the colours of the style sheet by name, for the theme "light" or "dark".

    >>> colours()["ground"], colours("dark")["ground"]
    ('#ffffff', '#14181d')
    """
    light, dark = re.findall(r":root \{(.+?)\}", static("report.css"), re.DOTALL)[:2]
    return dict(re.findall(r"--([\w-]+): (#\w{6})", light + (dark if theme == "dark" else "")))


def _style(own: bool = True) -> AbstractContextManager[None]:
    """Draw in the style of every chart, or else in that of the user's notebook."""
    import matplotlib.style

    return matplotlib.style.context(["default", STYLE] if own else {"text.parse_math": False})


def size_of(ax: "Axes") -> tuple[float, float]:
    """Return width and height of axes in points."""
    box, dpi = ax.get_window_extent(), ax.get_figure(root=True).dpi  # type: ignore[union-attr]
    return box.width * 72 / dpi, box.height * 72 / dpi


def _markup(
    node: ElementTree.Element,
    shapes: Mapping[str, ElementTree.Element],
    variables: Mapping[str, str],
    outer: Mapping[str, str],
) -> Iterator[Html]:
    """Yield an element of matplotlib's SVG as markup without styles, ids, groups or references.

    `variables` replaces colours, `outer` has the attributes of the groups around it.
    """
    name = node.tag.rpartition("}")[2]
    if name in ("defs", "metadata", "style"):
        return
    own = dict(outer) | _attributes(node, variables)
    if name == "g":
        inside = [part for child in node for part in _markup(child, shapes, variables, own)]
        says = node.get("id", "").partition(SAYS)[2]
        if inside and says:
            yield tag("g", tag("title", says), *inside)
        else:
            yield from inside
        return
    if name == "use":
        shape = shapes[node.get(XLINK, "")[1:]]
        x, y = own.pop("x"), own.pop("y")
        own |= _attributes(shape, variables)
        if own["d"].count("C") == 8:  # a circle around 0, which begins at its lowest point
            name, own = "circle", {"cx": x, "cy": y, "r": own.pop("d").split()[2]} | own
        else:
            name, own = "path", own | {"transform": f"translate({x} {y})"}
    content = ["".join(node.itertext())] if name == "text" else []
    if content != [""]:
        yield tag(name, *content, **own)


def _attributes(node: ElementTree.Element, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the attributes of an element, its style among them, with colours as variables."""
    attributes = {key: node.get(key, "") for key in ("d", "x", "y", "transform") if node.get(key)}
    for rule in filter(None, node.get("style", "").split(";")):
        key, _, value = (part.strip() for part in rule.partition(":"))
        if key.startswith(LOOKS) and (key, value) not in USUAL:
            attributes[key] = variables.get(value, value)
    if re.match(r"rotate\(-?0(\.0+)? ", attributes.get("transform", "")):
        del attributes["transform"]
    return {
        key: re.sub(r"\d+\.\d+", _rounded, " ".join(value.split()))
        for key, value in attributes.items()
    }


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.2f}".rstrip("0").rstrip(".")
