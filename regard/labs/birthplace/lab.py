"""What pretraining puts into a model: where was NAME born? Assignment 5 of CS224N 2022, part 2.

A model that has only seen questions cannot know the answers for other people; the same model,
pretrained on texts in which the answers stand, can, if its attention is able to find them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from regard.data.biographies import others
from regard.data.birthplaces import ASKS
from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.birthplace.knowing import Known, section, strangers
from regard.labs.comparing import DRY_RUN, Planned, follow, forecast, pretrain, told
from regard.labs.finding import Finding, claim, conclude, place, settings_for
from regard.reports.figures import Row, interval_chart
from regard.reports.findings import Figure, Section, Table
from regard.runs import load
from regard.runs.build import prepare
from regard.settings import Settings
from regard.studies.arms import Arm
from regard.studies.budget import parse_budget
from regard.studies.compare import Study, compare
from regard.studies.job import RunTask
from regard.studies.launch import Job
from regard.tasks.birthplace.evaluation import Answered
from regard.training.settings import BUDGETS

NAME = "birthplace"
NONE = "not pretrained"


class BirthplaceSettings(Settings):
    """``data``: "biographies" or "birthplaces"; ``arms``: which of vanilla, rotary, synthesizer.

    What is 0 or empty is the data's own choice (`KINDS`). ``budget`` is that of each pretraining,
    as for ``regard compare``; ``pretrained``: a folder of complete runs ``birthplace-pretrain-ARM``
    to begin from.
    """

    data: str = "biographies"
    arms: str = "vanilla,rotary,synthesizer"
    seeds: int = Field(1, ge=1)
    workers: int = Field(0, ge=0)
    budget: str = ""
    width: int = Field(0, ge=0)
    layers: int = Field(0, ge=0)
    pretrained: str = ""


ARMS: Mapping[str, Sequence[str]] = {
    "vanilla": ("position=learned",),
    "rotary": ("position=rotary",),
    "synthesizer": ("position=learned", "score=synthesizer"),
}


@dataclass(frozen=True)
class Kind:
    """How the lab treats one set of data: the network, and how it is pretrained and fine-tuned.

    ``without`` is what fine-tuning needs otherwise where nothing was pretrained.
    """

    network: Mapping[str, object]
    before: Mapping[str, object]
    after: Mapping[str, object]
    without: Mapping[str, object]


KINDS = {
    "biographies": Kind(  # about 40 s on two cores
        network={"width": 64, "heads": 4, "layers": 2, "feedforward": 256, "length": 64}
        | {"tokenizer": "bpe", "vocabulary": 1_500},
        before={"epochs": 110, "learning_rate": 0.01, "batch_tokens": 1_024}
        | {"schedule": "linear", "dropout": 0.0, "evaluate_every": 100_000},
        after={"epochs": 30, "learning_rate": 1e-3, "batch_tokens": 256, "evaluate_every": 30}
        | {"schedule": "linear", "dropout": 0.0},
        without={"epochs": 60},
    ),
    # Hours on two cores. Rotary reached 47.2 % so (docs/results/pretraining.md): facts are learned
    # by heart, which dropout hinders; fine-tuning on 1,800 questions needs it.
    "birthplaces": Kind(
        network={"width": 256, "heads": 8, "layers": 4, "feedforward": 1_024, "length": 128},
        before={"epochs": 300, "optimizer": "muon", "learning_rate": 4e-3, "batch_tokens": 4_096}
        | {"schedule": "cosine", "weight_decay": 0.1, "dropout": 0.0, "evaluate_every": 3_000},
        after={"epochs": 15, "learning_rate": 1e-4, "batch_tokens": 2_048, "evaluate_every": 60}
        | {"schedule": "linear", "dropout": 0.1},
        without={"epochs": 75, "learning_rate": 6e-4, "batch_tokens": 8_192, "evaluate_every": 26},
    ),
}


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Pretrain each arm, fine-tune it and a model that was not pretrained, look at the answers."""
    asked = settings_for(order, BirthplaceSettings)
    kind, names = plan_for(asked)
    out = place(NAME, order)
    say(LABS[NAME].question)
    say(f"{', '.join(names)}; {asked.seeds} seed(s) each; data: {asked.data}")
    pretrain(pretraining(asked, kind, names, out), asked.workers, show)
    comparison = compare(
        NAME,
        [Arm(NONE, "gpt", told(kind.without)), *(tuned(asked, name, out) for name in names)],
        seeds=asked.seeds,
        reference=NONE,
        out=out / "fine-tuned",
        overrides=shared(asked, kind),
        workers=asked.workers or None,
        on_event=follow(show),
    )
    record = comparison.record()
    return conclude(NAME, order, finding(asked, record, out), say)


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Make one step of each pretraining and fine-tuning, and forecast the lab's time."""
    asked = settings_for(order, BirthplaceSettings)
    kind, names = plan_for(asked)
    out = place(NAME, order)
    jobs = [job for job in pretraining(asked, kind, names, out) if job.seed == 0]
    planned = [Planned(f"{job.arm}, pretraining", job.task, asked.seeds) for job in jobs]
    arms = [
        Arm(NONE, "gpt", told(kind.without)),
        *(Arm(name, "gpt", (*ARMS[name],)) for name in names),
    ]
    study = Study.plan(NAME, arms, seeds=1, out=out / DRY_RUN, overrides=shared(asked, kind))
    planned += [Planned(f"{job.arm}, fine-tuning", job.task, asked.seeds) for job in study.jobs()]
    return forecast(NAME, planned, asked.workers or 2, say)


