"""Compare translators: an RNN without attention, four kinds of attention, a Transformer.

On built-in data the arms normalize dates (mardi 5 mars 2024 → 2024-03-05), tested on formats
unseen in training, with known true alignment. With ``--data`` they translate sentences.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard.lab.labs.comparison import ComparisonLab, Result
from regard.lab.labs.lab import Findings
from regard.lab.labs.running import load_complete
from regard.lab.labs.translation.looks import (
    HEADS_TEXTS,
    TEXTS,
    best_of,
    head_table,
    search_table,
)
from regard.lab.labs.translation.presets import ARMS, NEXT, PRESETS, REFERENCE
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.evidence import last_row
from regard.lab.reports.findings import Cell
from regard.lab.tasks import unit_of

NAN = math.nan
#: Seen: 35 to 81 % of the dates, by seed and processor; without attention 0.3 to 1.0 %.
TRANSFORMER_LEADS = 0.15


def findings(result: Result) -> Findings:
    """Return the claims, the budgets, the best arm's search results and the alignment by head."""
    values: dict[str, Any] = {"searched": "", "heads": False, "searched_texts": TEXTS}
    tables = {}
    best = best_of(result.arms)
    run = load_complete(best.folders[0]) if best else None
    if best and run:
        searched = search_table(run)
        tables["searches"] = (searched.columns, searched.rows)
        values |= {"searched": best.name, "search_note": searched.note}
    if result.plan.data == "dates" and (found := head_table(result.arms)):
        tables["heads"], guess = found
        values |= {"heads": True, "heads_texts": HEADS_TEXTS, "guess": guess}
    rest = Findings({}, values, tables=tables)
    return Findings.joined([claims_of(result), budgets(result.arms), rest])


def budgets(arms: Sequence[Evidence]) -> Findings:
    """Return each arm's training budget, read from its first run, and how they compare."""
    rows: list[list[Cell]] = []
    ended = set()
    for arm in arms:
        if last := next(filter(None, map(last_row, arm.folders)), None):
            counts = (last.get(key) for key in ("step", "tokens", "epoch"))
            steps, tokens, epochs = (n if isinstance(n, int | float) else NAN for n in counts)
            rows.append([arm.name, steps, tokens, round(float(epochs), 2)])
            ended.add(last.get("ended"))
    if not rows:
        return Findings({}, {"budgets": ""})
    kind = "same steps" if len({row[1] for row in rows}) == 1 else "different"
    kind = "patience" if ended == {"patience"} else kind
    columns = ["arm", "steps", "tokens", "epochs"]
    return Findings({}, {"budgets": kind}, tables={"budgets": (columns, rows)})


class Lead(NamedTuple):
    """The means of an arm and of the reference, and the interval of their difference."""

    name: str
    mean: float
    other: float
    interval: tuple[float, float] | None


def claims_of(result: Result) -> Findings:
    """Return the claims with the numbers of this run."""
    means = result.means
    attending = {name: mean for name, mean in means.items() if name != REFERENCE}
    further = {str(row["name"]): row.get("also", {}) for row in result.record["arms"]}
    errors = {name: float(also["alignment error"]) for name, also in further.items()
              if "alignment error" in also}  # fmt: skip
    leading: dict[str, str] = {}
    if attending and REFERENCE in means:
        leading["best"] = max(attending, key=attending.__getitem__)
        if recurrent := {name: mean for name, mean in attending.items() if name != "transformer"}:
            leading["worst"] = min(recurrent, key=recurrent.__getitem__)
        if errors and "transformer" in attending:
            leading["transformer"] = "transformer"
    leads, claims = {}, {}
    for key, name in leading.items():
        verdict = result.verdict(name, REFERENCE)
        interval = (float(verdict["low"]), float(verdict["high"])) if verdict else None
        leads[key] = Lead(name, means[name], means[REFERENCE], interval)
        gap = means[name] - means[REFERENCE]
        if key == "transformer":
            claims[key] = (gap, gap >= TRANSFORMER_LEADS)
        else:
            claims[key] = (gap, (interval[0] if interval else gap) > 0)
    sign = unit_of(result.record["metric"]).sign
    values = {"leads": leads, "sign": sign, "least": TRANSFORMER_LEADS}
    if errors:
        values["aligned"] = name = min(errors, key=errors.__getitem__)
        values["most_exact"] = best = max(means, key=means.__getitem__)
        claims["alignment"] = (errors[name], errors[name] <= 0.1)
        claims["exact"] = (means[best], means[best] >= 0.9)
    return Findings(claims, values)


LAB = ComparisonLab(
    task="translation",
    arms=ARMS,
    presets=PRESETS,
    reference=REFERENCE,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=lambda result: NEXT.get(result.plan.data, "regard lab translation"),
)
