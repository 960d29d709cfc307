"""Three ways to pretrain: a decoder (what comes next), an encoder (which words are hidden), both
(which spans are missing). One text, one budget, one task to be fine-tuned on with few labels.

Seed: CS224N 2022, lecture 10, "three ways to pretrain"; GPT, BERT and T5 in small.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import DRY_RUN, Planned, follow, forecast, points_of, pretrain, told
from regard.labs.finding import Finding, claim, conclude, place, settings_for
from regard.reports.answer import percent
from regard.reports.figures import Row, interval_chart
from regard.reports.findings import Cell, Figure, Section, Table
from regard.runs import load
from regard.runs.before import WAYS
from regard.settings import Settings
from regard.studies.arms import Arm
from regard.studies.compare import Study, compare
from regard.studies.job import RunTask
from regard.studies.launch import Job
from regard.tasks.pretraining.evaluation import Likelihoods
from regard.tasks.pretraining.masked_modeling import MaskedModeling

NAME = "pretraining"
TASK = "classification"
PRETRAINED = "pretrained {}"
#: As the seed has it, an encoder is also asked which sentence follows.
ASKED = {**{model: own for model, (_, own) in WAYS.items()}, "bert": ("next_sentence=true",)}
SAYS = {
    "bert": "an encoder: which words are hidden, does B follow A?",
    "gpt": "a decoder: what comes next?",
    "t5": "encoder and decoder: which spans are missing?",
}


class PretrainingSettings(Settings):
    """``data``: "reviews" or "imdb", its labelled part to fine-tune on, all of it to pretrain on.

    ``labels``: so many labelled texts; ``steps`` of pretraining; ``models``: which of bert, gpt,
    t5. What is 0 is the data's own choice (`KINDS`). Each seed has a pretraining of its own: with
    one seed the order of the three ways changes from run to run.
    """

    data: str = "reviews"
    models: str = "bert,gpt,t5"
    labels: int = Field(0, ge=0)
    steps: int = Field(0, ge=0)
    seeds: int = Field(5, ge=1)
    workers: int = Field(0, ge=0)
    width: int = Field(0, ge=0)
    layers: int = Field(0, ge=0)


@dataclass(frozen=True)
class Kind:
    """How the lab treats one set of data: labels, the network, how it is trained twice.

    ``own``: what a model is fine-tuned by otherwise, with and without pretraining.
    """

    labels: int
    network: Mapping[str, object]
    before: Mapping[str, object]
    after: Mapping[str, object]
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


KINDS = {
    "reviews": Kind(
        labels=800,
        network={"width": 48, "heads": 2, "layers": 2, "feedforward": 96, "length": 40}
        | {"dropout": 0.0, "tokenizer": "words", "minimum": 2},
        before={"steps": 500, "learning_rate": 5e-3, "batch_tokens": 2_048}
        | {"schedule": "linear", "evaluate_every": 100_000},
        after={"validation": 0.2},  # a tenth would be too few to choose weights by
        own={"t5": ("learning_rate=3e-3",)},  # chosen on validation texts
    ),
    "imdb": Kind(
        labels=500,
        network={"width": 128, "heads": 4, "layers": 4, "feedforward": 512, "length": 256}
        | {"dropout": 0.1, "tokenizer": "words", "vocabulary": 20_000, "truncate": "ends"},
        before={"steps": 6_000, "schedule": "linear", "learning_rate": 2e-3}
        | {"evaluate_every": 3_000},
        after={"epochs": 10, "schedule": "linear", "learning_rate": 5e-4, "batch_tokens": 4_096},
    ),
}


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Pretrain each model, fine-tune it and one that was not pretrained; the JSON object."""
    asked = settings_for(order, PretrainingSettings)
    kind, models = plan_for(asked)
    out = place(NAME, order)
    labels = asked.labels or kind.labels
    say(LABS[NAME].question)
    say(f"{', '.join(models)} on {asked.data}: {labels} labels, {asked.seeds} seed(s) each")
    pretrain(pretraining(asked, kind, models, out), asked.workers, show)
    arms = arms_of(kind, models, out)
    comparison = compare(
        TASK,
        arms,
        seeds=asked.seeds,
        reference=arms[0].name,
        out=out / "fine-tuned",
        overrides=told(shared(asked, kind)),
        workers=asked.workers or None,
        ladder=pairs(models),
        on_event=follow(show),
    )
    return conclude(NAME, order, finding(asked, labels, models, comparison.record(), out), say)


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Make one step of each pretraining and fine-tuning, and forecast the lab's time."""
    asked = settings_for(order, PretrainingSettings)
    kind, models = plan_for(asked)
    out = place(NAME, order)
    jobs = [job for job in pretraining(asked, kind, models, out) if job.seed == 0]
    planned = [Planned(f"{job.task.model}, pretraining", job.task, asked.seeds) for job in jobs]
    arms = [Arm(model, model, kind.own.get(model, ())) for model in models]
    study = Study.plan(TASK, [*arms, Arm("nb-svm", "nb-svm")], seeds=1, out=out / DRY_RUN,
                       overrides=told(shared(asked, kind)))  # fmt: skip
    planned += [
        Planned(f"{job.arm}, fine-tuning", job.task, 2 * asked.seeds)
        for job in study.jobs()
        if job.arm in models
    ]
    return forecast(NAME, planned, asked.workers or 2, say)


