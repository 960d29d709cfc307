"""Kernel regression: attention with one number to learn, on a noisy sine or a table of one's own.

f(x) = Σᵢ K(x, xᵢ) yᵢ / Σᵢ K(x, xᵢ), Nadaraya 1964, Watson 1964: x asks, the xᵢ that were seen are
the keys, their yᵢ the values. The settings of the built-in points are those of Dive into Deep
Learning, section 11.2.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np

from regard.lab.labs import Say, Show
from regard.lab.labs.kernel_regression import memory as kernel_memory
from regard.lab.labs.kernel_regression import pictures as kernel_pictures
from regard.lab.labs.kernel_regression.arms import AVERAGE, LEARNED, Lab, compute
from regard.lab.labs.kernel_regression.points import KernelRegressionSettings, load
from regard.lab.labs.lab import Claim, Compared, MeasuringLab, Part, ReferenceTime, arm_row, claim
from regard.lab.reports.findings import Cell, Section, Table
from regard.lab.reports.scales import duration, number
from regard.lab.studies.statistics import Difference, arm_interval, judge
from regard.nn.models.kernel_regression import KERNELS

LOOP = 40  # held-out points of the double loop


@dataclass(frozen=True)
class Measured:
    """The fits, the table of errors, and the parts of the report."""

    lab: Lab
    table: Table
    parts: list[Part]


def measure(how: KernelRegressionSettings, say: Say, show: Show) -> Measured:
    """Read the points, fit every arm, search, and count many keys."""
    points = load(how)
    rows, held = len(points.x), len(points.new_x)
    say(f"{rows:,} points to learn from, {held:,} held out; {', '.join(points.names)} → "
        f"{points.target}")  # fmt: skip
    for note in points.notes:
        say(f"note: {note}")
    fitted = compute(points, how, show)
    table = judged(fitted)
    parts = [
        Part(first_section(fitted, table), [parity(fitted), *claims_of(fitted)]),
        Part(learning_section(fitted)),
    ]
    if points.x.shape[1] > 1:
        parts.append(Part(columns_section(fitted)))
    parts.append(Part(kernels_section(fitted)))
    if how.keys:
        show(1, 1, f"{how.keys:,} keys")
        parts.append(many_keys(how.keys))
    return Measured(fitted, table, parts)


def parity(lab: Lab) -> Claim:
    """Return row K2: the Gaussian by attention and by a double loop in float64."""
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
    exact = "differs from a double loop in float64 by at most"
    return claim(f"attention with the Gaussian score {exact} {worst:.1e}", worst, relative <= 1e-6)


def claims_of(lab: Lab) -> list[Claim]:
    """Yield row K3 and the claim about leaving one out."""
    (difference,) = compared(lab, [(LEARNED, lab.fixed)])
    claims = [claim(
        f"the learned w beats w = {lab.how.w:g} on what was held out: {percent(lab, LEARNED)} % of "
        f"the variance of {lab.points.target} is left, not {percent(lab, lab.fixed)} %",
        difference.mean, difference.low > 0,
    )]  # fmt: skip
    if len(lab.w) == 1:
        ratio = lab.w[0] / lab.grid.best[0]
        claims.append(claim(
            f"the learned w is within 10 % of the best of {len(lab.grid.tried)} on a grid: "
            f"{lab.w[0]:.3g} beside {lab.grid.best[0]:.3g}, {ratio - 1:+.1%}".replace("-", "−"),
            ratio, 1 / 1.1 <= ratio <= 1.1,
        ))  # fmt: skip
    else:
        claims.append(claim(
            f"the leave-one-out error of the learned w is within 2 % of the best of "
            f"{len(lab.grid.tried)} on a grid: {lab.grid.ratio:.3f} times it",
            lab.grid.ratio, lab.grid.ratio <= 1.02,
        ))  # fmt: skip
    return claims


def many_keys(keys: int) -> Part:
    """Measure seconds and memory of many keys, and of a quarter of them."""
    costs = [kernel_memory.measure(count) for count in (max(1, keys // 4), keys)]
    few, many = costs
    growth = float(np.log(max(many.extra_mb, 1e-9) / max(few.extra_mb, 1e-9)))
    growth /= float(np.log(many.keys / few.keys)) or 1.0
    rows: list[list[Cell]] = [
        [f"{c.keys:,}", c.seconds, c.extra_mb, 1e6 * c.extra_mb / c.keys] for c in costs
    ]
    whole = 4e-6 * kernel_memory.QUERIES * keys
    table = Table(
        f"{kernel_memory.QUERIES:,} queries at once",
        ["keys", "seconds", "MB beside the inputs", "bytes a key"],
        rows,
        f"The table of weights alone would take {number(whole)} MB.",
    )
    says = (
        "Each query looks at every key, but the weights are never all there: torch's fused kernel "
        "goes over the keys block by block. So memory grows with the keys, not with the pairs."
    )
    result = claim(
        f"{many.keys:,} keys fit in O(n) memory: {many.seconds:.2g} s and {many.extra_mb:.0f} MB "
        f"beside the inputs, growing with the keys to the power {growth:.2f}",
        many.extra_mb, growth <= 1.1,
    )  # fmt: skip
    return Part(Section("Many keys", [says], tables=[table]), [result])


def compared(lab: Lab, pairs: Sequence[tuple[str, str]]) -> list[Difference]:
    """Compare pairs of arms by the unexplained share at each held-out point; a positive mean is
    the first one's lead."""
    gains = {name: -lab.errors(name)[None] for pair in pairs for name in pair}
    return [replace(found, unit="of the variance") for found in judge(gains, pairs)]


