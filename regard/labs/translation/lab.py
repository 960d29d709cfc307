"""What attention adds to a translator: a state alone, four kinds of looking back, a Transformer.

On built-in data the arms make dates uniform (mardi 5 mars 2024 → 2024-03-05), in formats that
training never showed, and the true alignment is known. With ``--data`` they translate sentences.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.labs.comparison import ComparisonLab, Result
from regard.labs.lab import Claim, claim
from regard.labs.translation.looks import best_of, head_table, load, search_table
from regard.labs.translation.presets import ARMS, NEXT, PRESETS, REFERENCE
from regard.reports.answer import percent
from regard.reports.evidence import Arm as Evidence
from regard.reports.evidence import read_lines
from regard.reports.findings import Cell, Section, Table
from regard.tasks import unit_of

METRICS = "metrics.jsonl"
NAN = math.nan


def figures(result: Result) -> list[Section]:
    """Return the budgets; then how the best arm searches, and where each head looks."""
    tables = []
    best = best_of(result.arms)
    run = load(best.folders[0]) if best else None
    if best and run:
        tables.append(search_table(run, best.name))
    if result.plan.data == "dates" and (heads := head_table(result.arms)):
        tables.append(heads)
    looks = [Section("How it searches, and where it looks", tables=tables)] if tables else []
    return [*budgets(result.arms), *looks]


def budgets(found: Sequence[Evidence]) -> list[Section]:
    """Return what each arm was trained on, read from its first run, as a section of the report."""
    rows: list[list[Cell]] = []
    ended = set()
    for arm in found:
        last = next((row for folder in arm.folders for row in [*read_lines(folder / METRICS)][-1:]),
                    None)  # fmt: skip
        if last is not None:
            counts = (last.get(key) for key in ("step", "tokens", "epoch"))
            steps, tokens, epochs = (n if isinstance(n, int | float) else NAN for n in counts)
            rows.append([arm.name, steps, tokens, round(float(epochs), 2)])
            ended.add(last.get("ended"))
    if not rows:
        return []
    if ended == {"patience"}:
        says = "Each arm was trained until its validation stopped improving."
    elif len({row[1] for row in rows}) == 1:
        says = "All arms took the same number of steps over batches of the same size."
    else:
        says = (
            "The arms did not have the same budget, which a difference between them may be due to."
        )
    table = Table("What each arm was trained on", ["arm", "steps", "tokens", "epochs"], rows)
    return [Section("Was the budget the same?", [says], tables=[table])]


def claims_of(record: Mapping[str, Any]) -> list[Claim]:
    """Return what to look for, each with the number that this run found."""
    rows = {row["name"]: row for row in record["arms"]}
    means = {name: float(row["mean"]) for name, row in rows.items()}
    looking = {name: mean for name, mean in means.items() if name != REFERENCE}
    unit, found = unit_of(record["metric"]).sign, []
    if looking and REFERENCE in means:
        best = max(looking, key=looking.__getitem__)
        lead = means[best] - means[REFERENCE]
        says = f"{best} leads a state that must carry everything by {percent(lead)} points"
        found.append(claim(says, lead, lead > 0))
        recurrent = {name: mean for name, mean in looking.items() if name != "transformer"}
        if recurrent:
            worst = min(recurrent, key=recurrent.__getitem__)
            says = (
                f"any way to look back beats none: {worst}, the last of the GRUs that do, has "
                f"{percent(means[worst])}{unit} beside {percent(means[REFERENCE])}{unit}"
            )
            found.append(claim(says, means[worst] - means[REFERENCE],
                               means[worst] > means[REFERENCE]))  # fmt: skip
    errors = {name: float(row["also"]["alignment error"]) for name, row in rows.items()
              if "alignment error" in row.get("also", {})}  # fmt: skip
    if errors:
        name = min(errors, key=errors.__getitem__)
        says = "nobody told it where to look: the heaviest weight of " + name
        says += f" lies on the true field but for {percent(errors[name])} % of the signs"
        found.append(claim(says, errors[name], errors[name] <= 0.1))
        best = max(means, key=means.__getitem__)
        says = f"{best} writes dates of formats it never saw letter by letter right in "
        says += f"{percent(means[best])} %"
        found.append(claim(says, means[best], means[best] >= 0.9))
    return found


LAB = ComparisonLab(
    task="translation",
    arms=ARMS,
    presets=PRESETS,
    reference=REFERENCE,
    figures=figures,
    claims=lambda result: claims_of(result.record),
    next=lambda result: NEXT.get(result.plan.data, "regard lab translation"),
)