def shared(asked: PretrainingSettings, kind: Kind) -> dict[str, object]:
    """Return what all fine-tunings have in common."""
    labels = asked.labels or kind.labels
    return {"data": asked.data, "examples": labels, **network(asked, kind), **kind.after}


def arms_of(kind: Kind, models: Sequence[str], out: Path) -> list[Arm]:
    """Return each model without and with its pretraining."""
    return [arm for model in models for arm in tuned(model, out, kind.own.get(model, ()))]


def pairs(models: Sequence[str]) -> list[tuple[str, str]]:
    """Return what is compared: each pretraining with none, then every two ways to pretrain."""
    ways = [PRETRAINED.format(model) for model in models]
    return [*zip(ways, models, strict=True), *combinations(ways, 2)]


def plan_for(asked: PretrainingSettings) -> tuple[Kind, list[str]]:
    """The data's settings and the models. Errors: data or a model that the lab does not know."""
    models = [name.strip() for name in asked.models.split(",") if name.strip()]
    if unknown := [name for name in models if name not in WAYS] or ([] if models else ["none"]):
        raise RegardError(f"models={asked.models}: {unknown[0]!r} is none of {', '.join(WAYS)}")
    if asked.data not in KINDS:
        raise RegardError(
            f"--data {asked.data}: this lab knows {' and '.join(KINDS)}; with your own texts: "
            "regard train classification --data FEW.csv --pretrain-on MANY.txt"
        )
    return KINDS[asked.data], models


def pretraining(
    asked: PretrainingSettings, kind: Kind, models: Sequence[str], out: Path
) -> list[Job]:
    """A job for every model and seed."""
    sizes = {k: v for k, v in network(asked, kind).items() if k != "truncate"}
    given = {"data": asked.data, **sizes, **kind.before}
    given |= {"steps": asked.steps} if asked.steps else {}
    return [
        Job(
            PRETRAINED.format(model),
            seed,
            RunTask(
                str(out / "pretrained" / model / f"seed-{seed}"),
                WAYS[model][0],
                model,
                (*told(given), *ASKED[model], f"seed={seed}"),
            ),
        )
        for seed in range(asked.seeds)
        for model in models
    ]


def network(asked: PretrainingSettings, kind: Kind) -> dict[str, object]:
    """The sizes of all networks, and how texts are cut into tokens."""
    own = {key: getattr(asked, key) for key in ("width", "layers") if getattr(asked, key)}
    return {**kind.network, **own}


def tuned(model: str, out: Path, own: tuple[str, ...]) -> list[Arm]:
    """A model from random weights, and the same from its pretraining of the same seed."""
    init = out / "pretrained" / model / "seed-{seed}"
    return [Arm(model, model, own), Arm(PRETRAINED.format(model), model, (f"init={init}", *own))]