def percent(lab: Lab, name: str) -> str:
    """Return what an arm leaves of y's variance, in percent."""
    return f"{100 * lab.errors(name).mean():.1f}"


def judged(lab: Lab) -> Table:
    """Return every arm with its error and interval, the least first."""
    rows: list[list[Cell]] = []
    several = lab.points.x.shape[1] > 1
    for name, fitted in lab.fitted.items():
        mean, low, high = arm_interval(lab.errors(name)[None])
        widthless = name in (AVERAGE, "dot", "cosine", "k-nearest")
        widths = [] if widthless else getattr(fitted.model, "widths_", [])
        w = [1 / float(h) for h in widths] or [np.nan]
        shown: Cell = ", ".join(map(number, w)) if several else w[0]
        cells: list[Cell] = [
            100 * mean,
            100 * low,
            100 * high,
            shown,
            fitted.seconds,
            fitted.arm.chosen,
        ]
        rows.append([name, *cells])
    rows.sort(key=lambda row: float(row[1]))
    return Table(
        f"What is left of the variance of {lab.points.target} at {len(lab.points.new_y):,} "
        "held-out points, %",
        ["arm", "left %", "low", "high", "w", "seconds", "chosen"],
        rows,
        "Mean square error over the variance of y; 95 % intervals from t over the held-out points. "
        "w is one over the width, one a column, in the columns' own units.",
    )


def first_section(lab: Lab, table: Table) -> Section:
    """Return the fits and the errors of all arms."""
    says = [
        "A kernel regression answers with a mean of the y that were seen, each weighed by how near "
        "its x is: f(x) = Σ K(x, xᵢ) yᵢ / Σ K(x, xᵢ) (Nadaraya 1964; Watson 1964). It is "
        "attention: x is the query, the xᵢ are keys, the yᵢ values. With the Gaussian kernel the "
        "weights are softmax(−(w (x − xᵢ))² / 2), where w is one over the width.",
        *lab.points.notes,
    ]
    if not lab.points.built_in and lab.how.standardize is not False:
        says.append(
            f"Columns differ in their units, so w = {lab.how.w:g} is per standard deviation."
        )
    if not lab.points.small:
        says.append(
            f"With {len(lab.points.x):,} points not every arm may ask everything: "
            f"{len(lab.points.new_x):,} points are held out, {lab.grid.rows:,} ask in the grid "
            "search, bounded kernels take the width that the Gaussian has learned, and "
            "scikit-learn's ridge learns from a share."
        )
    return Section("Who predicts best", says, kernel_pictures.fits(lab, table), [table])


def learning_section(lab: Lab) -> Section:
    """Return how w was learned, and why one is left out."""
    says = [
        "w is learned by gradient on the squared error of each point as all the others predict it. "
        "A point that may ask itself is its own nearest neighbour: the error then falls to 0 as w "
        "grows, and nothing is learned.",
    ]
    return Section("Learning w", says, kernel_pictures.learning(lab))


