"""The ladder in the report: what each rung changes, what that was worth, and depth."""

from collections.abc import Mapping, Sequence
from typing import Any

from regard.labs.comparing import points_of
from regard.labs.finding import claim
from regard.labs.sentiment.plan import BUILT_ON, LAYERED, RESIDUALS, at
from regard.reports.answer import percent
from regard.reports.evidence import Arm
from regard.reports.findings import Cell, Table

NEVER_ALIKE = {"model", "seed", "task"}


def changes(arm: Mapping[str, Any], base: Mapping[str, Any]) -> list[str]:
    """Return the settings in which two runs differ, each with its two values.

    >>> changes({"pool": "cls", "width": 8, "seed": 1}, {"pool": "mean", "width": 8, "seed": 0})
    ['pool: mean → cls']
    """
    keys = [key for key in base if key in arm and key not in NEVER_ALIKE]
    return [f"{key}: {base[key]} → {arm[key]}" for key in keys if arm[key] != base[key]]


def table(record: Mapping[str, Any], found: Sequence[Arm]) -> Table | None:
    """Return each rung beside the arm that it is built on, or None where no rung was judged."""
    arms = {arm.name: arm for arm in found if arm.config}
    rows: list[list[Cell]] = []
    for rung, base in BUILT_ON.items():
        verdict = verdict_of(record, rung, base)
        if verdict is None or not {rung, base} <= arms.keys():
            continue
        changed = "; ".join(changes(arms[rung].config, arms[base].config))
        rows.append([rung, base, changed, *points_of(verdict)])
    columns = ["arm", "built on", "what is changed", "points", "95 %", "p (Holm)"]
    note = "Read from the settings of the runs. All other arms stand beside the ladder."
    return Table("The ladder, one change at a time", columns, rows, note) if rows else None


def verdict_of(record: Mapping[str, Any], a: str, b: str) -> Mapping[str, Any] | None:
    """Return the declared comparison of two arms, or None."""
    for verdict in record["verdicts"]:
        if (verdict["a"], verdict["b"]) == (a, b):
            return dict(verdict)
    return None


def depth_section(record: Mapping[str, Any], depths: Sequence[int]) -> dict[str, Any]:
    """Return accuracy over depth, a line for each layered arm, as a section of the report."""
    rows = {row["name"]: row for row in record["arms"]}
    series = []
    for name in LAYERED:
        there = [(depth, rows[at(name, depth)]) for depth in depths if at(name, depth) in rows]
        series.append(
            {
                "name": name,
                "x": [depth for depth, _ in there],
                **{key: [100 * float(row[part]) for _, row in there]
                   for key, part in (("y", "mean"), ("low", "low"), ("high", "high"))},
            }
        )  # fmt: skip
    chart = {
        "title": "Accuracy over depth",
        "x_label": "layers",
        "y_label": "accuracy, %",
        "series": series,
        "caption": "Means over seeds with 95 % intervals.",
    }
    says = [
        "The exercise says that a network without residuals learns much worse as layers are "
        "added. The same arms at each depth show whether that is so here."
    ]
    return {"title": "Does depth need a residual?", "says": says, "charts": [chart]}


def depth_table(record: Mapping[str, Any], depths: Sequence[int]) -> Table:
    """Return accuracy by arm and depth, and what a residual is worth at each depth."""
    means = {row["name"]: float(row["mean"]) for row in record["arms"]}
    rows: list[list[Cell]] = [
        [name, *(_mean(means.get(at(name, depth))) for depth in depths)] for name in LAYERED
    ]
    for arm, base in RESIDUALS:
        verdicts = (verdict_of(record, at(arm, depth), at(base, depth)) for depth in depths)
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


def depth_claims(record: Mapping[str, Any], depths: Sequence[int]) -> list[dict[str, Any]]:
    """Return what depth costs without and with a residual, and whether that is evident."""
    means = {row["name"]: float(row["mean"]) for row in record["arms"]}
    least, most = min(depths), max(depths)
    claims = []
    for arm, base in RESIDUALS:
        ends = [at(name, depth) for name in (arm, base) for depth in (least, most)]
        verdict = verdict_of(record, at(arm, most), at(base, most))
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
            f"at {most} layers {arm} leads {base} by {percent(gain)} points, with evidence (p = "
            f"{p:.2g})"
        )
        claims.append(claim(says, gain, gain > 0 and p < 0.05))
    return claims
