"""Charts with axes, drawn by matplotlib: learning curves, intervals, cost, histograms.

Functions from numbers to a `Chart`: SVG for a page, whose colours are variables of the page's
style sheet, and a drawing that any `Axes` takes. Families of arms differ in shape, too.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from regard.lab.reports.drawing import SAYS, Chart, Drawing, colours, plain, size_of
from regard.lab.reports.markup import SIZE, distinct
from regard.lab.reports.scales import duration, number, spread, text_width

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHAPES = {"attention": "o", "network": "D", "baseline": "s"}
#: Dashes of the lines of a chart, in points; the first is solid.
DASHES = ((), (7, 4), (2, 4), (9, 3, 2, 3), (12, 4), (4, 2))
WIDE = 640  # the width of a chart that stands alone
MOST = 1e300  # values from here on are not drawn: the length of their axis would overflow
#: Ticks of a duration in seconds.
TIMES = (
    *(0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1200, 3600, 18_000, 86_400),
    *(5 * 86_400, 20 * 86_400, 100 * 86_400),
)


@dataclass(frozen=True)
class Series:
    """One line of a chart, y over x. A faint series is background and has no label.

    `dots` draws points instead of a line; `low` and `high` are the ends of a vertical bar through
    each point.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    look: int = 0
    faint: bool = False
    dots: bool = False
    low: Sequence[float] = ()
    high: Sequence[float] = ()

    def times(self, factor: float) -> "Series":
        """Return the series with each y multiplied by a factor.

        >>> Series("a", [1], [0.5]).times(100).y
        [50.0]
        """
        return replace(self, y=[factor * value for value in self.y])

    @classmethod
    def ranged(
        cls,
        name: str,
        x: Sequence[float],
        ends: Sequence[tuple[float, float, float]],
        look: int = 0,
        *,
        times: float = 1.0,
    ) -> "Series":
        """Return a series of means with their intervals, each (mean, low, high), multiplied.

        >>> Series.ranged("a", [1], [(0.5, 0.25, 0.75)], times=100).low
        [25.0]
        """
        y, low, high = ([times * one[part] for one in ends] for part in range(3))
        return cls(name, x, y, look, low=low, high=high)


@dataclass(frozen=True)
class Row:
    """One row of an interval chart: a mean, its 95 % interval and the single values.

    The mark is hollow if training did not converge.
    """

    name: str
    mean: float
    low: float
    high: float
    family: str = "attention"
    values: Sequence[float] = field(default=())
    trained: bool = True


@dataclass(frozen=True)
class Point:
    """One point of a scatter plot, with a vertical interval."""

    name: str
    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    family: str = "attention"
    trained: bool = True


def lines(x: Sequence[float], curves: Mapping[str, Sequence[float]]) -> list[Series]:
    """Return a series for each named curve over the same x, each with a look of its own."""
    return [Series(name, x, y, look=look) for look, (name, y) in enumerate(curves.items())]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    width: int = WIDE,
    height: int = 360,
    same_scale: Sequence[Series] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Chart:
    """Draw lines and points over common axes, with a name at the end of each line.

    The series in `same_scale` only widen the axes, so that several charts share one scale. A
    logarithmic axis leaves out values that are not positive.
    """
    drawn = [_finite(s, log_x, log_y) for s in series]
    scaled = drawn + [_finite(s, log_x, log_y) for s in same_scale]
    named = [s for s in drawn if not s.faint and s.name and len(s.x)]
    names = distinct([plain(s.name) for s in named], 24)
    right = max((text_width(name, SIZE) for name in names), default=0) + 22

    def draw(ax: "Axes") -> None:
        fit(ax.xaxis, [v for s in scaled for v in s.x], log_x)
        fit(ax.yaxis, [v for s in scaled for v in (*s.y, *s.low, *s.high)], log_y)
        for one in drawn:
            if len(one.x):
                _line(ax, one)
        _end_names(ax, named, names)
        ax.set(xlabel=plain(x_label), ylabel=plain(y_label))

    text = "; ".join(
        f"{s.name or 'line'} from {number(s.y[0])} to {number(s.y[-1])}" for s in named
    )
    text = f"{y_label} over {x_label}. {text}"
    return Chart.of(Drawing(title, text, width, height, draw, right=right))


