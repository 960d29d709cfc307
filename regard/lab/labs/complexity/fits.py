"""Exponents and crossings fitted to the measurements of the lab ``complexity``."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.analysis.growth import crossing, exponent
from regard.lab.labs.complexity.layers import Size, skips_blocks
from regard.lab.labs.complexity.measures import Measured
from regard.lab.reports.scales import rounded

#: A window's order of cost is fitted to sequences of at least this many windows.
MANY = 16
#: The order of cost in the table, and its exponents of n and d.
ORDERS: dict[str, tuple[str, int, int]] = {
    "cnn": ("O(k·n·d²)", 1, 2),
    "rnn": ("O(n·d²)", 1, 2),
    "self-attention": ("O(n²·d)", 2, 1),
    "linformer": ("O(r·n·d)", 1, 1),
    "window": ("O(w·n·d)", 1, 1),
}


@dataclass(frozen=True)
class Fit:
    """Exponents of a layer's counted operations in n, d and k, and those of the table.

    `lengths`: where the one in n was fitted.
    """

    name: str
    order: str
    table: tuple[int, int, int | None]
    counted: tuple[float, float, float | None]
    lengths: Sequence[int]

    @property
    def off(self) -> float:
        """The largest difference from an exponent of the table."""
        pairs = zip(self.counted, self.table, strict=True)
        return max(abs(a - b) for a, b in pairs if a is not None and b is not None and a == a)

    @property
    def says(self) -> str:
        """The counted exponents."""
        return _powers(self.counted, "{:.2f}")

    @property
    def table_says(self) -> str:
        """The exponents of the table."""
        return _powers(self.table, "{}")


@dataclass(frozen=True)
class Crossing:
    """The length from which `ours` is cheaper than `theirs`, by operations and by time.

    `times`: for each pass the length, and the earliest and latest that its interval allows. 0: at
    every length; infinite: at none.
    """

    ours: str
    theirs: str
    operations: float
    times: Mapping[str, tuple[float, float, float]]


def briefly(
    at: float, lengths: Sequence[int], ends: tuple[float, float] = (math.nan, math.nan)
) -> str:
    """Return the length and its interval for a cell of a table.

    >>> briefly(1234, [128, 2048], (0, 1390)), briefly(math.inf, [128, 2048])
    ('1,200 [≤ 128, 1,400]', '> 2,048')
    """

    def one(place: float) -> str:
        if place == 0:
            return f"≤ {lengths[0]:,}"
        return f"> {lengths[-1]:,}" if place == math.inf else rounded(place)

    known = [one(end) for end in ends if not math.isnan(end)]
    return one(at) + (f" [{', '.join(known)}]" if set(known) - {one(at)} else "")


def fit(measured: Measured, name: str) -> Fit:
    """Return the exponents of a layer's counted operations, and those of the table.

    Those of a window are fitted at lengths of at least `MANY` windows at which hidden blocks are
    skipped. Shorter sequences have no clear order: near its ends a window sees fewer keys, which is
    w/2n of the cost.
    """
    settings, counted = measured.settings, measured.counted
    used = list(range(len(settings.lengths)))
    if name == "window":
        used = [i for i in used if is_linear(settings.size(settings.lengths[i]))]
    order, of_n, of_d = ORDERS[name]
    lengths = [settings.lengths[i] for i in used]
    over_n = math.nan
    if len(lengths) > 1:
        over_n = exponent(lengths, [counted.over_n[name][i] for i in used])
    return Fit(
        name,
        order,
        (of_n, of_d, 1 if name == "cnn" else None),
        (
            over_n,
            exponent(settings.widths, counted.over_d[name]),
            exponent(settings.kernels, counted.over_k) if name == "cnn" else None,
        ),
        lengths,
    )


def is_linear(size: Size) -> bool:
    """Return whether a window's cost is in proportion to the length."""
    return size.n >= MANY * size.window and skips_blocks(size)


def cross(measured: Measured, ours: str, theirs: str) -> Crossing:
    """Return the length from which one layer is cheaper than another, by operations and by time."""
    lengths, counted = measured.settings.lengths, measured.counted.layers

    def by_time(how: str) -> tuple[float, float, float]:
        ratios, one = measured.ratios(how, ours, theirs), [1.0] * len(lengths)
        at, early, late = (crossing(lengths, side, one) for side in zip(*ratios, strict=True))
        return at, early, late

    return Crossing(
        ours,
        theirs,
        crossing(lengths, counted[ours], counted[theirs]),
        {how: by_time(how) for how in measured.settings.passes},
    )


def _powers(values: Sequence[float | None], form: str) -> str:
    powers = zip("ndk", values, strict=True)
    return " ".join(f"{x}^{form.format(p)}" for x, p in powers if p is not None and p == p)
