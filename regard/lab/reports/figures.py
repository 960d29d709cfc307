"""SVG charts with axes: learning curves, intervals, cost against accuracy, histograms.

Pure functions from numbers to markup. Colours are classes that the style sheet defines for the
light and the dark theme; families of arms also differ in shape, not only in colour.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from regard.lab.reports.markup import Html, join, shorten, tag
from regard.lab.reports.scales import (
    Scale,
    duration,
    number,
    spanning,
    spanning_time,
    spread,
    text_width,
)

SIZE = 15  # font size in units of a chart 640 wide: still legible at half the width
SHAPES = {"attention": "circle", "network": "diamond", "baseline": "square"}


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


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    width: int = 640,
    height: int = 360,
    same_scale: Sequence[Series] = (),
    log_x: bool = False,
    log_y: bool = False,
) -> Html:
    """Draw lines and points over common axes, with a name at the end of each line.

    The series in `same_scale` only widen the axes, so that several charts share one scale. A
    logarithmic axis leaves out values that are not positive.
    """
    drawn = [_finite(s, log_x, log_y) for s in series]
    scaled = drawn + [_finite(s, log_x, log_y) for s in same_scale]
    named = [s for s in drawn if not s.faint and s.name and len(s.x)]
    right = max((text_width(shorten(s.name, 24), SIZE) for s in named), default=0) + 22
    x = spanning([v for s in scaled for v in s.x], 60, width - right, log=log_x)
    heights = [v for s in scaled for v in (*s.y, *s.low, *s.high)]
    y = spanning(heights, height - 52, 50, log=log_y)
    lines = [_line(s, x, y) for s in sorted(drawn, key=lambda s: not s.faint) if len(s.x)]
    ends = spread([y(s.y[-1]) for s in named], SIZE + 3, 58, height - 56)
    labels = [
        join(
            [
                tag("path", d=f"M{x(s.x[-1]) + 3:.1f} {y(s.y[-1]):.1f}L{width - right + 12:.1f} "
                    f"{place:.1f}", class_="leader"),
                tag("text", shorten(s.name, 24), x=width - right + 15, y=place + 5,
                    class_=f"ink{s.look % 6}"),
            ]
        )
        for s, place in zip(named, ends, strict=True)
    ]  # fmt: skip
    text = "; ".join(
        f"{s.name or 'line'} from {number(s.y[0])} to {number(s.y[-1])}" for s in named
    )
    body = [*_axes(x, y, x_label, y_label), *lines, *labels]
    return picture(title, f"{y_label} over {x_label}. {text}", width, height, body)


def interval_chart(
    title: str,
    rows: Sequence[Row],
    *,
    x_label: str,
    reference: str | None = None,
    lines: Mapping[str, float] | None = None,
    digits: int = 1,
    width: int = 640,
) -> Html:
    """Draw a forest plot: each arm's mean as a mark, its interval as a bar, its values as dots.

    Dashed lines mark the mean of the reference arm and those `lines` that lie within the axis.
    Values have the unit of `x_label`.
    """
    shown = [row for row in rows if math.isfinite(row.mean)]
    left = max((text_width(shorten(r.name, 26), SIZE) for r in shown), default=60) + 20
    right = text_width("100.0 [100.0, 100.0]" if digits < 2 else "0.000 [0.000, 0.000]", SIZE) + 12
    bottom = 56 + 30 * len(shown)
    values = [v for r in shown for v in (r.mean, r.low, r.high, *r.values)]
    x = spanning(values, left, width - right)
    parts = [_x_tick(x, tick, 50, bottom) for tick in x.ticks(5)]
    parts += [tag("text", x_label, x=(left + width - right) / 2, y=bottom + 42, class_="mid")]
    for row in shown:
        if row.name == reference:
            place = x(row.mean)
            parts.append(tag("path", d=f"M{place:.1f} 46V{bottom}", class_="reference"))
            parts.append(tag("text", shorten(row.name, 26), x=place, y=42, class_="mid soft"))
    inside = {k: v for k, v in (lines or {}).items() if x.low <= v <= x.high and shown}
    for place, (name, value) in enumerate(inside.items()):
        foot = bottom + 62 + 20 * place
        half = text_width(name, SIZE) / 2 + 4  # keeps the name inside the chart
        middle = min(max(x(value), half), width - half)
        parts.append(tag("path", d=f"M{x(value):.1f} 46V{bottom}", class_="reference"))
        parts.append(tag("text", name, x=middle, y=foot, class_="mid soft"))
    parts += [
        _interval(row, 72.0 + 30 * i, x, left, width - right, digits) for i, row in enumerate(shown)
    ]
    text = "; ".join(f"{row.name} {_with_interval(row, digits)}" for row in shown)
    text += "".join(f"; {name} {value:.{digits}f}" for name, value in (lines or {}).items())
    return picture(title, f"{x_label}. {text}", width, bottom + 56 + 20 * len(inside), parts)


def _with_interval(row: Row, digits: int) -> str:
    return f"{row.mean:.{digits}f} [{row.low:.{digits}f}, {row.high:.{digits}f}]"


def scatter(
    title: str,
    points: Sequence[Point],
    *,
    x_label: str,
    y_label: str,
    seconds: bool = False,
    digits: int = 1,
    width: int = 640,
    height: int = 400,
) -> Html:
    """Draw named points over a logarithmic x axis; with `seconds` x is a duration."""
    shown = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y) and p.x > 0]
    x_format, costs = duration if seconds else number, [p.x for p in shown]
    x = spanning(costs, 60, width - 34, log=True)
    marks = None
    if seconds:
        x, marks = spanning_time(costs, 60, width - 34)
    y = spanning([v for p in shown for v in (p.y, p.low, p.high)], height - 52, 50)
    parts = _axes(x, y, x_label, y_label, x_format, marks=marks)
    for p in shown:
        if math.isfinite(p.low) and math.isfinite(p.high):
            bar = f"M{x(p.x):.1f} {y(p.low):.1f}V{y(p.high):.1f}"
            parts.append(tag("path", d=bar, class_=f"bar thin {p.family}"))
    parts += [
        mark(p.family, x(p.x), y(p.y), f"{p.name}: {x_format(p.x)}, {p.y:.{digits}f}", p.trained)
        for p in shown
    ]
    parts += _names([(x(p.x), y(p.y), shorten(p.name, 24)) for p in shown], width, height - 52)
    text = "; ".join(f"{p.name} {x_format(p.x)}, {p.y:.{digits}f}" for p in shown)
    return picture(title, f"{y_label} against {x_label}. {text}", width, height, parts)


def histogram(
    title: str,
    shares: Sequence[float],
    edges: Sequence[float],
    *,
    x_label: str,
    y_label: str = "share",
    highest: float | None = None,
    width: int = 320,
    height: int = 220,
) -> Html:
    """Draw bars from edge to edge with heights `shares`; `highest` sets a common scale."""
    top = max(highest or 0.0, *shares, 1e-9)
    x = Scale(edges[0], edges[-1], 52, width - 14)
    y = spanning([0.0, top], height - 50, 54)
    bars = [
        tag("rect", tag("title", f"{number(a)} to {number(b)}: {share:.0%}"), class_="column",
            x=x(a) + 0.5, y=y(share), width=max(x(b) - x(a) - 1, 0.5), height=y(0) - y(share))
        for a, b, share in zip(edges, edges[1:], shares, strict=False) if share > 0
    ]  # fmt: skip
    parts = [*_axes(x, y, x_label, y_label, most=4), *bars]
    text = ", ".join(f"{share:.0%}" for share in shares)
    return picture(title, f"{y_label} of {x_label}: {text}", width, height, parts)


def picture(title: str, text: str, width: float, height: float, body: Sequence[Html]) -> Html:
    """Return an SVG with a visible title, and title and description for screen readers."""
    room = int(width / (SIZE * 0.62))
    head = tag("text", shorten(title, room), x=8, y=20, class_="title")
    return tag(
        "svg", tag("title", title), tag("desc", shorten(text, 2_000)), head, *body,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}", role="img",
        class_=_size_class(width), aria_label=title, font_size=SIZE,
    )  # fmt: skip


def _size_class(width: float) -> str:
    return "wide" if width > 500 else "middle" if width > 400 else "small"


def mark(family: str, x: float, y: float, text: str, filled: bool = True) -> Html:
    """Return the mark of a family of arms (circle, diamond or square) with a hover text."""
    name = family if family in SHAPES else "attention"
    shape, title = SHAPES[name], tag("title", text)
    look = f"mark {name}" if filled else f"mark hollow {name}"
    if shape == "circle":
        return tag("circle", title, cx=x, cy=y, r=6, class_=look)
    side, turn = (10, f"rotate(45 {x:.1f} {y:.1f})") if shape == "diamond" else (11, None)
    return tag(
        "rect", title, x=x - side / 2, y=y - side / 2, width=side, height=side, transform=turn,
        class_=look,
    )  # fmt: skip


def _axes(
    x: Scale,
    y: Scale,
    x_label: str,
    y_label: str,
    x_format: Callable[[float], str] = number,
    most: int = 6,
    marks: list[float] | None = None,
) -> list[Html]:
    """Draw grid, ticks and labels of a pair of axes; the y label stands above its axis."""
    bottom, parts = y.begin, []
    for tick in y.ticks(most):
        parts.append(tag("path", d=f"M{x.begin:.1f} {y(tick):.1f}H{x.end:.1f}", class_="grid"))
        parts.append(tag("text", number(tick), x=x.begin - 8, y=y(tick) + 5, class_="end soft"))
    marks = x.ticks(most) if marks is None else marks
    widest = max((text_width(x_format(t), SIZE) for t in marks), default=10) + 14
    room = max(2, int((x.end - x.begin) / widest) + 1)
    if len(marks) > room:
        marks = [t for t in marks if math.log10(t) % 1 == 0] if x.log else x.ticks(room)
    parts += [_x_tick(x, tick, y.end, bottom, x_format) for tick in marks]
    parts.append(tag("path", d=f"M{x.begin:.1f} {bottom:.1f}H{x.end:.1f}", class_="axis"))
    parts.append(tag("text", x_label, x=(x.begin + x.end) / 2, y=bottom + 42, class_="mid"))
    parts.append(tag("text", y_label, x=8, y=y.end - 10, class_="soft"))
    return parts


def _x_tick(
    x: Scale, tick: float, top: float, bottom: float, write: Callable[[float], str] = number
) -> Html:
    line = tag("path", d=f"M{x(tick):.1f} {top:.1f}V{bottom:.1f}", class_="grid")
    return join([line, tag("text", write(tick), x=x(tick), y=bottom + 20, class_="mid soft")])


def _line(series: Series, x: Scale, y: Scale) -> Html:
    places = [f"{x(a):.1f} {y(b):.1f}" for a, b in zip(series.x, series.y, strict=True)]
    if series.dots or series.low:
        return _dots(series, x, y)
    look = "line faint" if series.faint else f"line look{series.look % 6}"
    if len(places) == 1 and not series.faint:
        return mark("attention", x(series.x[0]), y(series.y[0]), series.name)
    return tag("path", tag("title", series.name), d="M" + "L".join(places), class_=look)


def _dots(series: Series, x: Scale, y: Scale) -> Html:
    """Draw points with their bars, if any, and a line through them unless `dots` is set."""
    look = f"look{series.look % 6}"
    parts = []
    if not series.dots:
        places = [f"{x(a):.1f} {y(b):.1f}" for a, b in zip(series.x, series.y, strict=True)]
        parts.append(tag("path", d="M" + "L".join(places), class_=f"line {look}"))
    bars = "".join(
        f"M{x(a):.1f} {y(low):.1f}V{y(high):.1f}"
        for a, low, high in zip(series.x, series.low, series.high, strict=False)
    )
    if bars:
        parts.append(tag("path", d=bars, class_=f"whisker {look}"))
    size = "faint" if series.faint else ""
    parts += [
        tag("circle", cx=x(a), cy=y(b), r=2.2 if series.faint else 3.4, class_=f"dot {look} {size}")
        for a, b in zip(series.x, series.y, strict=True)
    ]
    return tag("g", tag("title", series.name), *parts)


def _finite(series: Series, log_x: bool = False, log_y: bool = False, most: int = 400) -> Series:
    """Return the points that can be drawn, thinned evenly to at most `most`."""
    ends = [series.low or series.y, series.high or series.y]
    rows = [
        row for row in zip(series.x, series.y, *ends, strict=True)
        if all(map(math.isfinite, row)) and (row[0] > 0 or not log_x)
        and (min(row[1:]) > 0 or not log_y)
    ]  # fmt: skip
    if len(rows) > most:
        rows = [rows[round(i * (len(rows) - 1) / (most - 1))] for i in range(most)]
    x, y, low, high = ([float(row[i]) for row in rows] for i in range(4))
    if not series.low:
        low, high = [], []
    return replace(series, x=x, y=y, low=low, high=high)


def _interval(row: Row, y: float, x: Scale, left: float, right: float, digits: int) -> Html:
    family = row.family if row.family in SHAPES else "attention"
    text = _with_interval(row, digits)
    low, high = x(row.low), x(row.high)
    bar = f"M{low:.1f} {y - 5:.1f}V{y + 5:.1f}M{low:.1f} {y:.1f}H{high:.1f}"
    return join(
        [
            tag("text", shorten(row.name, 26), x=left - 12, y=y + 5, class_="end"),
            tag("path", d=f"{bar}M{high:.1f} {y - 5:.1f}V{y + 5:.1f}", class_=f"bar {family}"),
            *(tag("circle", cx=x(v), cy=y + 10, r=2, class_="value") for v in row.values),
            mark(family, x(row.mean), y, f"{row.name}: {text}", row.trained),
            tag("text", text, x=right + 10, y=y + 5, class_="soft"),
        ]
    )


Box = tuple[float, float, float, float]


def _names(marks: Sequence[tuple[float, float, str]], width: float, bottom: float) -> list[Html]:
    """Draw a name beside each mark, avoiding overlap with marks and other names."""
    taken: list[Box] = [(x - 8, y - 8, x + 8, y + 8) for x, y, _ in marks]
    parts = []
    for x, y, name in sorted(marks):
        places = _places(x, y, text_width(name, SIZE))
        _, box = min(places, key=lambda p: (_overlap(p[1], taken, width, bottom), p[0]))
        taken.append(box)
        middle = (box[1] + box[3]) / 2
        far = abs(middle - y) > 22 or box[0] - x > 14 or x - box[2] > 14
        if far:
            nearest = min(max(x, box[0]), box[2])
            edge = box[3] if middle < y else box[1]
            parts.append(
                tag("path", d=f"M{x:.1f} {y:.1f}L{nearest:.1f} {edge:.1f}", class_="leader")
            )
        parts.append(tag("text", name, x=box[0], y=box[3] - 4, class_="name"))
    return parts


def _places(x: float, y: float, width: float) -> list[tuple[int, Box]]:
    """Return candidate boxes for a name, the best first: right, left, above, below, then away."""
    high, places = SIZE + 3.0, []
    for ring in range(5):
        up = ring * 16.0
        for left in (x + 10, x - 10 - width):
            places += [(left, y - high / 2 - up), (left, y - high / 2 + up)]
        places += [(x - width / 2, y - 11 - high - up), (x - width / 2, y + 11 + up)]
    return [(i, (a, b, a + width, b + high)) for i, (a, b) in enumerate(places)]


def _overlap(box: Box, taken: Sequence[Box], width: float, bottom: float) -> float:
    """Return the area of a box on other boxes, plus a penalty outside the chart."""
    outside = max(0.0, 62 - box[0]) + max(0.0, box[2] - width + 4)
    outside += max(0.0, 50 - box[1]) + max(0.0, box[3] - bottom)
    return 100 * outside + sum(
        max(0.0, min(box[2], b[2]) - max(box[0], b[0]))
        * max(0.0, min(box[3], b[3]) - max(box[1], b[1]))
        for b in taken
    )
