"""Three ways to pretrain: a decoder on next words, an encoder on masked words, both on spans.

All use the same texts and budget, and are fine-tuned on the same task with few labels.

Seed: CS224N 2022, lecture 10, "three ways to pretrain"; GPT, BERT and T5 in small.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from regard.core.settings import Settings
from regard.lab.labs.comparison import (
    BUDGETS,
    ComparisonLab,
    Plan,
    Preset,
    PretrainFirst,
    Pretraining,
    Result,
    pairs,
    parse_names,
    points_of,
)
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Row, interval_chart
from regard.lab.reports.findings import Cell
from regard.lab.runs import load
from regard.lab.runs.pretrain_first import WAYS
from regard.lab.studies.arms import Arm
from regard.lab.studies.result import claimed
from regard.lab.tasks.pretraining.masked_modeling import MaskedModeling

PRETRAINED = "pretrained {}"
#: As the seed has it, an encoder is also asked which sentence follows.
ASKED = {**{model: own for model, (_, own) in WAYS.items()}, "bert": ("next_sentence=true",)}
SAYS = {
    "bert": "an encoder: which words are hidden, does B follow A?",
    "gpt": "a decoder: what comes next?",
    "t5": "encoder and decoder: which spans are missing?",
}


class PretrainingOptions(Settings):
    """``models``: any of bert, gpt, t5; ``labels``: the labelled texts for fine-tuning.

    With 0 labels the number depends on the data (`PRESETS`). ``steps`` and ``--budget`` are those
    of the pretraining. Each seed has its own pretraining: with one seed the order of the three ways
    changes from run to run.
    """

    models: str = "bert,gpt,t5"
    labels: int = Field(0, ge=0)


PRESETS = {
    "reviews": Preset(
        seeds=5,
        settings={"examples": 800},
        arms={"t5": {"learning_rate": 3e-3}},  # chosen on validation texts
        pretraining=Pretraining(
            network={"width": 48, "heads": 2, "layers": 2, "feedforward": 96, "length": 40}
            | {"dropout": 0.0, "tokenizer": "words", "minimum": 2},
            before={"steps": 500, "learning_rate": 5e-3, "batch_tokens": 2_048}
            | {"schedule": "linear", "evaluate_every": 100_000},
            after={"validation": 0.2},  # a tenth would be too few to choose weights by
        ),
    ),
    "imdb": Preset(
        seeds=5,
        settings={"examples": 500},
        pretraining=Pretraining(
            network={"width": 128, "heads": 4, "layers": 4, "feedforward": 512, "length": 256}
            | {"dropout": 0.1, "tokenizer": "words", "vocabulary": 20_000, "truncate": "ends"},
            before={"steps": 6_000, "schedule": "linear", "learning_rate": 2e-3}
            | {"evaluate_every": 3_000},
            after={"epochs": 10, "schedule": "linear", "learning_rate": 5e-4}
            | {"batch_tokens": 4_096},
        ),
    ),
}


def adapt(plan: Plan) -> Plan:
    """Add a pretrained arm for each model. Raises: a model that the lab does not know."""
    options, preset = plan.options, plan.preset.pretraining
    models = parse_names("models", options.models, WAYS)
    assert preset is not None
    labels = {"examples": options.labels} if options.labels else {}
    mine = {key: value for key, value in plan.user_settings.items() if key not in BUDGETS}
    shared = {"data": plan.data, **plan.preset.settings, **preset.network, **preset.after}
    shared |= {**mine, **labels}
    before = pairs({k: v for k, v in plan.before().items() if k != "truncate"})
    own = {model: pairs(plan.preset.arms.get(model, {})) for model in models}
    return replace(
        plan,
        arms=[
            Arm(name, model, own[model])
            for model in models
            for name in (model, PRETRAINED.format(model))
        ],
        overrides=pairs(shared),
        reference=models[0],
        budget="",
        ladder=compared(models),
        pretrain_first=[
            PretrainFirst(PRETRAINED.format(model), WAYS[model][0], model,
                          (*before, *ASKED[model]), model)
            for model in models
        ],
        about=f"{', '.join(models)} on {plan.data}: {shared['examples']} labels, "
        f"{plan.seeds_each}",
    )  # fmt: skip


def compared(models: Sequence[str]) -> list[tuple[str, str]]:
    """Return the compared pairs: each model with and without pretraining, then all pretrained."""
    ways = [PRETRAINED.format(model) for model in models]
    return [*zip(ways, models, strict=True), *combinations(ways, 2)]


def models_of(result: Result) -> list[str]:
    """Return the models that were compared."""
    return [first.model for first in result.plan.pretrain_first]


def gains_of(result: Result) -> dict[str, Mapping[str, Any]]:
    """Return the gain of each model by pretraining."""
    names = models_of(result)
    gains = [(model, result.verdict(PRETRAINED.format(model), model)) for model in names]
    return {model: verdict for model, verdict in gains if verdict is not None}


def between(result: Result) -> list[Mapping[str, Any]]:
    """Return the comparison of every two ways to pretrain."""
    ways = combinations([PRETRAINED.format(model) for model in models_of(result)], 2)
    return [found for pair in ways if (found := result.verdict(*pair)) is not None]


def findings(result: Result) -> Findings:
    """Return the gain of each way to pretrain, and whether there is evidence for a best one."""
    bars = [Row(a.name, 100 * a.mean, 100 * a.low, 100 * a.high) for a in result.arms]
    gains, ways = gains_of(result), between(result)
    shared = dict(pair.split("=", 1) for pair in result.plan.overrides)
    least = result.plan.first_seeds
    rivals: list[list[Cell]] = [[f"{v['a']} − {v['b']}", *points_of(v)] for v in ways]
    return Findings(
        {model: gain_claim(gain) for model, gain in gains.items()},
        {
            "labels": shared["examples"],
            "seeds": f"{least}–{result.seeds}" if least < result.seeds else result.seeds,
            "verdicts": gains,
            "gains": sentences(gains.values()),
            "ranking": sentences(v for v in ways if claimed(v)),
            "rivals": bool(ways),
        },
        {"accuracy": interval_chart("Accuracy", bars, x_label="accuracy, %")},
        {"worth": worth(result, gains)}
        | ({"rivals": (["ways", "points", "95 %", "p (Holm)"], rivals)} if ways else {}),
    )


def sentences(verdicts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sentence of each verdict.

    >>> sentences([{"says": "pretrained gpt beats gpt"}])
    ['Pretrained gpt beats gpt.']
    """
    texts = [str(verdict["says"]) for verdict in verdicts]
    return [f"{text[:1].upper()}{text[1:].rstrip('.')}." for text in texts]


