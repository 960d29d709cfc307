"""Compare translators: an RNN without attention, four kinds of attention, a Transformer.

On built-in data the arms normalize dates (mardi 5 mars 2024 → 2024-03-05), tested on formats
unseen in training, with known true alignment. With ``--data`` they translate sentences.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from regard.lab.labs.comparison import ComparisonLab, Result
from regard.lab.labs.lab import Claim, claim
from regard.lab.labs.translation.looks import best_of, head_table, load, search_table
from regard.lab.labs.translation.presets import ARMS, NEXT, PRESETS, REFERENCE
from regard.lab.reports.answer import percent
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.evidence import read_lines
from regard.lab.reports.findings import Cell, Section, Table
from regard.lab.tasks import unit_of

METRICS = "metrics.jsonl"
NAN = math.nan
#: Seen: 35 to 81 % of the dates, by seed and processor; without attention 0.3 to 1.0 %.
TRANSFORMER_LEADS = 0.15


def figures(result: Result) -> list[Section]:
    """Return the budgets, the best arm's search results and the alignment of each head."""
    tables = []
    best = best_of(result.arms)
    run = load(best.folders[0]) if best else None
    if best and run:
        tables.append(search_table(run, best.name))
    if result.plan.data == "dates" and (heads := head_table(result.arms)):
        tables.append(heads)
    details = [Section("Search and attention", tables=tables)] if tables else []
    return [*budgets(result.arms), *details]


def budgets(arms: Sequence[Evidence]) -> list[Section]:
    """Return the section on each arm's training budget, read from its first run."""
    rows: list[list[Cell]] = []
    ended = set()
    for arm in arms:
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
        says = "Each arm was trained until its validation score stopped improving."
    elif len({row[1] for row in rows}) == 1:
        says = "All arms were trained for the same number of steps with batches of the same size."
    else:
        says = "The arms had different budgets, which may explain a difference between them."
    table = Table("Training budget of each arm", ["arm", "steps", "tokens", "epochs"], rows)
    return [Section("Was the budget the same?", [says], tables=[table])]


def claims_of(record: Mapping[str, Any]) -> list[Claim]:
    """Return the claims with the numbers of this run."""
    rows = {row["name"]: row for row in record["arms"]}
    means = {name: float(row["mean"]) for name, row in rows.items()}
    attending = {name: mean for name, mean in means.items() if name != REFERENCE}
    claims: list[Claim] = []
    dates = any("alignment error" in row.get("also", {}) for row in rows.values())
    if attending and REFERENCE in means:
        best = max(attending, key=attending.__getitem__)
        says = f"{best} beats a single fixed-size state"
        claims.append(_lead(record, best, says))
        recurrent = {name: mean for name, mean in attending.items() if name != "transformer"}
        if recurrent:
            worst = min(recurrent, key=recurrent.__getitem__)
            says = (
                f"every kind of attention beats none: {worst}, the worst GRU with attention, does"
            )
            claims.append(_lead(record, worst, says))
        if dates and "transformer" in attending:
            least = round(100 * TRANSFORMER_LEADS)
            says = (
                f"the transformer, which differs most by seed, leads none by {least} points or more"
            )
            claims.append(_lead(record, "transformer", says, TRANSFORMER_LEADS))
    errors = {name: float(row["also"]["alignment error"]) for name, row in rows.items()
              if "alignment error" in row.get("also", {})}  # fmt: skip
    if errors:
        name = min(errors, key=errors.__getitem__)
        says = f"alignment is learned without supervision: the largest weight of {name}"
        says += f" is on the wrong field for only {percent(errors[name])} % of the characters"
        claims.append(claim(says, errors[name], errors[name] <= 0.1))
        best = max(means, key=means.__getitem__)
        says = f"{best} writes dates of unseen formats without any wrong character in "
        says += f"{percent(means[best])} %"
        claims.append(claim(says, means[best], means[best] >= 0.9))
    return claims


def _lead(record: Mapping[str, Any], name: str, says: str, least: float = 0.0) -> Claim:
    """Return the claim that an arm leads the reference, with its interval, which must be above 0.

    With ``least``, the mean must lead by so much, whatever the interval.
    """
    rows = {row["name"]: row for row in record["arms"]}
    unit = unit_of(record["metric"]).sign
    mean, other = (float(rows[arm]["mean"]) for arm in (name, REFERENCE))
    pairs = ((v["a"], v["b"], v) for v in record.get("verdicts", []))
    verdict = next((v for a, b, v in pairs if (a, b) == (name, REFERENCE)), None)
    low = mean - other if verdict is None else float(verdict["low"])
    interval = "" if verdict is None else f" ({percent(low)} to {percent(float(verdict['high']))})"
    shares = f"{percent(mean)}{unit} against {percent(other)}{unit}"
    says = f"{says}: {shares}, {percent(mean - other)} points{interval}"
    return claim(says, mean - other, mean - other >= least if least else low > 0)


LAB = ComparisonLab(
    task="translation",
    arms=ARMS,
    presets=PRESETS,
    reference=REFERENCE,
    figures=figures,
    claims=lambda result: claims_of(result.record),
    next=lambda result: NEXT.get(result.plan.data, "regard lab translation"),
)
