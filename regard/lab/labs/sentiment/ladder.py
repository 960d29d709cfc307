"""Results of the sentiment lab: the gain and cost of each step of the ladder, and depth."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.lab.labs.comparison import AHEAD, Result, points_of
from regard.lab.labs.lab import Findings
from regard.lab.labs.sentiment.plan import BUILT_ON, LAYERED, RESIDUALS, at
from regard.lab.reports.answer import percent
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.figures import Row, Series, interval_chart, line_chart
from regard.lab.reports.findings import Cell
from regard.lab.reports.scales import duration
from regard.lab.studies.result import claimed

Columns = tuple[list[str], list[list[Cell]]]
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


def steps(result: Result, *, as_claims: bool = False) -> Findings:
    """Return the chart and the table of the steps.

    With `as_claims` each step has the claim that it improves the arm it builds on.
    """
    compared = rungs(result)
    if not compared:
        return Findings({})
    claims, gains, values = {}, [], []
    for arm, base, verdict in compared:
        gain, low, high = (float(verdict[key]) for key in ("difference", "low", "high"))
        trained = arm.trained and base.trained
        gains.append(Row(arm.name, 100 * gain, 100 * low, 100 * high, arm.family, (), trained))
        values.append({"arm": arm.name, "base": base.name, "gain": _gain(verdict)})
        claims[arm.name] = (gain, result.standing(arm.name, base.name) == AHEAD)
    chart = interval_chart("Gain of each step", gains, x_label="points", lines={"no gain": 0.0})
    return Findings(
        claims if as_claims else {},
        {"steps": values},
        {"gains": chart},
        {"ladder": table(compared)},
    )


def table(steps: Sequence[tuple[Evidence, Evidence, Mapping[str, Any]]]) -> Columns:
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
    return columns, rows


def depth(result: Result, depths: Sequence[int]) -> Findings:
    """Return accuracy over depth for each layered arm, and the loss with and without a residual."""
    arms = {arm.name: arm for arm in result.arms}
    series = []
    for look, name in enumerate(LAYERED):
        points = [(depth, arms[at(name, depth)]) for depth in depths if at(name, depth) in arms]
        ends = [(arm.mean, arm.low, arm.high) for _, arm in points]
        series.append(Series.ranged(name, [depth for depth, _ in points], ends, look, times=100))
    chart = line_chart("Accuracy over depth", series, x_label="layers", y_label="accuracy, %")
    claims, residuals = depth_claims(result, depths)
    values = {"residuals": residuals, "least": min(depths), "most": max(depths)}
    return Findings(claims, values, {"depths": chart}, {"by-depth": depth_table(result, depths)})


def depth_table(result: Result, depths: Sequence[int]) -> Columns:
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
    return columns, rows


def _mean(value: float | None) -> Cell:
    return "–" if value is None else percent(value)


def _gain(verdict: Mapping[str, Any]) -> str:
    points, interval, p = points_of(verdict)
    return f"{points:+.1f} ({interval}), p = {p}".replace("-", "−").replace("= <", "<")


def depth_claims(
    result: Result, depths: Sequence[int]
) -> tuple[dict[str, tuple[float, bool]], list[dict[str, Any]]]:
    """Return the claims about the loss from depth, with and without a residual, and their values.

    A claim without a verdict, or with an arm that was not trained, is left out.
    """
    means = result.means
    least, most = min(depths), max(depths)
    claims, values = {}, []
    for arm, base in RESIDUALS:
        ends = [at(name, depth) for name in (arm, base) for depth in (least, most)]
        verdict = result.verdict(at(arm, most), at(base, most))
        if verdict is None or not means.keys() >= {*ends}:
            continue
        loss, without = (means[at(name, least)] - means[at(name, most)] for name in (arm, base))
        gain, p = float(verdict["difference"]), float(verdict["p"])
        claims[f"{arm}/loss"] = (without - loss, without > loss)
        claims[f"{arm}/gain"] = (gain, gain > 0 and claimed(verdict))
        values.append({"arm": arm, "base": base, "loss": loss, "without": without, "p": p})
    return claims, values
