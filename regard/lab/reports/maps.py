"""Charts that encode values as colour: heat maps, confusion matrices, coloured words.

Values change the opacity of a single hue, so that a chart suits the light and the dark theme.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regard.lab.reports.markup import SIZE, Html, framed, join, shorten, tag
from regard.lab.reports.scales import number, text_width, ticks

LEVELS = 12  # shades of a hue
NAMED = 14  # characters of a row's or a column's name
FULL_LIFT = 16.0  # multiple of the average weight that has the full colour


def heat_map(
    title: str,
    matrix: ArrayLike,
    *,
    x_label: str = "",
    y_label: str = "",
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    x_span: tuple[float, float] | None = None,
    y_span: tuple[float, float] | None = None,
    diverging: bool = False,
    width: int = 640,
) -> Html:
    """Draw a matrix (rows, columns) as coloured cells with a colour bar.

    Sides without names are numbered from 0, or from the first to the last value of a span.

    The colours are sequential from the smallest to the largest value, or diverging around zero.
    Cells of one shade are one path, so that 128 × 128 cells take some 60 KB. NaN stays blank.
    """
    values = np.asarray(matrix, dtype=np.float64)
    height, breadth = values.shape
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    if diverging:
        high = max(abs(low), abs(high)) or 1.0
        low = -high
    high = high if high > low else low + 1.0
    left = max([text_width(shorten(r, NAMED), SIZE) for r in rows or []] + [38]) + 18
    top = max([text_width(shorten(c, NAMED), SIZE) * 0.8 for c in columns or []] + [14]) + 44
    cell = min((width - left - 92) / max(breadth, 1), 420 / max(height, 1), 34)
    levels = _levels(values, low, high, diverging)
    cells = [
        tag("path", d=_runs(levels == level), fill_opacity=abs(level) / LEVELS,
            class_="cold" if level < 0 else "heat")
        for level in range(-LEVELS, LEVELS + 1) if level and (levels == level).any()
    ]  # fmt: skip
    place = f"translate({left:.1f} {top:.1f}) scale({cell:.4f})"
    right, bottom = left + breadth * cell, top + height * cell
    frame = f"M{left:.1f} {top:.1f}H{right:.1f}V{bottom:.1f}H{left:.1f}Z"
    parts = [
        tag("g", *cells, transform=place, shape_rendering="crispEdges"),
        tag("path", d=frame, class_="frame"),
    ]
    spans = (y_span or (0, max(height - 1, 1)), x_span or (0, max(breadth - 1, 1)))
    parts += _sides(rows, columns, spans, height, breadth, left, top, cell)
    parts += _colour_bar(low, high, diverging, right + 22, top, max(bottom - top, 90))
    below = bottom + (24 if columns else 42)
    parts.append(tag("text", x_label, x=(left + right) / 2, y=below, class_="mid"))
    parts.append(tag("text", y_label, x=8, y=top - 12 if columns is None else 42, class_="soft"))
    text = f"{height} by {breadth} cells from {number(low)} to {number(high)}. {y_label} {x_label}"
    return _picture(title, text, width, max(bottom, top + 90) + 56, parts)


def mask_map(title: str, allowed: ArrayLike, *, width: int = 440) -> Html:
    """Draw a boolean mask (queries, keys) as cells of two colours with a legend."""
    table = np.asarray(allowed, dtype=bool)
    height, breadth = table.shape
    left, top = 56.0, 58.0
    cell = min((width - left - 20) / max(breadth, 1), 420 / max(height, 1), 34)
    right, bottom = left + breadth * cell, top + height * cell
    lines = "".join(f"M0 {i}h{breadth}" for i in range(1, height))
    lines += "".join(f"M{j} 0v{height}" for j in range(1, breadth))
    parts = [
        tag("rect", x=left, y=top, width=right - left, height=bottom - top, class_="unseen"),
        tag(
            "g",
            tag("path", d=_runs(table), class_="heat"),
            tag("path", d=lines, class_="between"),
            transform=f"translate({left:.1f} {top:.1f}) scale({cell:.4f})",
        ),
        *_sides(None, None, ((0, height - 1), (0, breadth - 1)), height, breadth, left, top, cell),
        tag("text", "key", x=max((left + right) / 2, left + 40), y=bottom + 42, class_="mid"),
        tag("text", "query", x=8, y=top - 12, class_="soft"),
    ]
    place, below = left, bottom + 60
    for look, words in (("heat", "allowed"), ("unseen", "masked")):
        parts.append(tag("rect", x=place, y=below, width=15, height=15, class_=look))
        parts.append(tag("text", words, x=place + 22, y=below + 13))
        place += 22 + text_width(words, SIZE) + 18
    text = f"{table.sum()} of {height} × {breadth} pairs are allowed. query key"
    return _picture(title, text, width, below + 26, parts)


def confusion(title: str, labels: Sequence[str], counts: ArrayLike, *, width: int = 480) -> Html:
    """Draw a confusion matrix with counts and row shares: rows are true, columns predicted."""
    table = np.asarray(counts, dtype=np.float64)
    shares = table / np.maximum(table.sum(1, keepdims=True), 1)
    widest = max(text_width(shorten(label, NAMED), SIZE) for label in labels)
    left = widest + 24
    cell_width = min(max((width - left - 10) / len(labels), widest + 10), 170)
    width = max(width, math.ceil(left + cell_width * len(labels) + 10))
    cell_height = 64.0
    parts = [tag("text", "true ↓   predicted →", x=8, y=52, class_="soft")]
    for j, label in enumerate(labels):
        middle = left + cell_width * (j + 0.5)
        parts.append(tag("text", shorten(label, NAMED), x=middle, y=76, class_="mid"))
    for i, label in enumerate(labels):
        y = 86 + cell_height * i
        parts.append(tag("text", shorten(label, NAMED), x=left - 12, y=y + 37, class_="end"))
        for j in range(len(labels)):
            x = left + cell_width * j
            level = round(float(shares[i, j]) * LEVELS)
            on = " on" if level > LEVELS * 0.55 else ""
            parts.append(
                tag("rect", x=x + 1, y=y + 1, width=cell_width - 2, height=cell_height - 2, rx=4,
                    fill_opacity=max(level, 0.4) / LEVELS, class_="heat" if i == j else "cold")
            )  # fmt: skip
            middle = x + cell_width / 2
            parts.append(tag("text", f"{table[i, j]:,.0f}", x=middle, y=y + 29, class_="mid" + on))
            parts.append(tag("text", f"{shares[i, j]:.1%}", x=middle, y=y + 49, class_="mid" + on))
    text = "; ".join(
        f"{labels[i]} predicted as {labels[j]}: {table[i, j]:.0f}"
        for i in range(len(labels)) for j in range(len(labels))
    )  # fmt: skip
    return _picture(title, text, width, 96 + cell_height * len(labels), parts)


def attention_strip(tokens: Sequence[str], weights: ArrayLike, *, most: int = 150) -> Html:
    """Draw a text whose words are coloured by their weights (non-negative, one for each token).

    The average weight or less has no colour, sixteen times the average (or the total weight of a
    shorter text) the full colour; between them the scale is logarithmic. Uniform attention has
    therefore no colour. Texts are truncated after `most` words, with a note.

    >>> "w12" in attention_strip(["a", "good", "film"], [0, 1, 0])
    True
    >>> "w12" in attention_strip(["a", "good", "film"], [1, 1, 1])
    False
    """
    mass = np.asarray(weights, dtype=np.float64)
    mass = np.where(np.isfinite(mass), mass, 0)
    total = float(mass.sum()) or 1.0
    lift = mass / total * len(mass)
    full = max(2.0, min(FULL_LIFT, float(len(mass))))
    words = []
    for token, share, times in zip(tokens[:most], mass / total, lift[:most], strict=False):
        level = round(LEVELS * min(1.0, max(0.0, math.log(max(times, 1e-9)) / math.log(full))))
        hover = f"{share:.1%} of the attention, {times:.1f} × the average"
        words.append(tag("span", shorten(token, 40), class_=f"w{level}", title=hover))
    if len(tokens) > most:
        rest = (
            f"… and {len(tokens) - most} more words, {mass[most:].sum() / total:.0%} of the weight"
        )
        words.append(tag("span", rest, class_="cut"))
    return tag("p", join(words, " "), class_="strip", dir="ltr")


def strip_scale() -> Html:
    """Return a legend for the colours of `attention_strip`."""
    full = f"{FULL_LIFT:.0f} ×"
    steps = [(0, "average or less"), (3, "2 ×"), (6, "4 ×"), (9, "8 ×"), (LEVELS, full)]
    words = [tag("span", label, class_=f"w{level}") for level, label in steps]
    return tag("p", "Weight of a word over the average: ", join(words, " "), class_="strip key")


def _levels(
    values: NDArray[np.float64], low: float, high: float, diverging: bool
) -> NDArray[np.int64]:
    share = values / high if diverging else (values - low) / (high - low)
    return np.rint(np.nan_to_num(share, nan=0.0, posinf=0.0, neginf=0.0) * LEVELS).astype(np.int64)


def _runs(chosen: NDArray[np.bool_]) -> str:
    """Return the chosen cells as one path: each run of neighbours in a row is one rectangle."""
    path = []
    for row, line in enumerate(chosen):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
        for begin, end in edges.reshape(-1, 2):
            path.append(f"M{begin} {row}h{end - begin}v1h-{end - begin}z")
    return "".join(path)


def _sides(
    rows: Sequence[str] | None,
    columns: Sequence[str] | None,
    spans: tuple[tuple[float, float], tuple[float, float]],
    height: int,
    breadth: int,
    left: float,
    top: float,
    cell: float,
) -> list[Html]:
    """Draw the names of rows and columns, or round numbers if they have none."""
    bottom, parts = top + height * cell, []
    for i, name in enumerate(rows or []):
        y = top + (i + 0.5) * cell + 5
        parts.append(tag("text", shorten(name, NAMED), x=left - 8, y=y, class_="end"))
    for j, name in enumerate(columns or []):
        x = left + (j + 0.5) * cell + 4
        turn = f"rotate(-55 {x:.1f} {top - 8:.1f})"
        parts.append(tag("text", shorten(name, NAMED), x=x, y=top - 8, transform=turn))
    if rows is None:
        for tick, place in _numbered(spans[0], height):
            y = top + (place + 0.5) * cell + 5
            parts.append(tag("text", number(tick), x=left - 8, y=y, class_="end soft"))
    if columns is None:
        for tick, place in _numbered(spans[1], breadth):
            x = left + (place + 0.5) * cell
            parts.append(tag("text", number(tick), x=x, y=bottom + 20, class_="mid soft"))
    return parts


def _numbered(span: tuple[float, float], count: int) -> list[tuple[float, float]]:
    """Return round values between the first and the last of `count` cells, with their places."""
    low, high = span
    if high <= low:
        return []
    return [(tick, (tick - low) / (high - low) * (count - 1)) for tick in ticks(low, high, 6)]


def _colour_bar(
    low: float, high: float, diverging: bool, left: float, top: float, height: float
) -> list[Html]:
    count = 2 * LEVELS + 1 if diverging else LEVELS + 1
    shades = range(-LEVELS, LEVELS + 1) if diverging else range(LEVELS + 1)
    step = height / count
    parts = [
        tag("rect", x=left, y=top + height - (i + 1) * step, width=14, height=step + 0.3,
            fill_opacity=abs(shade) / LEVELS, class_="cold" if shade < 0 else "heat")
        for i, shade in enumerate(shades)
    ]  # fmt: skip
    box = f"M{left:.1f} {top:.1f}h14v{height:.1f}h-14z"
    parts.append(tag("path", d=box, class_="frame"))
    for value in ticks(low, high, 7):
        y = top + height * (1 - (value - low) / (high - low)) + 5
        parts.append(tag("text", number(value), x=left + 20, y=y, class_="soft"))
    return parts


def _picture(title: str, text: str, width: float, height: float, body: Sequence[Html]) -> Html:
    """Return an SVG with a visible title, and title and description for screen readers."""
    head = tag("text", shorten(title, int(width / (SIZE * 0.62))), x=8, y=20, class_="title")
    return framed(title, text, width, height, [head, *body])
