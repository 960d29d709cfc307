"""Sine positions: their products, their wavelengths, and the rotation that shifts them.

000's question 3 (pe·pe), 002's rotation; the formula is `regard.attention.positions.sines`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.positions.sines import rotation, sinusoidal
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import film
from regard.lab.reports.maps import heat_map
from regard.lab.reports.markup import Html
from regard.lab.reports.scales import number

LIMIT = 1e-12
DRAWN = 128  # positions of the heat maps
HANDS = 4
TURNS = 24


@dataclass(frozen=True)
class Turned:
    """The error ‖M_δ p_i − p_{i+δ}‖: the largest over i and columns, and for each i."""

    width: int
    shift: int
    most: float
    by_place: Float[Tensor, " places"]
    alone: float  # the last column of an odd width, which has no partner; NaN for an even one


def turned(width: int, shift: int, farthest: int) -> Turned:
    """Compare M_δ p_i with p_{i+δ} wherever both i and i + δ lie in 0 … ``farthest``."""
    table = sinusoidal(torch.arange(farthest + 1), width, torch.float64)
    size = farthest + 1 - abs(shift)
    here, there = table[max(0, -shift) :][:size], table[max(0, shift) :][:size]
    missed, even = (here @ rotation(shift, width).T - there).abs(), width - width % 2
    by_place = missed[:, :even].amax(1) if even else missed.new_zeros(size)
    alone = float(missed[:, -1].max()) if width % 2 else math.nan
    return Turned(width, shift, float(by_place.max()), by_place, alone)


def sines(width: int, widths: Sequence[int], shifts: Sequence[int], farthest: int) -> Findings:
    """Return the figures of sine positions, and the error of the rotation that shifts them."""
    table = sinusoidal(torch.arange(DRAWN), width, torch.float64)
    rotations = [turned(w, s, farthest) for w in widths for s in shifts]
    most = max(one.most for one in rotations)
    products = table @ table.T
    diagonals = [products.diagonal(d) for d in range(DRAWN)]
    uneven = max(float(d.max() - d.min()) for d in diagonals)
    first = Findings(
        {"rotation": (most, most <= LIMIT), "products": (uneven, uneven <= 1e-10)},
        {"farthest": farthest, "widths": len(widths), "shifts": len(shifts), "limit": LIMIT,
         "width": width},
        _formula(table, products),
    )  # fmt: skip
    return Findings.joined([first, _rotation(rotations)])


def _formula(table: Tensor, products: Tensor) -> dict[str, Html]:
    """Return charts of the positions, their products and their wavelengths."""
    width = table.shape[1]
    lengths = {w: wavelengths(w) for w in sorted({max(2, width // 2), width, 2 * width})}
    waves = line_chart(
        "Wavelengths: from 2π to nearly 10,000 · 2π positions",
        [
            Series(f"width {w}", [2 * j for j in range(len(length))], length, look=i)
            for i, (w, length) in enumerate(lengths.items())
        ],
        x_label="column 2j", y_label="wavelength, positions", log_y=True,
    )  # fmt: skip
    return {
        "positions": heat_map(
            f"p: sine positions of width {width}", table, x_label="column", y_label="position i",
            diverging=True,
        ),
        "products": heat_map(
            f"pe·pe: p_i · p_j at width {width}", products, x_label="position j",
            y_label="position i",
        ),
        "wavelengths": waves,
    }  # fmt: skip


def wavelengths(width: int) -> list[float]:
    """Return 2π · 10000^(2j/d) of each pair of columns.

    >>> [round(length) for length in wavelengths(4)]
    [6, 628]
    """
    return [2 * math.pi * 10_000 ** (2 * j / width) for j in range(width // 2)]


def _rotation(found: Sequence[Turned]) -> Findings:
    """Return charts and the table of the rotation."""
    small, shift = 16, 5
    longest = max(found, key=lambda one: one.width)
    size = len(longest.by_place)
    octaves = [2**k for k in range(size.bit_length()) if 2**k < size]
    errors = [float(longest.by_place[k : 2 * k].max()) for k in octaves]
    grows = line_chart(
        f"What M_δ p_i misses p_(i+δ) by, width {longest.width}, δ = {longest.shift}",
        [
            Series("error", octaves, errors, dots=True),
            Series("two roundings", octaves, [k * 2**-52 for k in octaves], look=1),
            Series("aim", octaves, [LIMIT] * len(octaves), look=2),
        ],
        x_label="position i", y_label="largest error from i to 2i", log_x=True, log_y=True,
    )  # fmt: skip
    hands = film("Four pairs of columns turning",
                 [(f"position {i}", clock(i, small)) for i in range(TURNS + 1)])  # fmt: skip
    return Findings(
        {},
        figures={
            "rotation": heat_map(
                f"M_δ for δ = {shift}, width {small}", rotation(shift, small),
                x_label="column of p_i", y_label="column of p_(i+δ)", diverging=True,
            ),
            "clock": hands,
            "errors": grows,
        },
        tables={
            "rotations": (
                ["width", "shift δ", "largest error", "largest error, last odd column"],
                [[str(one.width), one.shift, one.most, one.alone] for one in found],
            )
        },
    )  # fmt: skip


def clock(place: int, width: int) -> Html:
    """Return the first pairs of columns of a position as hands: (sin, cos) of each."""
    hands = sinusoidal(torch.tensor(place), width, torch.float64)[: 2 * HANDS].tolist()
    round_ = [2 * math.pi * i / 72 for i in range(73)]
    rim = Series("", [math.cos(a) for a in round_], [math.sin(a) for a in round_], faint=True)
    lengths = wavelengths(width)
    return line_chart(
        f"Position {place}",
        [rim]
        + [
            Series(f"pair {j}: λ = {number(lengths[j])}", [0, hands[2 * j]], [0, hands[2 * j + 1]],
                   look=j)
            for j in range(HANDS)
        ],
        x_label="p[i, 2j], the sine", y_label="p[i, 2j+1], the cosine", width=560, height=466,
    )  # fmt: skip