def shared(asked: BirthplaceSettings, kind: Kind) -> list[str]:
    """Return what all fine-tunings have in common."""
    return [f"data={asked.data}", *told({**network(asked, kind), **kind.after})]


def plan_for(asked: BirthplaceSettings) -> tuple[Kind, list[str]]:
    """The data's settings and the arms. Errors: data or an arm that the lab does not know."""
    names = [name.strip() for name in asked.arms.split(",") if name.strip()]
    if unknown := [name for name in names if name not in ARMS] or ([] if names else ["none"]):
        raise RegardError(f"arms={asked.arms}: {unknown[0]!r} is none of {', '.join(ARMS)}")
    if asked.data not in KINDS:
        raise RegardError(
            f"--data {asked.data}: this lab knows {' and '.join(KINDS)}; of your own data: "
            "regard train birthplace-pretrain --data TEXTS, then regard train birthplace --init"
        )
    return KINDS[asked.data], names


def pretraining(
    asked: BirthplaceSettings, kind: Kind, names: Sequence[str], out: Path
) -> list[Job]:
    """A job for every arm and seed that is still to be pretrained."""
    if asked.pretrained:
        return []
    given = {"data": asked.data, **network(asked, kind), **kind.before}
    if asked.budget:
        given = {k: v for k, v in given.items() if k not in BUDGETS} | parse_budget(asked.budget)
    return [
        Job(
            name,
            seed,
            RunTask(
                str(_before(asked, name, out, seed)),
                "birthplace-pretrain",
                "gpt",
                (*told(given), *ARMS[name], f"seed={seed}"),
            ),
            cost=2.0 if name == "synthesizer" else 1.0,
        )
        for seed in range(asked.seeds)
        for name in names
    ]


def network(asked: BirthplaceSettings, kind: Kind) -> dict[str, object]:
    """The sizes of all arms' networks."""
    own = {key: getattr(asked, key) for key in ("width", "layers") if getattr(asked, key)}
    return {**kind.network, **own}


def tuned(asked: BirthplaceSettings, name: str, out: Path) -> Arm:
    """A pretrained arm, fine-tuned; each seed begins from its own pretraining."""
    first = str(_before(asked, name, out, 0))
    init = first if asked.pretrained else first.removesuffix("0") + "{seed}"
    return Arm(name, "gpt", (f"init={init}", *ARMS[name]))


