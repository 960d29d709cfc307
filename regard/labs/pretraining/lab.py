"""Three ways to pretrain: a decoder (what comes next), an encoder (which words are hidden), both
(which spans are missing). One text, one budget, one task to be fine-tuned on with few labels.

Seed: CS224N 2022, lecture 10, "three ways to pretrain"; GPT, BERT and T5 in small.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field

from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import follow, pretrain, told
from regard.labs.finding import Finding, claim, conclude, place, settings_for
from regard.reports.figures import Row, interval_chart
from regard.reports.findings import Figure, Section, Table
from regard.runs import Likelihoods, load
from regard.runs.before import WAYS
from regard.settings import Settings
from regard.studies.arms import Arm
from regard.studies.compare import compare
from regard.studies.job import RunTask
from regard.studies.launch import Job

NAME = "pretraining"
TASK = "sentiment"
PRETRAINED = "pretrained {}"
SAYS = {
    "bert": "an encoder: which words are hidden?",
    "gpt": "a decoder: what comes next?",
    "t5": "encoder and decoder: which spans are missing?",
}


class PretrainingSettings(Settings):
    """``data``: "reviews" or "imdb", its labelled part to fine-tune on, all of it to pretrain on.

    ``labels``: so many labelled texts; ``steps`` of pretraining; ``models``: which of bert, gpt,
    t5. What is 0 is the data's own choice (`KINDS`).
    """

    data: str = "reviews"
    models: str = "bert,gpt,t5"
    labels: int = Field(0, ge=0)
    steps: int = Field(0, ge=0)
    seeds: int = Field(1, ge=1)
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
        | {"evaluate_every": 100_000},
        after={"epochs": 12, "learning_rate": 1e-3, "batch_tokens": 512, "evaluate_every": 30}
        | {"validation": 0.2},  # a tenth would be too few to choose weights by
        own={"t5": ("learning_rate=3e-3",)},  # chosen on validation texts
    ),
    "imdb": Kind(
        labels=500,
        network={"width": 128, "heads": 4, "layers": 4, "feedforward": 512, "length": 256}
        | {"dropout": 0.1, "tokenizer": "words", "vocabulary": 20_000, "truncate": "ends"},
        before={"steps": 6_000, "learning_rate": 2e-3, "evaluate_every": 3_000},
        after={"epochs": 10, "learning_rate": 5e-4, "batch_tokens": 4_096},
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
    arms = [arm for model in models for arm in tuned(model, out, kind.own.get(model, ()))]
    shared = {"data": asked.data, "examples": labels, **network(asked, kind), **kind.after}
    comparison = compare(
        TASK,
        arms,
        seeds=asked.seeds,
        reference=arms[0].name,
        out=out / "fine-tuned",
        overrides=told(shared),
        workers=asked.workers or None,
        ladder=[(PRETRAINED.format(model), model) for model in models],
        on_event=follow(show),
    )
    return conclude(NAME, order, finding(asked, labels, models, comparison.record(), out), say)


def plan_for(asked: PretrainingSettings) -> tuple[Kind, list[str]]:
    """The data's settings and the models. Errors: data or a model that the lab does not know."""
    models = [name.strip() for name in asked.models.split(",") if name.strip()]
    if unknown := [name for name in models if name not in WAYS] or ([] if models else ["none"]):
        raise RegardError(f"models={asked.models}: {unknown[0]!r} is none of {', '.join(WAYS)}")
    if asked.data not in KINDS:
        raise RegardError(
            f"--data {asked.data}: this lab knows {' and '.join(KINDS)}; with your own texts: "
            "regard train sentiment --data FEW.csv --pretrain-on MANY.txt"
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
                (*told(given), *WAYS[model][1], f"seed={seed}"),
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
    """What each way of pretraining was worth."""
    arms = list(record["arms"])
    means = {str(row["name"]): float(row["mean"]) for row in arms}
    gains = {model: means[PRETRAINED.format(model)] - means[model] for model in models}
    best = max(gains, key=gains.__getitem__)
    bars = [
        Row(str(a["name"]), 100 * float(a["mean"]), 100 * float(a["low"]), 100 * float(a["high"]))
        for a in arms
    ]
    chart = interval_chart("Accuracy", bars, x_label="accuracy, %")
    rows: list[list[str | float | int]] = [
        [model, SAYS[model], learned(out, model), 100 * means[model],
         100 * means[PRETRAINED.format(model)], 100 * gains[model]]
        for model in models
    ]  # fmt: skip
    columns = ["model", "is asked", "loss, nats", "not pretrained, %", "pretrained, %", "gain"]
    claims = [
        claim(f"{model}: pretraining changes accuracy by {100 * gain:+.1f} points", gain, gain > 0)
        for model, gain in gains.items()
    ]
    return Finding(
        f"With {labels} labels, pretraining on the texts alone lifts {best} by "
        f"{100 * gains[best]:.1f} points, to {means[PRETRAINED.format(best)]:.1%}: more than any "
        "other way here. One seed tells of these models, not of the ways in general."
        if asked.seeds == 1
        else f"With {labels} labels, pretraining lifts {best} by {100 * gains[best]:.1f} points, "
        f"to {means[PRETRAINED.format(best)]:.1%}.",
        [
            Section(
                "What is pretraining on texts without labels worth?",
                ["Each model has the same sizes and the same number of steps of pretraining."],
                [Figure(chart, "Accuracy on the test texts, with 95 % intervals.")],
                [Table(f"Fine-tuned on {labels} labels", columns, rows,
                       "Losses of different ways cannot be compared: each asks something else.")],
            )
        ],
        claims,
        "regard lab pretraining --data imdb"
        if asked.data == "reviews"
        else "regard train sentiment --data FEW.csv --pretrain-on MANY.txt",
        metric=str(record["metric"]),
        arms=arms,
        verdicts=record["verdicts"],
    )  # fmt: skip


def learned(out: Path, model: str) -> float:
    """The loss of a pretrained run on texts that it did not see, seed 0."""
    found = load(out / "pretrained" / model / "seed-0").evaluate()
    assert isinstance(found, Likelihoods)
    return found.loss