def columns_section(lab: Lab) -> Section:
    """Return which column matters."""
    base = float(lab.errors(LEARNED).mean())
    rows = [
        [name, w, float(h), w * s, 100 * base, 100 * without]
        for name, w, h, s, without in zip(
            lab.points.names, lab.w, lab.learned.widths_, lab.points.scale, lab.without, strict=True
        )
    ]
    table = Table(
        "Columns",
        ["column", "w", "width", "w per standard deviation", "left %", "left % without it"],
        rows,
        "w and width in the column's own units. Without it: its w at 0, the others as they are.",
    )
    says = (
        f"{matters(lab)} A column with a large w per standard deviation decides who counts as "
        "near; one whose w goes to 0 has no say."
    )
    return Section("Which column matters", [says], kernel_pictures.columns(lab), [table])


def matters(lab: Lab) -> str:
    """Return the sentence about the column that the prediction rests on."""
    base = 100 * float(lab.errors(LEARNED).mean())
    place = int(np.argmax(lab.without))
    least = int(np.argmin(lab.without))
    return (
        f"{lab.points.names[place]} matters most: without it {100 * lab.without[place]:.1f} % of "
        f"the variance is left, not {base:.1f} %; without {lab.points.names[least]} "
        f"{100 * lab.without[least]:.1f} %."
    )


def kernels_section(lab: Lab) -> Section:
    """Return the kernels by formula and by shape."""
    rows = [[name, kernel.formula] for name, kernel in KERNELS.items()]
    table = Table("Kernels", ["kernel", "weights"], rows)
    says = (
        "The Gaussian never forgets a point; Epanechnikov (1969) and the boxcar end, and where "
        "nothing is in their reach the answer is the mean of y. The inner product of dot looks for "
        "what lies farthest out on x's side, near x or not. The cosine sees the direction of x "
        "alone, so that in one dimension only its sign counts, and its softmax hardly leaves the "
        "average. k-nearest reaches as far as it must for k points."
    )
    return Section("Kernels", [says], kernel_pictures.shapes(), [table])


def answer(measured: Measured) -> str:
    """Return what w is learned, and what each arm leaves of the variance."""
    lab, best = measured.lab, measured.table.rows[0]
    w = ", ".join(
        f"{value:.3g}" + (f" for {name}" if len(lab.w) > 1 else "")
        for name, value in zip(lab.points.names, lab.w, strict=True)
    )
    steps = lab.learned.history_[-1].number
    says = (
        f"By gradient, {steps} steps in {duration(lab.fitted[LEARNED].seconds)}, w becomes {w}; "
        f"{percent(lab, LEARNED)} % of the variance of {lab.points.target} is left at "
        f"{len(lab.points.new_y):,} held-out points; w = {lab.how.w:g} leaves "
        f"{percent(lab, lab.fixed)} %, the average {percent(lab, AVERAGE)} %. Least of all leaves "
        f"{best[0]}: {float(best[1]):.1f} %."
    )
    return f"{says} {matters(lab)}" if lab.without else says


def rows_of(measured: Measured) -> Compared:
    """Return the arms and how the learned w stands to each, for ``--json``."""
    lab = measured.lab
    arms = [
        arm_row(name, 1, arm_interval(lab.errors(name)[None]), seconds=fitted.seconds,
                parameters=fitted.arm.parameters)
        for name, fitted in lab.fitted.items()
    ]  # fmt: skip
    verdicts = compared(lab, [(LEARNED, name) for name in lab.fitted if name != LEARNED])
    return Compared.of("held-out mean square error over the variance of y", arms, verdicts)


def following(measured: Measured) -> str:
    """Return the command for a table of one's own, or for another seed."""
    if measured.lab.points.built_in:
        return "regard lab kernel-regression --data FILE.csv --x a,b --y c"
    return f"regard lab kernel-regression --data {quote(measured.lab.how.data)} seed=1"


LAB = MeasuringLab(
    settings=KernelRegressionSettings,
    reference_time=ReferenceTime(
        15, "two cores", scales_with=("steps",), steps=("steps",),
        note="with a table of 100,000 rows of your own, a minute",
    ),
    measure=measure,
    answer=answer,
    next=following,
    compared=rows_of,
)  # fmt: skip
