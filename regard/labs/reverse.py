"""What a state forgets and attention remembers: strings of letters, written backwards.

The seed's lab 6: a GRU reads a random string and a GRU writes it from its end. Without attention
all of it must pass through one state; with attention the state asks the letters themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import conclude, follow
from regard.labs.finding import claim, command, settings_for
from regard.reports.comparison import write_report
from regard.reports.evidence import arms_of
from regard.settings import Settings
from regard.studies.arms import Arm

NAME = "reverse"
REFERENCE = "gru"
AIM, LONG_AIM = 0.99, 0.97  # of strings without error: of 10 letters, and of LONG or more
LONG = 30


class ReverseSettings(Settings):
    """Strings of ``letters`` letters, each length trained on itself.

    The seed's own settings are the defaults of width, hidden, batch, rate and clip; ``steps`` are
    few, so that the lab takes a minute. Rows E1 and E2: letters=10 steps=5000.
    """

    letters: int = Field(8, ge=4, le=200)
    steps: int = Field(900, ge=1)
    width: int = Field(64, ge=1)
    hidden: int = Field(100, ge=2)
    batch: int = Field(64, ge=1)
    learning_rate: float = Field(1e-3, gt=0)
    seeds: int = Field(3, ge=1)
    workers: int = Field(0, ge=0)


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
        "steps": asked.steps,
        "learning_rate": asked.learning_rate,
        "batch_tokens": tokens,
        "examples": asked.steps * asked.batch,
        "warmup": 0,
        "weight_decay": 0,
        "dropout": 0,
        "spread": 1.0,
        "tie": 1,
        "clip": 1,
        "precision": "fp32",  # steps so small take longer in bfloat16
        "evaluate_every": max(1, asked.steps // 6),
        "judged": 200,
    }
    return Plan(arms, [f"{key}={value}" for key, value in shared.items()])


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Train the arms, compare them, draw what they look at; the JSON object."""
    from regard.studies.compare import compare

    asked = settings_for(order, ReverseSettings)
    plan = plan_for(asked)
    out = order.out or Path("runs") / f"lab-reverse-{asked.letters}"
    say(LABS[NAME].question)
    say(f"{len(plan.arms)} arms, strings of {asked.letters} letters, {asked.seeds} seeds each")
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
    record |= {
        "question": LABS[NAME].question,
        "data": f"strings of {asked.letters} letters",
        "claims": claims(record, asked),
        "command": command(NAME, order),
    }
    record["report"] = str(write_report(record, out))
    following = f"regard lab reverse letters={2 * asked.letters} steps={4 * asked.steps}"
    table = comparison.table().splitlines()[: 1 + len(record["arms"])]
    conclude(record, table, found, following, say)
    return record


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
