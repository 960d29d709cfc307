"""What a state forgets and attention remembers: strings of letters, written backwards.

The seed's lab 6: a GRU reads a random string and a GRU writes it from its end. Without attention
all of it must pass through one state; with attention the state asks the letters themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import Planned, conclude, follow, forecast
from regard.labs.finding import claim, command, settings_for
from regard.reports.comparison import write_report
from regard.reports.evidence import Arm as Found
from regard.reports.evidence import arms_of
from regard.reports.findings import Cell, Table
from regard.settings import Settings
from regard.studies.arms import Arm

NAME = "reverse"
REFERENCE = "gru"
AIM, LONG_AIM = 0.99, 0.97  # of strings without error: of 10 letters, and of LONG or more
LONG = 30
SHORT, QUICK, LONG_ENOUGH = 8, 900, 5_000  # letters, their steps, and the seed's steps
MOST = 0.5  # of the weight, which an alignment has
TEXTS = 200  # of the test, whose alignment is measured


class ReverseSettings(Settings):
    """Strings of ``letters`` letters, each length trained on itself.

    The seed's own settings are the defaults of width, hidden, batch, rate and clip. ``steps=0``
    means the seed's 5,000, or 900 where the strings are of `SHORT` letters or fewer, so that the
    lab takes a minute: ``letters=10`` is the seed's lab, ``letters=30`` its long strings.
    """

    letters: int = Field(SHORT, ge=4, le=200)
    steps: int = Field(0, ge=0)
    width: int = Field(64, ge=1)
    hidden: int = Field(100, ge=2)
    batch: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    seeds: int = Field(3, ge=1)
    workers: int = Field(0, ge=0)

    @property
    def budget(self) -> int:
        """The steps that each arm is trained for.

        >>> ReverseSettings().budget, ReverseSettings(letters=10).budget
        (900, 5000)
        """
        return self.steps or (QUICK if self.letters <= SHORT else LONG_ENOUGH)


@dataclass(frozen=True)
class Plan:
    """The arms, and the settings that they share."""

    arms: list[Arm]
    overrides: list[str]


def plan_for(asked: ReverseSettings) -> Plan:
    """Without attention, with it, and with it as the seed trains it: without clipping.

    Lab 6 has one direction, the encoder's last state as the decoder's first, Adam, no decay of
    weights; here the rate falls to zero.
    """
    arms = [
        Arm("gru", "gru"),
        Arm("lab-6", "lab-6"),
        Arm("lab-6 unclipped", "lab-6", ("clip=0", "schedule=constant", "warmup=0")),
        Arm("bahdanau", "bahdanau"),
    ]
    tokens = asked.batch * (2 * asked.letters + 1)
    shared = {
        "data": "reverse",
        "letters": asked.letters,
        "width": asked.width,
        "hidden": asked.hidden,
        "steps": asked.budget,
        "learning_rate": asked.learning_rate,
        "batch_tokens": tokens,
        "examples": asked.budget * asked.batch,
        "schedule": "linear",
        "patience": 0,
        "average": 0,
        "warmup": 0,
        "weight_decay": 0,
        "dropout": 0,
        "spread": 1.0,
        "tie": 1,
        "clip": 1,
        "precision": "fp32",  # steps so small take longer in bfloat16
        "evaluate_every": max(1, asked.budget // 6),
        "judged": 200,
    }
    return Plan(arms, [f"{key}={value}" for key, value in shared.items()])


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Train the arms, compare them, draw what they look at; the JSON object."""
    from regard.studies.compare import compare

    asked = settings_for(order, ReverseSettings)
    plan = plan_for(asked)
    out = place_for(order, asked)
    introduce(asked, plan, say)
    comparison = compare(
        NAME,
        plan.arms,
        seeds=asked.seeds,
        reference=REFERENCE,
        out=out,
        overrides=plan.overrides,
        workers=asked.workers or None,
        on_event=follow(show),
    )
    record = comparison.record()
    found = arms_of(record, out)
    looked = {arm.name: where for arm in found if (where := weight_of(arm)) is not None}
    record |= {
        "question": LABS[NAME].question,
        "data": f"strings of {asked.letters} letters",
        "sections": [section(looked)] if looked else [],
        "claims": [*claims(record, asked), *claims_of_place(looked)],
        "command": command(NAME, order),
    }
    record["report"] = str(write_report(record, out))
    longer = 10 if asked.letters < 10 else asked.letters + 10
    table = comparison.rows()
    if looked:
        table += ["", *places(looked).text().splitlines(), "", *explanation(looked)]
    conclude(record, table, found, f"regard lab reverse letters={longer}", say)
    return record


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Make one step of each arm and forecast the time of all seeds."""
    from regard.studies.compare import Study

    asked = settings_for(order, ReverseSettings)
    plan = plan_for(asked)
    introduce(asked, plan, say)
    study = Study.plan(NAME, plan.arms, seeds=1, out=place_for(order, asked),
                       overrides=plan.overrides)  # fmt: skip
    planned = [Planned(job.arm, job.task, asked.seeds) for job in study.jobs()]
    return forecast(NAME, planned, asked.workers or 2, say)


def place_for(order: Order, asked: ReverseSettings) -> Path:
    """Return the folder that the lab writes into."""
    return order.out or Path("runs") / f"lab-reverse-{asked.letters}"


def introduce(asked: ReverseSettings, plan: Plan, say: Say) -> None:
    """Say the question and what will be done about it."""
    say(LABS[NAME].question)
    say(f"{len(plan.arms)} arms, strings of {asked.letters} letters, {asked.seeds} seeds each, "
        f"{asked.budget:,} steps")  # fmt: skip


def claims(record: Mapping[str, Any], asked: ReverseSettings) -> list[dict[str, Any]]:
    """What to look for, each with the number that this run found."""
    means = {row["name"]: float(row["mean"]) for row in record["arms"]}
    found = []
    if "lab-6" in means:
        says = f"with attention strings of {asked.letters} letters are turned around without error"
        share, aim = means["lab-6"], LONG_AIM if asked.letters >= LONG else AIM
        found.append(claim(f"{says} in {share:.1%} ({aim:.0%} or more)", share, share >= aim))
    if {"lab-6", "gru"} <= means.keys():
        lead = means["lab-6"] - means["gru"]
        says = f"attention leads a state alone by {100 * lead:.1f} points"
        found.append(claim(says, lead, lead > 0))
    return found


@dataclass(frozen=True)
class Places:
    """Shares of the attention weight, over all letters written but the first of each string.

    ``here`` lies on the letter to be written, ``before`` on the letter written just before it (one
    place to the right in the source, the text being written from its end), ``after`` on the one to
    be written next, ``rest`` elsewhere.
    """

    here: float
    before: float
    after: float
    rest: float

    @classmethod
    def of(cls, weights: Sequence[Float[np.ndarray, "target source"]]) -> "Places":
        """Measure the weights of strings that are written backwards.

        >>> Places.of([np.array([[0.0, 0.0, 1.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])])
        Places(here=0.625, before=0.375, after=0.0, rest=0.0)
        """
        sums, rows = {0: 0.0, 1: 0.0, -1: 0.0}, 0
        for table in weights:
            letters = table.shape[1]
            for step in range(1, letters):
                rows += 1
                for shift in sums:
                    if (place := letters - 1 - step + shift) >= 0:
                        sums[shift] += float(table[step, place])
        here, before, after = (sums[shift] / max(rows, 1) for shift in (0, 1, -1))
        return cls(here, before, after, max(0.0, 1 - here - before - after))


def weight_of(arm: Found) -> Places | None:
    """Return where an arm looks, a mean over its seeds; None where it looks at nothing."""
    import regard
    from regard.tasks.writing.alignment import weighed

    tables = []
    for folder in arm.folders:
        try:
            run = regard.load(folder)
        except RegardError:
            continue
        if not run.complete:
            continue
        with run.computing():
            pairs = run.task.split("test").pairs[:TEXTS]
            for _, layers, _ in weighed(run.task, run.network, pairs):
                tables.append(np.mean([seen.mean(0) for seen in layers.values()], 0))
    return Places.of(tables) if tables else None


def places(looked: Mapping[str, Places]) -> Table:
    """Return where each arm looks while it writes."""
    columns = ["arm", "letter to be written, %", "letter just written, %",
               "letter to be written next, %", "elsewhere, %"]  # fmt: skip
    rows: list[list[Cell]] = [
        [name, *(round(100 * share, 1) for share in (at.here, at.before, at.after, at.rest))]
        for name, at in looked.items()
    ]
    note = (
        f"Weight in {TEXTS} test strings of each seed, over all letters but the first, which has "
        "none before it. The first column is the anti-diagonal."
    )
    return Table("Where the weight lies while a letter is written", columns, rows, note)


def explanation(looked: Mapping[str, Places]) -> list[str]:
    """Return why lab 6's alignment stands where it does, with the shares that were measured."""
    at = looked.get("lab-6")
    if at is None:
        return []
    put = (
        f"lab-6 puts {at.before:.0%} of its weight on the letter that it has just written and "
        f"{at.here:.0%} on the letter that it is about to write."
    )
    if at.here > MOST:
        return [f"{put} Its alignment is the anti-diagonal."]
    if at.before <= MOST:
        return [f"{put} Neither has most of it: no alignment was learned in these steps."]
    return [
        f"{put} Its alignment is the anti-diagonal, one place beside it, and not by mistake:",
        "Step t asks with the state s(t−1) before it reads the letter just written. That state has "
        "just produced this letter, so what it can find by content is the letter's own place.",
        "The encoder reads from the left, so its state at that place has just taken in the letter "
        "and still holds the one before it in the source, which is the one to be written now.",
        "Weights say where a model looks, not what it finds there.",
    ]


def section(looked: Mapping[str, Places]) -> dict[str, Any]:
    """Return where the arms look, and why, as a section of the report."""
    says = [" ".join(explanation(looked))] if explanation(looked) else []
    return {"title": "Which letter does it look at?", "says": says,
            "tables": [places(looked).json()]}  # fmt: skip


def claims_of_place(looked: Mapping[str, Places]) -> list[dict[str, Any]]:
    """Return the claim that lab 6 looks beside the anti-diagonal."""
    at = looked.get("lab-6")
    if at is None:
        return []
    says = (
        "lab-6 looks at the letter just written, one place beside the anti-diagonal: "
        f"{at.before:.0%} of its weight lies there, {at.here:.0%} on the letter to be written"
    )
    return [claim(says, at.before, at.before > MOST)]
