"""Round ticks, widths of text, places of labels, number formats."""

import math
import unicodedata
from collections.abc import Sequence


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return at most `most` round values from low to high, in steps of 1, 2 or 5 times 10ⁿ.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    >>> ticks(83.2, 91.7)
    [84.0, 86.0, 88.0, 90.0]
    """
    step = _step(low, high, most)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def number(value: float) -> str:
    """Format a number for a table or an axis: three significant digits, with k, M, G or T.

    >>> [number(v) for v in (0, 0.25, 12.0, 1234, 2_500_000, 1e-5)]
    ['0', '0.25', '12', '1.23k', '2.5M', '1e-05']
    """
    if not math.isfinite(value):
        return "–"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g}{letter}".replace("-", "−")
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 1e-4 or not value else f"{value:.0e}"


def rounded(value: float) -> str:
    """Return the number with two significant figures and commas.

    >>> rounded(1234.5), rounded(67.8), rounded(4.56)
    ('1,200', '68', '4.6')
    """
    places = 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, places):,.{max(places, 0)}f}"


def duration(seconds: float) -> str:
    """Format a duration in s, min, h or d.

    >>> [duration(s) for s in (0.042, 4.21, 75, 5400, 200_000)]
    ['0.042 s', '4.2 s', '75 s', '1.5 h', '2.3 d']
    """
    if not math.isfinite(seconds):
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size or seconds >= size > 60 or seconds == size:
            return f"{seconds / size:.1f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"


def forecast(typical: float, most: float) -> str:
    """Format the duration of work that lies ahead.

    >>> forecast(100, 1800)
    'typically 100 s, at most 30 min'
    """
    return f"typically {duration(typical)}, at most {duration(most)}"


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in the widest common typeface, in the units of `size`.

    >>> text_width("mm", 10) > text_width("ii", 10)
    True
    """
    return size * sum(_char_width(char) for char in text)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move labels by the least amount that leaves `gap` between any two, inside low … high.

    >>> spread([10, 11, 40], 8, 0, 100)
    [6.5, 14.5, 40.0]
    """
    groups: list[tuple[float, list[int]]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        middle, members = float(places[i]), [i]
        while True:
            half = gap * (len(members) - 1) / 2
            middle = max(min(middle, high - half), low + half)
            if (
                not groups
                or middle - groups[-1][0] >= gap * (len(members) + len(groups[-1][1])) / 2
            ):
                break
            before, others = groups.pop()
            total = len(others) + len(members)
            middle = (before * len(others) + middle * len(members)) / total
            members = others + members
        groups.append((middle, members))
    moved = [0.0] * len(places)
    for middle, members in groups:
        for rank, i in enumerate(members):
            moved[i] = middle + gap * (rank - (len(members) - 1) / 2)
    return moved


def _step(low: float, high: float, most: int) -> float:
    rough = (high - low) / max(most - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    return next(
        f * power for f in (1, 2, 5, 10, 20) if (high - low) / (f * power) <= most - 1 + 1e-9
    )


def _char_width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.0
    if unicodedata.combining(char):
        return 0.0
    if char in "mwMW@%":
        return 0.9
    if char in "iljtfr.,:;|!'() []":
        return 0.38
    return 0.68 if char.isupper() else 0.62