def gain_claim(gain: Mapping[str, Any]) -> tuple[float, bool]:
    """Return the claim that pretraining helps a model; it holds only with evidence."""
    points = float(gain["difference"])
    return points, points > 0 and claimed(gain)


def worth(
    result: Result, gains: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], list[list[Cell]]]:
    """Return the pretraining loss of each model, and its accuracy without and with pretraining."""
    means = result.means
    rows: list[list[Cell]] = []
    for model in models_of(result):
        seeds = int(result.arm(PRETRAINED.format(model)).get("seeds", result.seeds))
        loss, follows = learned(result.out, model, seeds)
        rows.append(
            [model, SAYS[model], loss, 100 * follows, 100 * means[model],
             100 * means[PRETRAINED.format(model)], *points_of(gains[model])]
        )  # fmt: skip
    columns = ["model", "is asked", "loss, nats", "next sentence right, %", "not pretrained, %",
               "pretrained, %", "gain, points", "95 %", "p (Holm)"]  # fmt: skip
    return columns, rows


def learned(out: Path, model: str, seeds: int) -> tuple[float, float]:
    """Return the mean loss of pretrained runs on unseen texts and their next-sentence accuracy.

    The accuracy is NaN for a model without that task."""
    losses, follows = [], []
    for seed in range(seeds):
        run = load(out / "pretrained" / model / f"seed-{seed}")
        losses.append(run.evaluate().other_metrics["loss"])
        if model == "bert":
            assert isinstance(run.task, MaskedModeling)
            with run.computing():
                follows.append(run.task.judge_next_sentence(run.network, "test")[0])
    return float(np.mean(losses)), float(np.mean(follows)) if follows else math.nan


LAB = ComparisonLab(
    task="classification",
    arms=[],
    presets=PRESETS,
    options=PretrainingOptions,
    adapt=adapt,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=lambda result: (
        "regard lab pretraining --data imdb"
        if result.plan.data == "reviews"
        else "regard train classification --data FEW.csv --pretrain-on MANY.txt"
    ),
    other_data_hint="with your own texts: regard train classification --data FEW.csv --pretrain-on "
    "MANY.txt",
)
