"""What pretraining puts into a model: where was NAME born? Assignment 5 of CS224N 2022, part 2.

A model that has only seen questions cannot know the answers for other people; the same model,
pretrained on texts in which the answers stand, can, if its attention is able to find them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.biographies import others
from regard.data.birthplaces import ASKS
from regard.labs.birthplace.knowing import Known, section, strangers
from regard.labs.comparison import (
    BUDGETS,
    ComparisonLab,
    Plan,
    Preset,
    PretrainFirst,
    Pretraining,
    Result,
    chosen,
    pairs,
)
from regard.labs.lab import Claim, claim
from regard.reports.figures import Row, interval_chart
from regard.reports.findings import Figure, Section, Table
from regard.runs import load
from regard.runs.build import prepare
from regard.settings import Settings
from regard.studies.arms import Arm
from regard.tasks.birthplace.evaluation import Answered

NONE = "not pretrained"


class BirthplaceOptions(Settings):
    """``arms``: which of vanilla, rotary, synthesizer; other settings are those of both trainings.

    ``--budget`` is that of each pretraining; ``pretrained``: a folder of complete runs
    ``birthplace-pretrain-ARM`` to begin from.
    """

    arms: str = "vanilla,rotary,synthesizer"
    pretrained: str = ""


ARMS: Mapping[str, tuple[str, ...]] = {
    "vanilla": ("position=learned",),
    "rotary": ("position=rotary",),
    "synthesizer": ("position=learned", "score=synthesizer"),
}
PRESETS = {
    "biographies": Preset(  # about 40 s on two cores
        seeds=1,
        arms={NONE: {"epochs": 60}},
        pretraining=Pretraining(
            network={"width": 64, "heads": 4, "layers": 2, "feedforward": 256, "length": 64}
            | {"tokenizer": "bpe", "vocabulary": 1_500},
            before={"epochs": 110, "learning_rate": 0.01, "batch_tokens": 1_024}
            | {"schedule": "linear", "dropout": 0.0, "evaluate_every": 100_000},
            after={"epochs": 30, "learning_rate": 1e-3, "batch_tokens": 256, "evaluate_every": 30}
            | {"schedule": "linear", "dropout": 0.0},
        ),
    ),
    # Hours on two cores. Rotary reached 47.2 % so (docs/results/pretraining.md): facts are learned
    # by heart, which dropout hinders; fine-tuning on 1,800 questions needs it.
    "birthplaces": Preset(
        seeds=1,
        arms={
            NONE: {"epochs": 75, "learning_rate": 6e-4, "batch_tokens": 8_192, "evaluate_every": 26}
        },
        pretraining=Pretraining(
            network={"width": 256, "heads": 8, "layers": 4, "feedforward": 1_024, "length": 128},
            before={"epochs": 300, "optimizer": "muon", "learning_rate": 4e-3}
            | {"batch_tokens": 4_096, "schedule": "cosine", "weight_decay": 0.1, "dropout": 0.0}
            | {"evaluate_every": 3_000},
            after={"epochs": 15, "learning_rate": 1e-4, "batch_tokens": 2_048, "evaluate_every": 60}
            | {"schedule": "linear", "dropout": 0.1},
        ),
    ),
}


def adapt(plan: Plan) -> Plan:
    """Let each chosen arm begin from its own pretraining, whose budget is the user's.

    Errors: an arm that the lab does not know.
    """
    options, preset = plan.options, plan.preset.pretraining
    names = chosen("arms", options.arms, ARMS)
    assert preset is not None
    first = [
        PretrainFirst(
            name,
            "birthplace-pretrain",
            "gpt",
            (*pairs(plan.before()), *ARMS[name]),
            f"{options.pretrained}/birthplace-pretrain-{name}" if options.pretrained else "",
            2.0 if name == "synthesizer" else 1.0,
            bool(options.pretrained),
        )
        for name in names
    ]
    mine = {key: value for key, value in plan.mine.items() if key not in BUDGETS}
    network = {"data": plan.data, **preset.network, **preset.after, **mine}
    return replace(
        plan,
        arms=[
            Arm(NONE, "gpt", pairs(plan.preset.arms[NONE])),
            *(Arm(name, "gpt", ARMS[name]) for name in names),
        ],
        overrides=pairs(network),
        budget="",
        pretrain_first=first,
        about=f"{', '.join(names)}; {plan.seeds} seed(s) each; data: {plan.data}",
    )


@dataclass(frozen=True)
class Seen:
    """Each arm's answers; the best arm, and the one whose confidence is looked at."""

    judged: Mapping[str, Answered]
    best: str
    known: Known

    @property
    def baseline(self) -> float:
        """The share that one answer to everyone gets right."""
        return self.judged[self.best].baseline or 0.0


def measure(result: Result) -> Seen:
    """Read the answers of each arm, and ask about people who stand in no text."""
    folders = {arm.name: arm.folders[0] for arm in result.arms}
    judged, means = {name: answered(folder) for name, folder in folders.items()}, result.means
    best = max(means, key=means.__getitem__)
    # Who makes mistakes too has both kinds of answer to show.
    erring = [n for n in means if n != NONE and means[best] > means[n] >= means[best] / 2]
    shown = erring[0] if erring else best
    run = load(folders[shown])
    people = (
        [ASKS.format(person.name) for person in others()]
        if result.plan.data == "biographies"
        else strangers(judged[shown].pairs, prepare(run.config).corpus.texts)
    )
    return Seen(judged, best, Known(shown, judged[shown], run.predict(people)))


