"""Knowledge from pretraining: where was NAME born? Assignment 5 of CS224N 2022, part 2.

A model trained only on questions cannot know the answers for other people; the same model
pretrained on texts that contain the answers can, if its attention is able to extract them.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from regard.core.settings import Settings
from regard.lab.data.biographies import others
from regard.lab.data.birthplaces import ASKS
from regard.lab.labs.birthplace.knowing import Known, described, strangers
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
)
from regard.lab.labs.lab import Findings
from regard.lab.reports.figures import Row, interval_chart
from regard.lab.runs import load
from regard.lab.runs.build import prepare
from regard.lab.studies.arms import Arm
from regard.lab.tasks.birthplace.evaluation import COMMONEST
from regard.lab.tasks.evaluation import Evaluation

NONE = "not pretrained"


class BirthplaceOptions(Settings):
    """``arms``: a subset of vanilla, rotary, synthesizer; other settings apply to both trainings.

    ``--budget`` is the budget of each pretraining; ``pretrained``: a folder with complete runs
    ``birthplace-pretrain-ARM`` to fine-tune.
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
    # Hours on two cores. Rotary reached 47.2 % (docs/results/pretraining.md): facts are memorized,
    # which dropout hinders; fine-tuning on 1,800 questions needs dropout. The synthesizer needs a
    # higher rate there: 19.6 % of the held-out questions at 3e-4 and at 6e-4, 9.3 % at 1e-4.
    "birthplaces": Preset(
        seeds=1,
        arms={
            NONE: {
                "epochs": 75,
                "learning_rate": 6e-4,
                "batch_tokens": 8_192,
                "evaluate_every": 26,
            },
            "synthesizer": {"learning_rate": 3e-4},
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
    """Give each chosen arm its own pretraining, with the user's budget.

    Raises: an unknown arm.
    """
    options, preset = plan.options, plan.preset.pretraining
    names = parse_names("arms", options.arms, ARMS)
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
    mine = {key: value for key, value in plan.user_settings.items() if key not in BUDGETS}

    def own(name: str) -> tuple[str, ...]:
        return pairs(plan.without_user_settings(plan.preset.arms.get(name, {})))

    network = {"data": plan.data, **preset.network, **preset.after, **mine}
    return replace(
        plan,
        arms=[
            Arm(NONE, "gpt", pairs(plan.preset.arms[NONE])),
            *(Arm(name, "gpt", (*ARMS[name], *own(name))) for name in names),
        ],
        overrides=pairs(network),
        budget="",
        pretrain_first=first,
        about=f"{', '.join(names)}; {plan.seeds_each}; data: {plan.data}",
    )


@dataclass(frozen=True)
class BirthplaceAnswers:
    """Each arm's answers, the best arm, and the answers whose confidence is examined."""

    judged: Mapping[str, Evaluation]
    best: str
    known: Known

    @property
    def baseline(self) -> float:
        """Accuracy of the most frequent answer."""
        return self.judged[self.best].trivial.get(COMMONEST, 0.0)


def measure(result: Result) -> BirthplaceAnswers:
    """Read the answers of each arm, and ask about people in no text."""
    folders = {arm.name: arm.folders[0] for arm in result.arms}
    judged = {name: load(folder).evaluate() for name, folder in folders.items()}
    means = result.means
    best = max(means, key=means.__getitem__)
    # Prefer an arm with both right and wrong answers.
    erring = [n for n in means if n != NONE and means[best] > means[n] >= means[best] / 2]
    shown = erring[0] if erring else best
    run = load(folders[shown])
    people = (
        [ASKS.format(person.name) for person in others()]
        if result.plan.data == "biographies"
        else strangers([x.text for x in judged[shown].examples], prepare(run.config).corpus.texts)
    )
    return BirthplaceAnswers(judged, best, Known(shown, judged[shown], run.predict(people)))


def findings(result: Result) -> Findings:
    """Return the accuracy of each arm and the confidence of the answers."""
    measured, means = result.measured, result.means
    judged, known = measured.judged, measured.known
    values = {
        "best": measured.best, "best_right": means[measured.best],
        "none_right": means.get(NONE, 0.0), "commonest": judged[measured.best].summary["commonest"],
        "constant": measured.baseline, "sure_of_right": mean(known.right),
    }  # fmt: skip
    claims = claims_of(result.plan.data, means, judged, known)
    return Findings.joined([Findings({}, values), claims, results(result), described(known)])


def mean(values: Any) -> float:
    """Return the mean, or 0 without values."""
    return float(values.mean()) if len(values) else 0.0


def results(result: Result) -> Findings:
    """Return the accuracy of each arm."""
    judged = result.measured.judged
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
    commonest = judged[result.measured.best].summary["commonest"]
    rows.append([f"always {commonest}", 100 * result.measured.baseline, "", 0, 0.0])
    columns = ["arm", "right, %", "Wilson 95 %, seed 0", "parameters", "fine-tuning, s"]
    chart = interval_chart("Right answers", bars, x_label="right answers, %", reference=NONE)
    return Findings(
        {},
        {"questions": judged[NONE].n},
        {"right": chart},
        {"right-table": (columns, rows)},
    )


def claims_of(
    data: str, means: Mapping[str, float], judged: Mapping[str, Evaluation], known: Known
) -> Findings:
    """Return the claims with the numbers of a run."""
    none, aims = judged[NONE], AIMS.get(data, {})
    low, same = none.low or 0.0, none.trivial.get(COMMONEST, 0.0)
    claims = {"none": (means[NONE], low <= max(same, 0.1))}
    if data == "birthplaces":
        claims["constant"] = (same, round(same, 3) == 0.05)
    aims = {name: aim for name, aim in aims.items() if name in means}
    claims |= {name: (means[name], means[name] >= aim) for name, aim in aims.items()}
    apart = known.separation
    if not math.isnan(apart):
        claims["apart"] = (apart, 0.5 < apart < 1)
    share = float(np.mean([bool(text.text) for text in known.strangers]))
    claims["strangers"] = (share, share > 0.9)
    values = {
        "constant_of_none": same,
        "commonest_of_none": none.summary["commonest"],
        "aims": aims,
    }
    return Findings(claims, values)


AIMS = {
    "biographies": {"vanilla": 0.5, "rotary": 0.5},
    "birthplaces": {"vanilla": 0.25, "rotary": 0.45, "synthesizer": 0.12},
}


def following(result: Result) -> str:
    """Return the command for the real data, or a question for the best run."""
    if result.plan.data == "biographies":
        return "regard lab birthplace --data birthplaces"
    best = next(arm for arm in result.arms if arm.name == result.measured.best)
    return f"regard predict {quote(str(best.folders[0]))} 'Where was Ada Lovelace born?'"


LAB = ComparisonLab(
    task="birthplace",
    arms=[Arm(NONE, "gpt")],
    presets=PRESETS,
    options=BirthplaceOptions,
    adapt=adapt,
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=following,
    other_data_hint="for your own data: regard train birthplace-pretrain --data TEXTS, then "
    "regard train birthplace --init",
)
