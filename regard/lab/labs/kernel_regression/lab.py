"""Kernel regression: attention with one learned number, on a noisy sine or the user's table.

f(x) = Σᵢ K(x, xᵢ) yᵢ / Σᵢ K(x, xᵢ), Nadaraya 1964, Watson 1964: x is the query, the training xᵢ are
the keys, their yᵢ the values. The settings of the built-in points are those of Dive into Deep
Learning, section 11.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any

import numpy as np

from regard.lab.labs import Say, Show
from regard.lab.labs.kernel_regression import memory as kernel_memory
from regard.lab.labs.kernel_regression import pictures as kernel_pictures
from regard.lab.labs.kernel_regression.arms import AVERAGE, LEARNED, Lab, compute
from regard.lab.labs.kernel_regression.points import KernelRegressionSettings, load
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime, arm_row, record_of
from regard.lab.reports.findings import Cell
from regard.lab.reports.scales import number
from regard.lab.studies.statistics import Difference, judge
from regard.lab.tasks.estimates import arm_interval
from regard.nn.models.kernel_regression import KERNELS

LOOP = 40  # held-out points of the double loop


@dataclass(frozen=True)
class Measured:
    """The fits and the findings."""

    lab: Lab
    findings: Findings


def measure(how: KernelRegressionSettings, say: Say, show: Show) -> Measured:
    """Read the points, fit every arm, search for w, and measure many keys."""
    points = load(how)
    rows, held = len(points.x), len(points.new_x)
    say(f"{rows:,} points to learn from, {held:,} held out; {', '.join(points.names)} → "
        f"{points.target}")  # fmt: skip
    for note in points.notes:
        say(f"note: {note}")
    fitted = compute(points, how, show)
    parts = [described(fitted)]
    if len(points.names) > 1:
        parts.append(columns(fitted))
    if how.keys:
        show(1, 1, f"{how.keys:,} keys")
    parts.append(many_keys(how.keys) if how.keys else Findings({}, {"many": None}))
    return Measured(fitted, Findings.joined(parts))


def parity(lab: Lab) -> tuple[float, bool]:
    """Return row K2, a claim: attention and a double loop in float64 give the same Gaussian."""
    points, said = lab.points, lab.fitted[lab.fixed].said[:LOOP]
    worst = 0.0
    for x, found in zip(points.new_x[:LOOP], said, strict=True):
        scores = [-sum(((a - b) / h) ** 2 for a, b, h in zip(x, key, points.unit, strict=True)) / 2
                  for key in points.x.tolist()]  # fmt: skip
        top = max(scores)
        weights = [np.exp(score - top) for score in scores]
        total = sum(w * y for w, y in zip(weights, points.y.tolist(), strict=True))
        worst = max(worst, abs(total / sum(weights) - found))
    relative = worst / (float(np.abs(points.y).max()) or 1.0)
    return worst, relative <= 1e-6


def described(lab: Lab) -> Findings:
    """Return the errors of all arms, how w was learned, and the kernels; row K3 is `learned`."""
    points, how, grid = lab.points, lab.how, lab.grid
    (difference,) = compared(lab, [(LEARNED, lab.fixed)])
    several, ratio = len(lab.w) > 1, lab.w[0] / grid.best[0]
    near = (grid.ratio, grid.ratio <= 1.02) if several else (ratio, 1 / 1.1 <= ratio <= 1.1)
    rows = judged(lab)
    scale = points.scale if several else np.ones(1)
    return Findings(
        {
            "parity": parity(lab),
            "learned": (difference.mean, difference.low > 0),
            "grid": near,
        },
        {
            "several": several, "names": points.names, "target": points.target,
            "points": len(points.x), "held_out": len(points.new_y), "notes": points.notes,
            "built_in": points.built_in, "small": points.small, "fixed": lab.fixed,
            "learned": LEARNED, "w": lab.w, "fixed_w": how.w, "best_w": grid.best[0],
            "fixed_shown": 1 / float(points.unit[0]),
            "scaled_w": [w * float(s) for w, s in zip(lab.w, scale, strict=True)],
            "per_deviation": not points.built_in and how.standardize is not False,
            "tried": len(grid.tried), "grid_rows": grid.rows, "steps": how.steps,
            "steps_taken": lab.learned.history_[-1].number,
            "seconds": lab.fitted[LEARNED].seconds, "best": rows[0],
            "drawn": min(kernel_pictures.SQUARE, len(points.x)),
            "learned_left": left(lab, LEARNED), "fixed_left": left(lab, lab.fixed),
            "average_left": left(lab, AVERAGE),
        },
        {
            **kernel_pictures.fits(lab, rows),
            **kernel_pictures.learning(lab),
            "shapes": kernel_pictures.shapes(),
        },
        {
            "left": (["arm", "left %", "low", "high", "w", "seconds", "chosen"], rows),
            "kernels": (
                ["kernel", "weights"], [[name, one.formula] for name, one in KERNELS.items()]
            ),
        },
    )  # fmt: skip


def many_keys(keys: int) -> Findings:
    """Measure seconds and memory of many keys, and of a quarter of them."""
    costs = [kernel_memory.measure(count) for count in (max(1, keys // 4), keys)]
    few, many = costs
    growth = float(np.log(max(many.extra_mb, 1e-9) / max(few.extra_mb, 1e-9)))
    growth /= float(np.log(many.keys / few.keys)) or 1.0
    rows: list[list[Cell]] = [
        [f"{c.keys:,}", c.seconds, c.extra_mb, 1e6 * c.extra_mb / c.keys] for c in costs
    ]
    whole = 4e-6 * kernel_memory.QUERIES * keys
    return Findings(
        {"memory": (many.extra_mb, growth <= 1.1)},
        {"many": many, "growth": growth, "queries": kernel_memory.QUERIES, "whole_mb": whole},
        tables={"many-keys": (["keys", "seconds", "MB beside the inputs", "bytes a key"], rows)},
    )


def compared(lab: Lab, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """Compare pairs of arms by the unexplained share at each held-out point.

    A positive mean is the lead of the first arm."""
    gains = {name: -lab.errors(name)[None] for pair in pairs for name in pair}
    return [replace(found, unit="of the variance") for found in judge(gains, pairs)]


def left(lab: Lab, name: str) -> float:
    """Return the share of y's variance that an arm leaves unexplained."""
    return float(lab.errors(name).mean())


