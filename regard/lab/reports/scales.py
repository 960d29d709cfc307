"""Axis scales: round ticks, coordinates, number formats."""

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TIMES = (
    *(0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1200, 3600, 18_000, 86_400),
    *(5 * 86_400, 20 * 86_400, 100 * 86_400),
)


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic map of values `low` … `high` to coordinates `begin` … `end`.

    >>> Scale(0, 10, 100, 200)(5)
    150.0
    >>> Scale(1, 100, 0, 200, log=True)(10)
    100.0
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(value), math.log(low), math.log(high)
        share = (value - low) / (high - low)
        return self.begin + min(1.0, max(0.0, share)) * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values inside the scale."""
        return log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, most)


def spanning(values: Iterable[float], begin: float, end: float, *, log: bool = False) -> Scale:
    """Return a scale with round ends that covers all finite values.

    If all values are equal, it extends them by a tenth on both sides.

    >>> spanning([0.12, 0.87], 0, 1).low, spanning([0.12, 0.87], 0, 1).high
    (0.0, 1.0)
    >>> spanning([3, 450], 0, 1, log=True).low, spanning([3, 450], 0, 1, log=True).high
    (2.0, 500.0)
    """
    finite = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(finite), max(finite)) if finite else (1.0, 10.0)
    if log:
        low, high = _round_down(low), _round_up(high)
        return Scale(low, high if high > low else 10 * low, begin, end, log=True)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        room = abs(low) * 0.1 or 1.0
        low, high = low - room, high + room
    step = _step(low, high, 6)
    low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
    return Scale(low, high, begin, end)


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


def log_ticks(low: float, high: float) -> list[float]:
    """Return 1, 2 and 5 times each power of ten, or only the powers if those are too many.

    >>> log_ticks(1, 50)
    [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]
    >>> log_ticks(0.01, 1000)
    [0.01, 0.1, 1.0, 10.0, 100.0, 1000.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    firsts: Sequence[int] = (1, 2, 5) if high / low <= 200 else (1,)
    values = [float(f"{first}e{power}") for power in powers for first in firsts]
    return [v for v in values if low * (1 - 1e-9) <= v <= high * (1 + 1e-9)]


def spanning_time(seconds: Iterable[float], begin: float, end: float) -> tuple[Scale, list[float]]:
    """Return a logarithmic scale for durations with ticks at seconds, minutes, hours and days.

    >>> spanning_time([3.0, 700.0], 0, 1)[1]
    [2, 5, 10, 30, 60, 300, 1200]
    """
    positive = [value for value in seconds if value > 0 and math.isfinite(value)] or [1.0]
    first = max((i for i, t in enumerate(TIMES) if t <= min(positive)), default=0)
    last = min((i for i, t in enumerate(TIMES) if t >= max(positive)), default=len(TIMES) - 1)
    last = max(last, first + 1) if first + 1 < len(TIMES) else last
    scale = Scale(TIMES[first], TIMES[last], begin, end, log=True)
    return scale, list(TIMES[first : last + 1])


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


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(f * power for f in (1, 2, 5) if f * power <= value * (1 + 1e-9))


def _round_up(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return min(f * power for f in (1, 2, 5, 10) if f * power >= value * (1 - 1e-9))


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