def interval_chart(
    title: str,
    rows: Sequence[Row],
    *,
    x_label: str,
    reference: str | None = None,
    lines: Mapping[str, float] | None = None,
    digits: int = 1,
) -> Chart:
    """Draw a forest plot: each arm's mean as a mark, its interval as a bar, its values as dots.

    Dashed lines mark the mean of the reference arm and those `lines` that lie within the axis.
    Values have the unit of `x_label`.
    """
    shown = [row for row in rows if _drawable(row.mean)]
    names = distinct([plain(row.name) for row in shown], 26)
    left = max((text_width(name, SIZE) for name in names), default=60) + 20
    usual = "100.0 [100.0, 100.0]" if digits < 2 else "0.000 [0.000, 0.000]"
    said = [usual, *(_with_interval(row, digits) for row in shown)]
    right = max(text_width(text, SIZE) for text in said) + 12
    values = [v for r in shown for v in (r.mean, r.low, r.high, *r.values)]
    ends = [v for v in values if _drawable(v)]
    room = 0.05 * (max(ends) - min(ends)) if ends else 0.0
    inside = {
        name: value
        for name, value in (lines or {}).items()
        if ends and min(ends) - room <= value <= max(ends) + room
    }

    def draw(ax: "Axes") -> None:
        colour = colours()
        fit(ax.xaxis, [*values, *inside.values()])
        ax.set_ylim(max(len(shown), 1) - 0.5, -0.9)
        ax.set_yticks(range(len(shown)), names, color=colour["ink"], parse_math=False)
        ax.grid(visible=False, axis="y")
        for row, name in zip(shown, names, strict=True):
            if row.name == reference:
                _upright(ax, row.mean, name, 4, "bottom")
        for place, (name, value) in enumerate(inside.items()):
            _upright(ax, value, plain(name), -50 - 20 * place, "top")
        for place, row in enumerate(shown):
            _interval(ax, place, row, digits)
        ax.set_xlabel(plain(x_label))

    text = "; ".join(f"{row.name} {_with_interval(row, digits)}" for row in shown)
    text += "".join(f"; {name} {value:.{digits}f}" for name, value in (lines or {}).items())
    below = 56 + 20 * len(inside)
    height = 56 + 30 * len(shown) + below
    drawing = Drawing(title, f"{x_label}. {text}", WIDE, height, draw, left, right, 46, below)
    return Chart.of(drawing)


def scatter(
    title: str,
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    seconds: bool = False,
    digits: int = 1,
    height: int = 400,
) -> Chart:
    """Draw named points over a logarithmic x axis; with `seconds` x is a duration."""
    shown = [p for p in points if _drawable(p.x) and _drawable(p.y) and p.x > 0]
    x_format = duration if seconds else number

    def draw(ax: "Axes") -> None:
        fit(ax.xaxis, [p.x for p in shown], log=True, marks=TIMES if seconds else ())
        ax.xaxis.set_major_formatter(lambda value, _: x_format(value))
        fit(ax.yaxis, [v for p in shown for v in (p.y, p.low, p.high)])
        for p in shown:
            if _drawable(p.low) and _drawable(p.high):
                ax.vlines(p.x, p.low, p.high, colors=colours()[_family(p.family)], alpha=0.4)
        for p in shown:
            says = f"{p.name}: {x_format(p.x)}, {p.y:.{digits}f}"
            mark(ax, p.x, p.y, p.family, says, p.trained)
        names = distinct([plain(p.name) for p in shown], 24)
        _names(ax, [(p.x, p.y, name) for p, name in zip(shown, names, strict=True)])
        ax.set(xlabel=plain(x_label), ylabel=plain(y_label))

    text = "; ".join(f"{p.name} {x_format(p.x)}, {p.y:.{digits}f}" for p in shown)
    return Chart.of(Drawing(title, f"{y_label} against {x_label}. {text}", WIDE, height, draw))


