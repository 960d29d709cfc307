"""Reverse strings of letters, with a single state and with attention.

The seed's lab 6: a GRU reads a random string and a GRU writes it in reverse. Without attention
the string must fit into one state; with attention the decoder looks at the letters themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float
from pydantic import Field

from regard.core.settings import Settings
from regard.lab.labs.comparison import ComparisonLab, Plan, Preset, Result, pairs
from regard.lab.labs.lab import Findings
from regard.lab.labs.running import load_complete
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.findings import Cell
from regard.lab.studies.arms import Arm
from regard.lab.tasks.writing.alignment import weighed

AIM, LONG_AIM = 0.99, 0.97  # share of strings without error: for 10 letters, and for LONG or more
LONG = 30
SHORT, QUICK, LONG_ENOUGH = 8, 900, 5_000  # letters, steps for them, and the seed's steps
MOST = 0.5  # share of the weight that counts as an alignment
TEXTS = 200  # test strings whose alignment is measured


class ReverseOptions(Settings):
    """Settings: ``letters`` per string, in training and test alike, and ``batch`` strings per step.

    Steps default to the seed's 5,000, or to 900 for strings of `SHORT` letters or fewer, so that
    the lab takes a minute. ``letters=10`` is the seed's lab, ``letters=30`` its long strings.
    """

    letters: int = Field(SHORT, ge=4, le=200)
    batch: int = Field(64, ge=1)


def adapt(plan: Plan) -> Plan:
    """Set the budget and the data's size by the length of the strings."""
    letters, batch = plan.options.letters, plan.options.batch
    steps = QUICK if letters <= SHORT else LONG_ENOUGH
    if plan.user_settings.get("steps", "").isdigit():
        steps = int(plan.user_settings["steps"])
    sizes = {
        "letters": letters,
        "steps": steps,
        "batch_tokens": batch * (2 * letters + 1),
        "examples": steps * batch,  # no string is repeated
        "evaluate_every": max(1, steps // 6),
    }
    return replace(
        plan,
        overrides=(*plan.overrides, *pairs(plan.without_user_settings(sizes))),
        data=f"strings of {letters} letters",
        stem=str(letters),
        about=f"{len(plan.arms)} arms, strings of {letters} letters, {plan.seeds_each}, "
        f"{plan.budget or f'{steps:,} steps'}",
    )


def findings(result: Result) -> Findings:
    """Return the claims, and the table of attention weights while writing."""
    means, letters, at = result.means, result.plan.options.letters, result.measured.get("lab-6")
    claims = {}
    aim = LONG_AIM if letters >= LONG else AIM
    if "lab-6" in means:
        claims["exact"] = (means["lab-6"], means["lab-6"] >= aim)
    if {"lab-6", "gru"} <= means.keys():
        lead = means["lab-6"] - means["gru"]
        claims["lead"] = (lead, lead > 0)
    if at is not None:
        claims["before"] = (at.before, at.before > MOST)
    columns = ["arm", "letter to write, %", "letter just written, %",
               "letter after that, %", "elsewhere, %"]  # fmt: skip
    rows: list[list[Cell]] = [
        [name, *(round(100 * share, 1) for share in (of.here, of.before, of.after, of.rest))]
        for name, of in result.measured.items()
    ]
    values = {"letters": letters, "aim": aim, "at": at, "most": MOST, "texts": TEXTS, "rows": rows}
    return Findings(claims, values, tables={"weights": (columns, rows)} if rows else {})


@dataclass(frozen=True)
class Places:
    """Shares of the attention weight by position, over all written letters but the first.

    ``here``: on the letter to be written; ``before``: on the letter just written (one position to
    the right in the source, since the string is written in reverse); ``after``: on the letter
    after the next; ``rest``: elsewhere.
    """

    here: float
    before: float
    after: float
    rest: float

    @classmethod
    def of(cls, weights: Sequence[Float[np.ndarray, "target source"]]) -> "Places":
        """Measure the weights of reversed strings.

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


def measure(result: Result) -> dict[str, Places]:
    """Return the shares of the weight of each arm with attention."""
    return {arm.name: places for arm in result.arms if (places := weight_of(arm)) is not None}


def weight_of(arm: Evidence) -> Places | None:
    """Return an arm's shares of the weight, averaged over seeds, or None without attention."""
    tables = []
    for folder in arm.folders:
        if (run := load_complete(folder)) is None:
            continue
        with run.computing():
            texts = run.task.split("test").pairs[:TEXTS]
            for _, layers, _ in weighed(run.task, run.network, texts):
                tables.append(np.mean([seen.mean(0) for seen in layers.values()], 0))
    return Places.of(tables) if tables else None


def following(result: Result) -> str:
    """Return the command for longer strings."""
    letters = result.plan.options.letters
    return f"regard lab reverse letters={10 if letters < 10 else letters + 10}"


LAB = ComparisonLab(
    task="reverse",
    arms=[
        Arm("gru", "gru"),
        # Unidirectional, decoder initialized with the encoder's last state, Adam, no weight decay;
        # here the learning rate decays to zero.
        Arm("lab-6", "lab-6"),
        Arm("lab-6 unclipped", "lab-6", ("clip=0", "schedule=constant", "warmup=0")),
        Arm("bahdanau", "bahdanau"),
    ],
    presets={
        "reverse": Preset(
            settings={"width": 64, "hidden": 100, "learning_rate": 1e-3, "schedule": "linear"}
            | {"patience": 0, "average": 0, "warmup": 0, "weight_decay": 0, "dropout": 0}
            | {"init_std": 1.0, "tie": 1, "start": "learned", "clip": 1, "judged": 200}
            | {"precision": "fp32"},  # steps this small are slower in bfloat16
        )
    },
    options=ReverseOptions,
    adapt=adapt,
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=following,
)