def answer(result: Result) -> list[str]:
    """Return the share of right answers, and what they are worth."""
    seen, means = result.seen, result.means
    known = seen.known
    return [
        f"{seen.best} is right about {means[seen.best]:.1%} of the people of whom it was never "
        f"asked before, a model that read no biographies about {means.get(NONE, 0.0):.1%}; "
        f"{seen.judged[seen.best].commonest!r} to everyone would be right in {seen.baseline:.1%}.",
        f"Asked about people who stand in no text, {known.arm} names a place all the same, with a "
        f"mean confidence of {mean(known.strange):.0%} against {mean(known.right):.0%} where it is "
        "right.",
        *result.in_words,
    ]


def answered(folder: Path) -> Answered:
    """Return what a run answered to the test questions."""
    found = load(folder).evaluate()
    assert isinstance(found, Answered)
    return found


def mean(values: Any) -> float:
    """Return the mean; 0 of nothing."""
    return float(values.mean()) if len(values) else 0.0


def results(result: Result) -> Section:
    """Return the share of right answers of each arm."""
    judged = result.seen.judged
    rows, bars = [], []
    for arm in result.record["arms"]:
        name = str(arm["name"])
        first = judged[name]
        low, high = 100 * (first.low or 0.0), 100 * (first.high or 0.0)
        bars.append(Row(name, 100 * (first.value or 0.0), low, high))
        rows.append(
            [name, 100 * float(arm["mean"]), f"{low:.1f} to {high:.1f}", arm["parameters"],
             arm["seconds"]]
        )  # fmt: skip
    commonest = judged[result.seen.best].commonest
    rows.append([f"{commonest} to everyone", 100 * result.seen.baseline, "", 0, 0.0])
    columns = ["arm", "right, %", "Wilson 95 %, seed 0", "parameters", "fine-tuning, s"]
    chart = interval_chart("Right answers", bars, x_label="right answers, %", reference=NONE)
    note = f"{judged[NONE].n} questions about people of whom no question was seen in fine-tuning."
    return Section(
        "What does pretraining add?",
        [
            "Every arm is fine-tuned on the same questions. All but one have read the texts before,"
            " with spans of them hidden and asked for at the end."
        ],
        [Figure(chart, "Bars: 95 % Wilson intervals over questions, of seed 0.")],
        [Table("Right answers", columns, rows, note)],
    )


def claims_of(
    data: str, means: Mapping[str, float], judged: Mapping[str, Answered], known: Known
) -> list[Claim]:
    """Return what to look for, each with the number that this run found."""
    none, aims = judged[NONE], AIMS.get(data, {})
    low, same = none.low or 0.0, none.baseline or 0.0
    found = [
        claim(
            f"without pretraining it is no better than one answer to everyone: {means[NONE]:.1%} "
            f"against {same:.1%}",
            means[NONE],
            low <= max(same, 0.1),
        )
    ]
    if data == "birthplaces":
        says = f"{none.commonest!r} to everyone is right in 5.0 %: {same:.1%}"
        found.append(claim(says, same, round(same, 3) == 0.05))
    for name, aim in aims.items():
        if name in means:
            says = f"{name}, pretrained, is right in {aim:.0%} or more: {means[name]:.1%}"
            found.append(claim(says, means[name], means[name] >= aim))
    says = "a right answer has more confidence than a wrong one, but not always"
    apart = known.separation
    if not math.isnan(apart):
        found.append(claim(f"{says}: in {apart:.0%} of pairs", apart, 0.5 < apart < 1))
    share = float(np.mean([bool(text.text) for text in known.strangers]))
    says = "asked about people who stand in no text, it names a place all the same"
    found.append(claim(f"{says}: in {share:.0%}", share, share > 0.9))
    return found


AIMS = {
    "biographies": {"vanilla": 0.5, "rotary": 0.5},
    "birthplaces": {"vanilla": 0.25, "rotary": 0.45, "synthesizer": 0.12},
}


def claims(result: Result) -> list[Claim]:
    """Return what to look for in this run."""
    seen = result.seen
    return claims_of(result.plan.data, result.means, seen.judged, seen.known)


def following(result: Result) -> str:
    """Return the real data, or a question for the best run."""
    if result.plan.data == "biographies":
        return "regard lab birthplace --data birthplaces"
    best = next(arm for arm in result.arms if arm.name == result.seen.best)
    return f"regard predict {best.folders[0]} 'Where was Ada Lovelace born?'"


LAB = ComparisonLab(
    task="birthplace",
    arms=[Arm(NONE, "gpt")],
    presets=PRESETS,
    options=BirthplaceOptions,
    adapt=adapt,
    measure=measure,
    figures=lambda result: [results(result), section(result.seen.known)],
    claims=claims,
    answer=answer,
    next=following,
    elsewhere="of your own data: regard train birthplace-pretrain --data TEXTS, then regard train "
    "birthplace --init",
)