def histogram(
    title: str,
    shares: Sequence[float],
    edges: Sequence[float],
    *,
    x_label: str,
    y_label: str = "share",
    highest: float | None = None,
) -> Chart:
    """Draw bars from edge to edge with heights `shares`; `highest` sets a common scale."""

    def draw(ax: "Axes") -> None:
        widths = [b - a for a, b in pairwise(edges)]
        bars = ax.bar(edges[:-1], shares, widths, align="edge", color=colours()["attention"],
                      edgecolor=colours()["ground"])  # fmt: skip
        for bar, (a, b), share in zip(bars, pairwise(edges), shares, strict=True):
            bar.set_gid(f"{SAYS}{number(a)} to {number(b)}: {share:.0%}")
        fit(ax.xaxis, edges, room=0)
        fit(ax.yaxis, [0.0, max(highest or 0.0, *shares, 1e-9)], room=0)
        ax.set(xlabel=plain(x_label), ylabel=plain(y_label))

    text = f"{y_label} of {x_label}: {', '.join(f'{share:.0%}' for share in shares)}"
    return Chart.of(Drawing(title, text, 320, 220, draw, left=52, right=14, top=54))


def mark(ax: "Axes", x: float, y: float, family: str, says: str, filled: bool = True) -> None:
    """Draw the mark of a family of arms (circle, diamond or square) with a hover text."""
    colour, ground = colours()[_family(family)], colours()["ground"]
    ax.plot([x], [y], SHAPES[_family(family)], markersize=11.5 if filled else 10,
            markerfacecolor=colour if filled else ground,
            markeredgecolor=ground if filled else colour, markeredgewidth=1.5 if filled else 2.5,
            zorder=4, gid=f"{SAYS}{plain(says)}")  # fmt: skip


def fit(
    axis: Any,
    values: Sequence[float],
    log: bool = False,
    room: float = 0.05,
    marks: Sequence[float] = (),
) -> None:
    """Fit an axis to all finite values, with a share of `room` beyond them, and set its ticks."""
    from matplotlib import ticker

    name = axis.axis_name
    finite = [v for v in values if _drawable(v) and (v > 0 or not log)] or [1.0, 10.0]
    low, high = min(finite), max(finite)
    if log:
        low, high = math.log10(low), math.log10(high)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room, low, high = 0.0, low - (abs(low) * 0.1 or 1.0), high + (abs(high) * 0.1 or 1.0)
    low, high = low - room * (high - low), high + room * (high - low)
    most = max(2, min(6, axis.get_tick_space()))
    if log:
        axis.axes.set(**{f"{name}scale": "log", f"{name}lim": (10**low, 10**high)})
        length, label = (size_of(axis.axes)[0], 45) if name == "x" else (size_of(axis.axes)[1], 25)
        firsts = (1, 2, 5) if 0.3 * length / (high - low) > label else (1,)
        axis.set_major_locator(ticker.LogLocator(subs=firsts, numticks=most + 4))
        axis.set_minor_locator(ticker.NullLocator())
        inside = [t for t in marks if 10**low <= t <= 10**high]
        if len(inside) > 1:
            step = math.ceil(len(inside) / (most + 2))
            axis.set_major_locator(ticker.FixedLocator(inside[::step]))
    else:
        axis.axes.set(**{f"{name}lim": (low, high)})
        axis.set_major_locator(ticker.MaxNLocator(most, steps=[1, 2, 5, 10]))
    zero = 0.0 if log else 1e-9 * (high - low)
    axis.set_major_formatter(lambda value, _: number(0.0 if abs(value) < zero else value))