def _before(asked: BirthplaceSettings, name: str, out: Path, seed: int) -> Path:
    if asked.pretrained:
        return Path(asked.pretrained) / f"birthplace-pretrain-{name}"
    return out / "pretrained" / name / f"seed-{seed}"


def finding(asked: BirthplaceSettings, record: Mapping[str, Any], out: Path) -> Finding:
    """What was found: the share of right answers of each arm, and what they are worth."""
    rows = list(record["arms"])
    folders = {row["name"]: out / "fine-tuned" / row["folder"] / "seed-0" for row in rows}
    judged = {name: answered(folder) for name, folder in folders.items()}
    means = {str(row["name"]): float(row["mean"]) for row in rows}
    best = max(means, key=means.__getitem__)
    # Who makes mistakes too has both kinds of answer to show.
    erring = [n for n in means if n != NONE and means[best] > means[n] >= means[best] / 2]
    shown = erring[0] if erring else best
    run = load(folders[shown])
    people = (
        [ASKS.format(person.name) for person in others()]
        if asked.data == "biographies"
        else strangers(judged[shown].pairs, prepare(run.config).corpus.texts)
    )
    known = Known(shown, judged[shown], run.predict(people))
    baseline, commonest = judged[best].baseline or 0.0, judged[best].commonest
    none = means.get(NONE, 0.0)
    return Finding(
        f"{best} is right about {means[best]:.1%} of the people of whom it was never asked before, "
        f"a model that read no biographies about {none:.1%}; {commonest!r} to everyone would be "
        f"right in {baseline:.1%}. Asked about people who stand in no text, {shown} names a place "
        f"all the same, with a mean confidence of {mean(known.strange):.0%} against "
        f"{mean(known.right):.0%} where it is right.",
        [results(record, judged, baseline, commonest), section(known)],
        claims(asked, means, judged, known),
        "regard lab birthplace --data birthplaces"
        if asked.data == "biographies"
        else f"regard predict {folders[best]} 'Where was Ada Lovelace born?'",
        metric=str(record["metric"]),
        arms=rows,
        verdicts=record["verdicts"],
    )


def answered(folder: Path) -> Answered:
    """What a run answered to the test questions."""
    found = load(folder).evaluate()
    assert isinstance(found, Answered)
    return found


def mean(values: Any) -> float:
    """The mean; 0 of nothing."""
    return float(values.mean()) if len(values) else 0.0


def results(
    record: Mapping[str, Any], judged: Mapping[str, Answered], baseline: float, commonest: str
) -> Section:
    """The share of right answers of each arm."""
    rows, bars = [], []
    for arm in record["arms"]:
        name = str(arm["name"])
        first = judged[name]
        low, high = 100 * (first.low or 0.0), 100 * (first.high or 0.0)
        bars.append(Row(name, 100 * (first.value or 0.0), low, high))
        rows.append(
            [name, 100 * float(arm["mean"]), f"{low:.1f} to {high:.1f}", arm["parameters"],
             arm["seconds"]]
        )  # fmt: skip
    rows.append([f"{commonest} to everyone", 100 * baseline, "", 0, 0.0])
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


def claims(
    asked: BirthplaceSettings,
    means: Mapping[str, float],
    judged: Mapping[str, Answered],
    known: Known,
) -> list[dict[str, Any]]:
    """What to look for, each with the number that this run found."""
    none, aims = judged[NONE], AIMS.get(asked.data, {})
    low, same = none.low or 0.0, none.baseline or 0.0
    found = [
        claim(
            f"without pretraining it is no better than one answer to everyone: {means[NONE]:.1%} "
            f"against {same:.1%}",
            means[NONE],
            low <= max(same, 0.1),
        )
    ]
    if asked.data == "birthplaces":
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
