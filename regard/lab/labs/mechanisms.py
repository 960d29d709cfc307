"""Which mechanism of attention is better at what, and at what cost?

Every mechanism of the table `regard.attention.MECHANISMS` replaces multi-head attention in the same
decoder, on three puzzles and on a language model of letters. All arms of a task have equal
parameters, by the hidden layer of their feed-forward networks, the best of five learning rates on
validation, and are trained until validation stops; seeds are added until each difference is
decided. A second table compares them at equal time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.attention.mechanisms import MECHANISMS
from regard.lab.labs.collection import (
    RATES,
    TO_THE_END,
    CollectionLab,
    Member,
    by_standing,
    finished,
    seeds_needed,
)
from regard.lab.labs.comparison import ComparisonLab, Preset, Result, Values
from regard.lab.labs.equal import equalized
from regard.lab.labs.lab import Findings
from regard.lab.reports.answer import percent
from regard.lab.reports.findings import Cell
from regard.lab.studies.arms import Arm
from regard.lab.studies.statistics import format_p
from regard.lab.tasks import unit_of
from regard.lab.tasks.pretraining.evaluation import BY_TOKENS

PLAIN = "multi-head"
QUICK_ARMS = (PLAIN, "gated", "linear", "delta")
#: Options of mechanisms: the default numbers of keys would hold most of these short inputs.
OPTIONS = {"moba": "moba-4-2", "dsa": "dsa-8"}
NETWORK: Values = {
    **TO_THE_END,
    "width": 32, "heads": 2, "layers": 2, "feedforward": 128, "position": "rotary", "steps": 1500,
}  # fmt: skip
#: In place of a search and of training to the end.
QUICK: Values = {"learning_rate": 3e-3, "schedule": "linear", "average": 0, "patience": 0}
SEEDS = (3, 10)


@dataclass(frozen=True)
class AtTime:
    """The score of an arm when the fastest arm of the same seed ended, and the arm's own seconds.

    ``score`` is None if a seed was not validated until then.
    """

    score: float | None
    seconds: float


def at_equal_time(result: Result) -> dict[str, AtTime]:
    """Return the mean over seeds of each arm's last validation until the fastest arm had ended.

    The score is the metric, or the loss in nats for a language model. Seeds that not all arms have
    completed are left out.
    """
    logs = {
        arm.name: {folder.name: regard.load(folder).metrics() for folder in finished(arm)}
        for arm in result.arms
    }
    seeds = set.intersection(*map(set, logs.values())) if logs else set()
    if not seeds:
        return {}
    key = "validation_loss" if result.record["metric"] == BY_TOKENS else "validation"
    ends = {seed: min(runs[seed][-1]["seconds"] for runs in logs.values()) for seed in seeds}
    scores = {}
    for name, runs in logs.items():
        last = [
            [row[key] for row in runs[seed]
             if row["seconds"] <= ends[seed] and row["validation"] is not None][-1:]
            for seed in seeds
        ]  # fmt: skip
        score = float(np.mean([value for (value,) in last])) if all(last) else None
        seconds = float(np.mean([runs[seed][-1]["seconds"] for seed in seeds]))
        scores[name] = AtTime(score, seconds)
    return scores


def shown(result: Result, score: float | None) -> str:
    """Return a validation score with its unit: a share in per cent, a loss in nats."""
    if score is None:
        return "not validated yet"
    return f"{score:.3f} nats" if result.record["metric"] == BY_TOKENS else f"{percent(score)} %"


def times(result: Result) -> Findings:
    """Return the table of scores at equal time."""
    scores: Mapping[str, AtTime] = result.measured
    if not scores:
        return Findings({}, {"fastest": 0.0})
    fastest = min(one.seconds for one in scores.values())
    rows: list[Sequence[Cell]] = [
        [name, shown(result, one.score), f"{one.seconds:.1f}", f"{one.seconds / fastest:.2f}"]
        for name, one in scores.items()
    ]
    columns = ["mechanism", "score", "seconds of its training", "of the fastest"]
    return Findings({}, {"fastest": fastest}, tables={"times": (columns, rows)})


def rows(task: str, result: Result) -> list[list[Cell]]:
    """Return the rows of a task in the summary."""
    unit = unit_of(str(result.record["metric"]))
    plain = result.arm(PLAIN)
    table: list[list[Cell]] = []
    for row in result.record["arms"]:
        mean, low, high = (unit.write(row[key]) for key in ("mean", "low", "high"))
        verdict = result.verdict(row["name"], PLAIN)
        ends = (
            [unit.write(verdict[key], "+") for key in ("difference", "low", "high")]
            if verdict
            else []
        )
        table.append(
            [
                task, str(row["name"]), f"{mean}{unit.sign} ({low} to {high})",
                difference(verdict, ends) if verdict else "",
                f"{row['seconds'] / plain['seconds']:.2f}" if plain and row["seconds"] else "",
                str(row["training"]),
                result.standing(str(row["name"]), PLAIN) if verdict else "",
            ]
        )  # fmt: skip
    return table


def difference(verdict: Mapping[str, Any], ends: Sequence[str]) -> str:
    """Return a difference with its interval and p, and the seeds that would decide it."""
    says = f"{ends[0]} ({ends[1]} to {ends[2]}), {format_p(verdict['p'])}"
    if verdict.get("verdict") != "undecided":
        return says
    return f"{says}; decided by about {seeds_needed(verdict)} seeds"


def member(name: str, question: str, task: str, settings: Values, quick: Values,
           data: str = "") -> Member:  # fmt: skip
    """Return the comparison of all mechanisms on a task."""
    arms = [Arm(one, "gpt", (f"attention={OPTIONS.get(one, one)}",)) for one in MECHANISMS]
    lab = ComparisonLab(
        question=question,
        task=task,
        arms=arms,
        reference=PLAIN,
        presets={
            data or task: Preset(SEEDS[1], {**NETWORK, **settings}, least=SEEDS[0], search=RATES)
        },
        adapt=equalized,
        measure=at_equal_time,
        page=Path(__file__).with_name("mechanisms-task.md"),
        findings=times,
    )
    return Member(
        name,
        lab,
        lambda result: rows(name, result),
        quick={**QUICK, **quick},
        quick_arms=QUICK_ARMS,
    )


def summary(table: Sequence[Sequence[Cell]]) -> Findings:
    """Return which mechanisms are ahead, behind, or neither, by task."""
    columns = ["task", "mechanism", "score (95 %)", "difference (95 %), Holm", "time", "training",
               "verdict"]  # fmt: skip
    standings = {
        task: by_standing([row for row in table if row[0] == task])
        for task in dict.fromkeys(str(row[0]) for row in table)
    }
    return Findings({}, {"standings": standings}, tables={"summary": (columns, table)})


LAB = CollectionLab(
    members=[
        member(
            "mqar", "Which mechanism recalls the values of several keys?", "mqar",
            {"symbols": 64, "train_length": 24, "pairs": 3},
            {"symbols": 32, "train_length": 16, "pairs": 2, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "selective-copying", "Which mechanism copies what stands among noise?",
            "selective-copying",
            {"symbols": 8, "copied": 5, "train_length": 20},
            {"symbols": 4, "copied": 3, "train_length": 12, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "sorting", "Which mechanism sorts?", "sorting",
            {"symbols": 16, "train_length": 12, "shortest": 4, "metric": "accuracy"},
            {"symbols": 8, "train_length": 6, "shortest": 3, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "language", "Which mechanism predicts the next letter?", "language-modeling",
            {"length": 64, "batch_size": 32, "evaluate_every": 100, "steps": 1200},
            {"steps": 30, "evaluate_every": 5}, data="pydoc",
        ),
    ],
    page=Path(__file__).with_suffix(".md"),
    findings=summary,
)  # fmt: skip