def _line(ax: "Axes", series: Series) -> None:
    """Draw a series as a line, or as points with their bars, if any."""
    colour = colours()["line" if series.faint else f"look{series.look % 6}"]
    gid, order = f"{SAYS}{plain(series.name)}", 1.5 if series.faint else 3
    if len(series.x) == 1 and not series.faint and not series.dots and not series.low:
        mark(ax, series.x[0], series.y[0], "attention", series.name)
        return
    if not series.dots:
        dashes = () if series.faint else DASHES[series.look % 6]
        ax.plot(series.x, series.y, color=colour, linewidth=1.2 if series.faint else 2.2,
                linestyle=(0, dashes) if dashes else "-", zorder=order, gid=gid,
                solid_capstyle="round")  # fmt: skip
    if series.low:
        ax.vlines(series.x, series.low, series.high, colors=colour, linewidth=1.6, alpha=0.75,
                  zorder=order, gid=gid)  # fmt: skip
    if series.dots or series.low:
        ax.plot(series.x, series.y, "o", color=colour, markeredgewidth=0, zorder=order, gid=gid,
                markersize=4.4 if series.faint else 6.8,
                alpha=0.45 if series.faint else 1.0)  # fmt: skip


def _end_names(ax: "Axes", named: Sequence[Series], names: Sequence[str]) -> None:
    """Write the name of each line next to its end, with a leader if names had to move."""
    import matplotlib
    from matplotlib.transforms import ScaledTranslation

    size, (_, height) = matplotlib.rcParams["font.size"], size_of(ax)
    ends = [ax.transAxes.inverted().transform(ax.transData.transform((s.x[-1], s.y[-1])))
            for s in named]  # fmt: skip
    places = spread([end[1] * height for end in ends], size + 3, 0, height)
    inches = ax.get_figure(root=True).dpi_scale_trans  # type: ignore[union-attr]
    for one, name, end, place in zip(named, names, ends, places, strict=True):
        moved = ScaledTranslation(15 / 72, (place - end[1] * height) / 72, inches)
        ax.annotate(name, (one.x[-1], one.y[-1]), (1, end[1]),
                    textcoords=ax.transAxes + moved, va="center_baseline", annotation_clip=False,
                    color=colours()[f"look{one.look % 6}"], arrowprops=_leader())  # fmt: skip


def _finite(series: Series, log_x: bool = False, log_y: bool = False, most: int = 400) -> Series:
    """Return the points that can be drawn, thinned evenly to at most `most`."""
    ends = [series.low or series.y, series.high or series.y]
    rows = [
        row for row in zip(series.x, series.y, *ends, strict=True)
        if all(map(_drawable, row)) and (row[0] > 0 or not log_x)
        and (min(row[1:]) > 0 or not log_y)
    ]  # fmt: skip
    if len(rows) > most:
        rows = [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]
    x, y, low, high = ([float(row[i]) for row in rows] for i in range(4))
    if not series.low:
        low, high = [], []
    return replace(series, x=x, y=y, low=low, high=high)


def _drawable(value: float) -> bool:
    """Return whether a value is finite and not so large that the length of an axis overflows."""
    return abs(value) < MOST


def _family(name: str) -> str:
    return name if name in SHAPES else "attention"


def _with_interval(row: Row, digits: int) -> str:
    return f"{row.mean:.{digits}f} [{row.low:.{digits}f}, {row.high:.{digits}f}]"


def _interval(ax: "Axes", place: int, row: Row, digits: int) -> None:
    text, colour = _with_interval(row, digits), colours()
    own = colour[_family(row.family)]
    if _drawable(row.low) and _drawable(row.high):
        ax.hlines(place, row.low, row.high, colors=own, linewidth=2)
        ax.vlines([row.low, row.high], place - 0.17, place + 0.17, colors=own, linewidth=2)
    values = [value for value in row.values if _drawable(value)]
    ax.plot(values, [place + 0.33] * len(values), "o", color=colour["soft"], markersize=4,
            markeredgewidth=0, alpha=0.75)  # fmt: skip
    mark(ax, row.mean, place, row.family, f"{row.name}: {text}", row.trained)
    ax.annotate(text, (1, place), (10, 0), xycoords=ax.get_yaxis_transform(),
                textcoords="offset points", va="center_baseline", color=colour["soft"],
                annotation_clip=False)  # fmt: skip


