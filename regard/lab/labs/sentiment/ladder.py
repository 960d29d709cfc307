"""Sections of the sentiment report: the gain and cost of each step of the ladder, and depth."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.lab.labs.comparison import AHEAD, Result, points_of
from regard.lab.labs.lab import Claim, claim
from regard.lab.labs.sentiment.plan import BUILT_ON, LAYERED, RESIDUALS, at
from regard.lab.reports.answer import percent
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.figures import Row, Series, interval_chart, line_chart
from regard.lab.reports.findings import Cell, Figure, Section, Table
from regard.lab.reports.scales import duration
from regard.lab.studies.result import claimed

NEVER_ALIKE = {"model", "seed", "task"}


def changes(arm: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two runs differ, each with its two values.

    >>> changes({"pool": "cls", "width": 8, "seed": 1}, {"pool": "mean", "width": 8, "seed": 0})
    ['pool: mean → cls']
    """
    keys = [key for key in base if key in arm and key not in NEVER_ALIKE]
    return [f"{key}: {base[key]} → {arm[key]}" for key in keys if arm[key] != base[key]]


def rungs(result: Result) -> list[tuple[Evidence, Evidence, Mapping[str, Any]]]:
    """Return each compared step of the ladder: its arm, the arm it builds on, and the verdict."""
    arms = {arm.name: arm for arm in result.arms if arm.config}
    return [
        (arms[rung], arms[base], verdict)
        for rung, base in BUILT_ON.items()
        if {rung, base} <= arms.keys() and (verdict := result.verdict(rung, base))
    ]


def section(result: Result) -> list[Section]:
    """Return the picture and the table of the steps, or nothing if none was compared."""
    steps = rungs(result)
    if not steps:
        return []
    gains = []
    for arm, base, verdict in steps:
        gain, low, high = (100 * float(verdict[key]) for key in ("difference", "low", "high"))
        gains.append(Row(arm.name, gain, low, high, arm.family, (), arm.trained and base.trained))
    chart = interval_chart("Gain of each step", gains, x_label="points", lines={"no gain": 0.0})
    caption = "Each arm less the arm it builds on, paired by seed, with 95 % intervals."
    return [Section("What does each step add?", [], [Figure(chart, caption)], [table(steps)])]


def table(steps: Sequence[tuple[Evidence, Evidence, Mapping[str, Any]]]) -> Table:
    """Return each step compared with the arm it builds on: change, gain, accuracy and cost."""
    rows: list[list[Cell]] = []
    for arm, base, verdict in steps:
        changed = "; ".join(changes(arm.config, base.config))
        mflop = round(arm.number("flops") / 1e6, 2)
        parameters = f"{arm.number('parameters'):,.0f}"
        cost = [f"{duration(base.number('seconds'))} → {duration(arm.number('seconds'))}"]
        measured = [percent(arm.mean), *points_of(verdict), *cost, parameters, mflop]
        rows.append([arm.name, base.name, changed, *measured])
    columns = ["arm", "built on", "change", "accuracy, %", "points", "95 %", "p (Holm)"]
    columns += ["time of a seed", "parameters", "MFLOP"]
    note = (
        "Changes are read from the settings of the runs. Points: the arm less the one it is built "
        "on. MFLOP: one forward pass over a text of median length. All other arms are not part of "
        "the ladder."
    )
    return Table("The ladder, one change at a time", columns, rows, note)


def rung_claims(result: Result) -> list[Claim]:
    """Return for each compared step the claim that it improves the arm it builds on."""
    claims = []
    for arm, base, verdict in rungs(result):
        says = f"{arm.name} is better than {base.name}, in points: {_gain(verdict)}"
        held = result.standing(arm.name, base.name) == AHEAD
        claims.append(claim(says, float(verdict["difference"]), held))
    return claims


def depth_section(result: Result, depths: Sequence[int]) -> Section:
    """Return accuracy over depth for each layered arm, and the gain of a residual."""
    arms = {arm.name: arm for arm in result.arms}
    series = []
    for look, name in enumerate(LAYERED):
        points = [(depth, arms[at(name, depth)]) for depth in depths if at(name, depth) in arms]
        y, low, high = ([100 * getattr(arm, part) for _, arm in points]
                        for part in ("mean", "low", "high"))  # fmt: skip
        series.append(
            Series(name, [depth for depth, _ in points], y, look=look, low=low, high=high)
        )
    chart = line_chart(
        "Accuracy over depth", series, x_label="layers", y_label="accuracy, %"
    )  # fmt: skip
    says = (
        "The exercise says that a network without residuals learns much worse as layers are "
        "added. The same arms at each depth test that here."
    )
    figure = Figure(chart, "Means over seeds with 95 % intervals.")
    return Section("Does depth need a residual?", [says], [figure], [depth_table(result, depths)])


def depth_table(result: Result, depths: Sequence[int]) -> Table:
    """Return accuracy by arm and depth, and the gain of a residual at each depth."""
    means = result.means
    rows: list[list[Cell]] = [
        [name, *(_mean(means.get(at(name, depth))) for depth in depths)] for name in LAYERED
    ]
    for arm, base in RESIDUALS:
        verdicts = (result.verdict(at(arm, depth), at(base, depth)) for depth in depths)
        cells: list[Cell] = [_gain(verdict) if verdict else "–" for verdict in verdicts]
        rows.append([f"{arm} − {base}", *cells])
    columns = ["arm", *(f"{depth} layer{'s' if depth > 1 else ''}" for depth in depths)]
    note = "Differences: points with 95 % intervals, paired by seed; p after Holm over all of them."
    return Table("Accuracy at each depth, %", columns, rows, note)


def _mean(value: float | None) -> Cell:
    return "–" if value is None else percent(value)


def _gain(verdict: Mapping[str, Any]) -> str:
    points, interval, p = points_of(verdict)
    return f"{points:+.1f} ({interval}), p = {p}".replace("-", "−").replace("= <", "<")


def depth_claims(result: Result, depths: Sequence[int]) -> list[Claim]:
    """Return the claims about the loss from depth, with and without a residual."""
    means = result.means
    least, most = min(depths), max(depths)
    claims = []
    for arm, base in RESIDUALS:
        ends = [at(name, depth) for name in (arm, base) for depth in (least, most)]
        verdict = result.verdict(at(arm, most), at(base, most))
        if verdict is None or not means.keys() >= {*ends}:
            continue
        with_it, without = (means[at(name, least)] - means[at(name, most)] for name in (arm, base))
        says = (
            f"from {least} to {most} layers {base} loses {percent(without)} points and {arm} "
            f"{percent(with_it)}: depth needs a residual"
        )
        claims.append(claim(says, without - with_it, without > with_it))
        gain, p = float(verdict["difference"]), float(verdict["p"])
        says = (
            f"at {most} layers {arm} beats {base} by {percent(gain)} points, with evidence (p = "
            f"{p:.2g})"
        )
        claims.append(claim(says, gain, gain > 0 and claimed(verdict)))
    return claims