def judged(lab: Lab) -> list[list[Cell]]:
    """Return every arm with its error and interval, the smallest error first."""
    rows: list[list[Cell]] = []
    several = lab.points.x.shape[1] > 1
    for name, fitted in lab.fitted.items():
        mean, low, high = arm_interval(lab.errors(name)[None])
        widthless = name in (AVERAGE, "dot", "cosine", "k-nearest")
        widths = [] if widthless else getattr(fitted.model, "widths_", [])
        w = [1 / float(h) for h in widths] or [np.nan]
        shown: Cell = ", ".join(map(number, w)) if several else w[0]
        ends = (100 * mean, 100 * low, 100 * high)
        rows.append([name, *ends, shown, fitted.seconds, fitted.arm.chosen])
    rows.sort(key=lambda row: float(row[1]))
    return rows


def columns(lab: Lab) -> Findings:
    """Return the findings on the influence of each column."""
    base = left(lab, LEARNED)
    rows = [
        [name, w, float(h), w * s, 100 * base, 100 * without]
        for name, w, h, s, without in zip(
            lab.points.names, lab.w, lab.learned.widths_, lab.points.scale, lab.without, strict=True
        )
    ]
    heads = ["column", "w", "width", "w per standard deviation", "left %", "left % without it"]
    return Findings(
        {},
        {"most": int(np.argmax(lab.without)), "least": int(np.argmin(lab.without)),
         "without": lab.without, "residual_columns": kernel_pictures.RESIDUALS},
        kernel_pictures.columns(lab),
        {"columns-table": (heads, rows)},
    )  # fmt: skip


def rows_of(measured: Measured) -> dict[str, Any]:
    """Return the arms and the comparison of the learned w with each, for ``--json``."""
    lab = measured.lab
    arms = [
        arm_row(name, 1, arm_interval(lab.errors(name)[None]), seconds=fitted.seconds,
                parameters=fitted.arm.parameters)
        for name, fitted in lab.fitted.items()
    ]  # fmt: skip
    verdicts = compared(lab, [(LEARNED, name) for name in lab.fitted if name != LEARNED])
    return record_of("held-out mean square error over the variance of y", arms, verdicts)


def following(measured: Measured) -> str:
    """Return the command for the user's own table, or for another seed."""
    if measured.lab.points.built_in:
        return "regard lab kernel-regression --data FILE.csv --x a,b --y c"
    how = measured.lab.how
    given = {"--data": how.data, "--x": how.x, "--y": how.y}
    words = [word for pair in given.items() if pair[1] for word in pair]
    return f"regard lab kernel-regression {join(words)} seed={how.seed + 1}"


LAB = MeasuringLab(
    settings=KernelRegressionSettings,
    reference_time=ReferenceTime(
        15, "two cores", scales_with=("steps",), steps=("steps",),
        note="with a table of 100,000 rows of your own, a minute",
    ),
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    findings=lambda measured: measured.findings,
    next=following,
    compared=rows_of,
)  # fmt: skip
