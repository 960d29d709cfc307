"""What attention adds to a translator: a state alone, four kinds of looking back, a Transformer.

On built-in data the arms make dates uniform (mardi 5 mars 2024 → 2024-03-05), in formats that
training never showed, and the true alignment is known. With ``--data`` they translate sentences.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import Planned, conclude, follow, forecast
from regard.labs.finding import claim, command
from regard.labs.translation.looks import best_of, head_table, load, search_table
from regard.labs.translation.plan import NEXT, REFERENCE, place_for, plan_for
from regard.reports.answer import percent
from regard.reports.comparison import write_report
from regard.reports.evidence import Arm, arms_of, read_lines
from regard.reports.findings import Cell, Table
from regard.tasks import unit_of

NAME = "translation"
METRICS = "metrics.jsonl"
NAN = math.nan


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Train every arm, compare, search in other ways, write the report; the JSON object."""
    from regard.studies.compare import compare

    plan, out, data = plan_for(order), place_for(order), order.data or "dates"
    say(LABS[NAME].question)
    seeds = f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''} each"
    say(f"{len(plan.arms)} arms on {data}, {seeds}, all with the same budget")
    comparison = compare(
        plan.task,
        plan.arms,
        seeds=plan.seeds,
        budget=order.budget or None,
        reference=REFERENCE,
        out=out,
        overrides=plan.overrides,
        workers=order.workers,
        on_event=follow(show),
    )
    record = comparison.record()
    found = arms_of(record, out)
    tables = []
    best = best_of(found)
    looking = load(best.folders[0]) if best else None
    if best and looking:
        tables.append(search_table(looking, best.name))
    if data == "dates" and (heads := head_table(found)):
        tables.append(heads)
    record |= {
        "question": LABS[NAME].question,
        "data": data,
        "tables": [table.json() for table in tables],
        "sections": budgets(found),
        "claims": claims(record),
        "command": command(NAME, order),
    }
    record["report"] = str(write_report(record, out))
    lines = comparison.rows()
    for table in tables:
        lines += ["", table.title, table.text()]
    conclude(record, lines, found, NEXT.get(data, "regard lab translation"), say)
    return record


def budgets(found: Sequence[Arm]) -> list[dict[str, Any]]:
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
    return [{"title": "Was the budget the same?", "says": [says], "tables": [table.json()]}]


def claims(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What to look for, each with the number that this run found."""
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


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Two batches and one step of each arm, and what all of them would take."""
    from regard.studies.compare import Study

    plan = plan_for(order)
    study = Study.plan(
        plan.task,
        plan.arms,
        seeds=1,
        budget=order.budget or None,
        reference=REFERENCE,
        out=place_for(order),
        overrides=plan.overrides,
    )
    planned = [Planned(job.arm, job.task, plan.seeds) for job in study.jobs()]
    return forecast(NAME, planned, order.workers or 2, say)