def _upright(ax: "Axes", value: float, name: str, offset: float, va: str) -> None:
    """Draw a dashed line at a value, and its name above or below the axes, inside the figure."""
    import matplotlib

    soft, size = colours()["soft"], matplotlib.rcParams["font.size"]
    ax.axvline(value, color=soft, linewidth=1.2, dashes=(5, 4), gid=f"{SAYS}{name}")
    figure = ax.get_figure(root=True)
    half = text_width(name, size) / 2 + 4
    x = ax.transData.transform((value, 0))[0] * 72 / figure.dpi  # type: ignore[union-attr]
    whole = figure.bbox.width * 72 / figure.dpi  # type: ignore[union-attr]
    moved = min(max(x, half), max(whole - half, half)) - x
    ax.annotate(name, (value, va == "bottom"), (moved, offset), color=soft, ha="center", va=va,
                xycoords=ax.get_xaxis_transform(), textcoords="offset points",
                annotation_clip=False)  # fmt: skip


def _leader() -> dict[str, Any]:
    """Return the style of a line from a name to its mark."""
    return {"arrowstyle": "-", "color": colours()["soft"], "linewidth": 0.8, "alpha": 0.7,
            "relpos": (0, 0.5), "shrinkA": 0, "shrinkB": 3}  # fmt: skip


Box = tuple[float, float, float, float]


def _names(ax: "Axes", marks: Sequence[tuple[float, float, str]]) -> None:
    """Write a name next to each mark, avoiding overlap with marks and other names."""
    import matplotlib

    size, (width, height) = matplotlib.rcParams["font.size"], size_of(ax)
    to_points = ax.transAxes.inverted()
    places = [(*to_points.transform(ax.transData.transform((x, y))) * (width, height), name)
              for x, y, name in marks]  # fmt: skip
    taken: list[Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y, _ in places]
    for x, y, name in sorted(places):
        boxes = _boxes(x, y, text_width(name, size), size + 3.0)
        _, box = min(boxes, key=lambda p: (_overlap(p[1], taken, width, height), p[0]))
        taken.append(box)
        middle = (box[1] + box[3]) / 2
        if abs(middle - y) > 22 or box[0] - x > 14 or x - box[2] > 14:
            edge = (min(max(x, box[0]), box[2]), box[1] if middle > y else box[3])
            ax.annotate("", (x, y), edge, xycoords="axes points", textcoords="axes points",
                        arrowprops=_leader())  # fmt: skip
        ax.annotate(name, (box[0], middle), xycoords="axes points", va="center_baseline",
                    color=colours()["ink"], annotation_clip=False, zorder=5,
                    bbox={"color": colours()["ground"], "alpha": 0.7, "linewidth": 0,
                          "pad": 0})  # fmt: skip


def _boxes(x: float, y: float, width: float, high: float) -> list[tuple[int, Box]]:
    """Return candidate boxes for a name, the best first: right, left, above, below, then away."""
    places: list[tuple[float, float]] = []
    for ring in range(5):
        up = ring * 16.0
        for left in (x + 10, x - 10 - width):
            places += [(left, y - high / 2 + up), (left, y - high / 2 - up)]
        places += [(x - width / 2, y + 11 + up), (x - width / 2, y - 11 - high - up)]
    return [(i, (a, b, a + width, b + high)) for i, (a, b) in enumerate(places)]


def _overlap(box: Box, taken: Sequence[Box], width: float, height: float) -> float:
    """Return the area of a box on other boxes, plus a penalty outside the axes."""
    outside = max(0.0, 2 - box[0]) + max(0.0, box[2] - width - 30)
    outside += max(0.0, -box[1]) + max(0.0, box[3] - height)
    return 100 * outside + sum(
        max(0.0, min(box[2], b[2]) - max(box[0], b[0]))
        * max(0.0, min(box[3], b[3]) - max(box[1], b[1]))
        for b in taken
    )
