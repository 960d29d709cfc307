"""Which mechanism of attention is better at what, and at what cost?

Every mechanism of the table `regard.attention.MECHANISMS` replaces multi-head attention in the same
decoder, on three puzzles and on a language model of letters. All arms of a task have equal
parameters, by the hidden layer of their feed-forward networks, and equal steps; a second table
compares them at equal time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

import regard
from regard.attention.mechanisms import MECHANISMS
from regard.labs.collection import CollectionLab, Member
from regard.labs.comparison import ComparisonLab, Plan, Preset, Result, Values
from regard.labs.equal import equal_parameters
from regard.reports.answer import percent
from regard.reports.findings import Cell, Section, Table
from regard.reports.scales import number
from regard.studies.arms import Arm
from regard.tasks import unit_of

PLAIN = "multi-head"
QUICK_ARMS = (PLAIN, "gated", "linear", "delta")
#: Options of mechanisms: blocks of the default size would hold most of these short inputs.
OPTIONS = {"moba": "moba-4-2"}
AHEAD, BEHIND, UNCLEAR = "ahead", "behind", "no evidence"
NETWORK: Values = {
    "width": 32, "heads": 2, "layers": 2, "feedforward": 128, "position": "rotary", "dropout": 0.0,
    "batch_size": 64, "learning_rate": 3e-3, "schedule": "linear",
}  # fmt: skip


def equalized(plan: Plan) -> Plan:
    """Give all arms as many parameters as multi-head attention has."""
    arms = equal_parameters(plan.task, plan.arms, plan.overrides, PLAIN)
    return replace(plan, arms=arms)


def at_equal_time(result: Result) -> dict[str, tuple[float, float]]:
    """Return each arm's mean validation score when the fastest arm had ended, and its seconds.

    A seed's score is that of its last validation until then, and 0 before the first.
    """
    logs = {
        arm.name: [regard.load(folder).metrics() for folder in arm.folders] for arm in result.arms
    }
    means = {name: float(np.mean([rows[-1]["seconds"] for rows in runs]))
             for name, runs in logs.items()}  # fmt: skip
    end = min(means.values())
    scores = {}
    for name, runs in logs.items():
        last = [
            max((row for row in rows if row["seconds"] <= end and row["validation"] is not None),
                key=lambda row: row["step"], default={"validation": 0.0})["validation"]
            for rows in runs
        ]  # fmt: skip
        scores[name] = float(np.mean(last)), means[name]
    return scores


def shown(result: Result, score: float) -> str:
    """Return a validation score with its unit: a share in per cent, a likelihood in nats."""
    if result.record["metric"] == "loss":
        return f"{-np.log(max(score, 1e-300)):.3f} nats"
    return f"{percent(score)} %"


def times_section(result: Result) -> list[Section]:
    """Return the table of scores at equal time."""
    scores: Mapping[str, tuple[float, float]] = result.measured
    fastest = min(seconds for _, seconds in scores.values())
    rows: list[Sequence[Cell]] = [
        [name, shown(result, score), f"{seconds:.1f}", f"{seconds / fastest:.2f}"]
        for name, (score, seconds) in scores.items()
    ]
    title = f"Validation after {number(fastest)} seconds, when the fastest arm had ended"
    columns = ["mechanism", "score", "seconds of its training", "of the fastest"]
    return [Section("At equal time", tables=[Table(title, columns, rows)])]


def verdict_of(result: Result, name: str) -> str:
    """Return whether there is evidence that a mechanism is ahead of multi-head attention."""
    verdict = result.verdict(name, PLAIN)
    if verdict is None or not verdict["p"] < 0.05:
        return UNCLEAR
    return AHEAD if verdict["difference"] > 0 else BEHIND


def rows(task: str, result: Result) -> list[list[Cell]]:
    """Return the rows of a task in the summary."""
    unit = unit_of(str(result.record["metric"]))
    plain = next(row for row in result.record["arms"] if row["name"] == PLAIN)
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
                f"{ends[0]} ({ends[1]} to {ends[2]}), p = {verdict['p']:.3f}" if verdict else "",
                f"{row['seconds'] / plain['seconds']:.2f}",
                verdict_of(result, str(row["name"])) if verdict else "",
            ]
        )  # fmt: skip
    return table


def member(name: str, question: str, task: str, settings: Values, quick: Values, data: str = "",
           seeds: int = 3) -> Member:  # fmt: skip
    """Return the comparison of all mechanisms on a task."""
    arms = [Arm(one, "gpt", (f"attention={OPTIONS.get(one, one)}",)) for one in MECHANISMS]
    lab = ComparisonLab(
        question=question,
        task=task,
        arms=arms,
        reference=PLAIN,
        presets={data or task: Preset(seeds=seeds, settings={**NETWORK, **settings})},
        adapt=equalized,
        measure=at_equal_time,
        figures=times_section,
    )
    return Member(name, lab, lambda result: rows(name, result), quick=quick, quick_arms=QUICK_ARMS)


def answer(table: Sequence[Sequence[Cell]]) -> list[str]:
    """Return which mechanisms are ahead, behind, or neither, by task."""
    sentences = []
    for task in dict.fromkeys(str(row[0]) for row in table):
        parts = []
        for verdict in (AHEAD, BEHIND, UNCLEAR):
            names = [str(row[1]) for row in table if row[0] == task and row[-1] == verdict]
            if names:
                parts.append(f"{verdict}: {', '.join(names)}")
        sentences.append(f"{task}, beside multi-head: {'; '.join(parts) or 'alone'}.")
    return sentences


LAB = CollectionLab(
    members=[
        member(
            "mqar", "Which mechanism recalls the values of several keys?", "mqar",
            {"symbols": 64, "train_length": 24, "pairs": 3, "steps": 300, "evaluate_every": 30},
            {"symbols": 32, "train_length": 16, "pairs": 2, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "selective-copying", "Which mechanism copies what stands among noise?",
            "selective-copying",
            {"symbols": 8, "copied": 5, "train_length": 20, "steps": 300, "evaluate_every": 30},
            {"symbols": 4, "copied": 3, "train_length": 12, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "sorting", "Which mechanism sorts?", "sorting",
            {"symbols": 16, "train_length": 12, "shortest": 4, "metric": "accuracy", "steps": 300,
             "evaluate_every": 30},
            {"symbols": 8, "train_length": 6, "shortest": 3, "steps": 200, "examples": 3000,
             "held_out": 200, "evaluate_every": 50},
        ),
        member(
            "language", "Which mechanism predicts the next letter?", "language-modeling",
            {"length": 64, "steps": 300, "batch_size": 32, "evaluate_every": 50},
            {"steps": 30}, data="pydoc",
        ),
    ],
    title="Mechanisms beside multi-head attention, at equal parameters and steps",
    columns=["task", "mechanism", "score (95 %)", "difference (95 %), Holm", "time", "says"],
    answer=answer,
    next="regard lab mechanisms size=full",
)  # fmt: skip