def finding(
    asked: PretrainingSettings,
    labels: int,
    models: Sequence[str],
    record: Mapping[str, Any],
    out: Path,
) -> Finding:
    """Return what each way of pretraining was worth, and whether one is shown to be worth more."""
    arms = list(record["arms"])
    declared = {(v["a"], v["b"]): v for v in record["verdicts"] if v["family"] == "ladder"}
    gains = {model: declared[PRETRAINED.format(model), model] for model in models}
    between = [v for (_, b), v in declared.items() if b not in gains]
    bars = [
        Row(str(a["name"]), 100 * float(a["mean"]), 100 * float(a["low"]), 100 * float(a["high"]))
        for a in arms
    ]
    chart = interval_chart("Accuracy", bars, x_label="accuracy, %")
    tables = [worth(asked, labels, models, record, gains, out)]
    if between:
        tables.append(rivals(between))
    return Finding(
        " ".join([f"Fine-tuned on {labels} labels, {asked.seeds} seed(s).",
                  *told_gains(gains), *told_ranking(between)]),
        [
            Section(
                "What is pretraining on texts without labels worth?",
                ["Each model has the same sizes and the same number of steps of pretraining; each "
                 "seed has a pretraining of its own."],
                [Figure(chart, "Accuracy on the test texts, with 95 % intervals.")],
                tables,
            )
        ],
        [gain_claim(model, gain) for model, gain in gains.items()],
        "regard lab pretraining --data imdb"
        if asked.data == "reviews"
        else "regard train classification --data FEW.csv --pretrain-on MANY.txt",
        metric=str(record["metric"]),
        arms=arms,
        verdicts=record["verdicts"],
    )  # fmt: skip


def told_gains(gains: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each model: the gain of pretraining, or that none is shown."""
    return [_sentence(gain["says"]) for gain in gains.values()]


def told_ranking(between: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the order of the ways as far as there is evidence for one."""
    sure = [_sentence(v["says"]) for v in between if float(v["p"]) < 0.05]
    if not between or sure:
        return sure
    return ["There is no evidence that one way to pretrain is better than another."]


def _sentence(says: str) -> str:
    return f"{says[:1].upper()}{says[1:].rstrip('.')}."


def gain_claim(model: str, gain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claim that pretraining helps a model, which takes evidence to hold."""
    points, low, high = (float(gain[key]) for key in ("difference", "low", "high"))
    says = (
        f"{model}: pretraining lifts accuracy by {percent(points)} points "
        f"({percent(low)} to {percent(high)}), with evidence (p = {float(gain['p']):.2g})"
    )
    return claim(says, points, points > 0 and float(gain["p"]) < 0.05)


def worth(
    asked: PretrainingSettings,
    labels: int,
    models: Sequence[str],
    record: Mapping[str, Any],
    gains: Mapping[str, Mapping[str, Any]],
    out: Path,
) -> Table:
    """Return what each model learned from texts, and its accuracy without and with that."""
    means = {str(row["name"]): float(row["mean"]) for row in record["arms"]}
    rows: list[list[Cell]] = []
    for model in models:
        loss, follows = learned(out, model, asked.seeds)
        gain = gains[model]
        rows.append(
            [model, SAYS[model], loss, 100 * follows, 100 * means[model],
             100 * means[PRETRAINED.format(model)], *points_of(gain)]
        )  # fmt: skip
    columns = ["model", "is asked", "loss, nats", "next sentence right, %", "not pretrained, %",
               "pretrained, %", "gain, points", "95 %", "p (Holm)"]  # fmt: skip
    note = (
        "Means over seeds, on texts that were not read. Losses of different ways cannot be "
        "compared: each asks something else. Of next sentences half follow: chance is 50 %."
    )
    return Table(f"Fine-tuned on {labels} labels", columns, rows, note)


def rivals(between: Sequence[Mapping[str, Any]]) -> Table:
    """Return every two ways to pretrain beside each other."""
    rows = [[f"{v['a']} − {v['b']}", *points_of(v)] for v in between]
    note = "Paired by seed; p after Holm over these and the gains of the table above."
    return Table("Is one way better than another?", ["ways", "points", "95 %", "p (Holm)"], rows,
                 note)  # fmt: skip


def learned(out: Path, model: str, seeds: int) -> tuple[float, float]:
    """Return the mean loss of pretrained runs on texts that they did not see, and how often they
    say rightly which sentence follows (NaN of a model that is not asked)."""
    losses, follows = [], []
    for seed in range(seeds):
        run = load(out / "pretrained" / model / f"seed-{seed}")
        found = run.evaluate()
        assert isinstance(found, Likelihoods)
        losses.append(found.loss)
        if model == "bert":
            assert isinstance(run.task, MaskedModeling)
            with run.computing():
                follows.append(run.task.judge_next_sentence(run.network, "test")[0])
    return float(np.mean(losses)), float(np.mean(follows)) if follows else math.nan
