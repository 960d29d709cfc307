"""What a state forgets and attention remembers: strings of letters, written backwards.

The seed's lab 6: a GRU reads a random string and a GRU writes it from its end. Without attention
all of it must pass through one state; with attention the state asks the letters themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from pydantic import Field

from regard.errors import RegardError
from regard.labs.comparison import ComparisonLab, Plan, Preset, Result, pairs
from regard.labs.lab import Claim, claim
from regard.reports.evidence import Arm as Evidence
from regard.reports.findings import Cell, Section, Table
from regard.settings import Settings
from regard.studies.arms import Arm

AIM, LONG_AIM = 0.99, 0.97  # of strings without error: of 10 letters, and of LONG or more
LONG = 30
SHORT, QUICK, LONG_ENOUGH = 8, 900, 5_000  # letters, their steps, and the seed's steps
MOST = 0.5  # of the weight, which an alignment has
TEXTS = 200  # of the test, whose alignment is measured


class ReverseOptions(Settings):
    """Strings of ``letters`` letters, each length trained on itself, ``batch`` at a time.

    Steps are the seed's 5,000, or 900 where the strings are of `SHORT` letters or fewer, so that
    the lab takes a minute: ``letters=10`` is the seed's lab, ``letters=30`` its long strings.
    """

    letters: int = Field(SHORT, ge=4, le=200)
    batch: int = Field(64, ge=1)


def adapt(plan: Plan) -> Plan:
    """Set the budget and the data's size by the length of the strings."""
    letters, batch = plan.options.letters, plan.options.batch
    steps = QUICK if letters <= SHORT else LONG_ENOUGH
    if plan.mine.get("steps", "").isdigit():
        steps = int(plan.mine["steps"])
    sizes = {
        "letters": letters,
        "steps": steps,
        "batch_tokens": batch * (2 * letters + 1),
        "examples": steps * batch,  # no string comes twice
        "evaluate_every": max(1, steps // 6),
    }
    seeds = f"{plan.seeds} seed{'s' if plan.seeds > 1 else ''} each"
    return replace(
        plan,
        overrides=(*plan.overrides, *pairs(plan.left(sizes))),
        data=f"strings of {letters} letters",
        stem=str(letters),
        about=f"{len(plan.arms)} arms, strings of {letters} letters, {seeds}, "
        f"{plan.budget or f'{steps:,} steps'}",
    )


def claims(result: Result) -> list[Claim]:
    """Return what to look for, each with the number that this run found."""
    means, letters = result.means, result.plan.options.letters
    found = []
    if "lab-6" in means:
        says = f"with attention strings of {letters} letters are turned around without error"
        share, aim = means["lab-6"], LONG_AIM if letters >= LONG else AIM
        found.append(claim(f"{says} in {share:.1%} ({aim:.0%} or more)", share, share >= aim))
    if {"lab-6", "gru"} <= means.keys():
        lead = means["lab-6"] - means["gru"]
        says = f"attention leads a state alone by {100 * lead:.1f} points"
        found.append(claim(says, lead, lead > 0))
    at = result.seen.get("lab-6")
    if at is not None:
        says = (
            "lab-6 looks at the letter just written, one place beside the anti-diagonal: "
            f"{at.before:.0%} of its weight lies there, {at.here:.0%} on the letter to be written"
        )
        found.append(claim(says, at.before, at.before > MOST))
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


def measure(result: Result) -> dict[str, Places]:
    """Return where each arm that looks at something looks."""
    return {arm.name: places for arm in result.arms if (places := weight_of(arm)) is not None}


def weight_of(arm: Evidence) -> Places | None:
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
            texts = run.task.split("test").pairs[:TEXTS]
            for _, layers, _ in weighed(run.task, run.network, texts):
                tables.append(np.mean([seen.mean(0) for seen in layers.values()], 0))
    return Places.of(tables) if tables else None


def figures(result: Result) -> list[Section]:
    """Return where each arm looks while it writes, and why."""
    if not result.seen:
        return []
    columns = ["arm", "letter to be written, %", "letter just written, %",
               "letter to be written next, %", "elsewhere, %"]  # fmt: skip
    rows: list[list[Cell]] = [
        [name, *(round(100 * share, 1) for share in (at.here, at.before, at.after, at.rest))]
        for name, at in result.seen.items()
    ]
    note = (
        f"Weight in {TEXTS} test strings of each seed, over all letters but the first, which has "
        "none before it. The first column is the anti-diagonal."
    )
    table = Table("Where the weight lies while a letter is written", columns, rows, note)
    said = explanation(result.seen)
    return [Section("Which letter does it look at?", [" ".join(said)] if said else [], (), [table])]


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


def following(result: Result) -> str:
    """Return the command with longer strings."""
    letters = result.plan.options.letters
    return f"regard lab reverse letters={10 if letters < 10 else letters + 10}"


LAB = ComparisonLab(
    task="reverse",
    arms=[
        Arm("gru", "gru"),
        # One direction, the encoder's last state as the decoder's first, Adam, no decay of weights;
        # here the rate falls to zero.
        Arm("lab-6", "lab-6"),
        Arm("lab-6 unclipped", "lab-6", ("clip=0", "schedule=constant", "warmup=0")),
        Arm("bahdanau", "bahdanau"),
    ],
    presets={
        "reverse": Preset(
            settings={"width": 64, "hidden": 100, "learning_rate": 1e-3, "schedule": "linear"}
            | {"patience": 0, "average": 0, "warmup": 0, "weight_decay": 0, "dropout": 0}
            | {"spread": 1.0, "tie": 1, "clip": 1, "judged": 200}
            | {"precision": "fp32"},  # steps so small take longer in bfloat16
        )
    },
    options=ReverseOptions,
    adapt=adapt,
    measure=measure,
    figures=figures,
    claims=claims,
    answer=lambda result: [*result.in_words, *explanation(result.seen)],
    next=following,
)
