"""Which score and which normaliser matter for which task? All of them on three small tasks.

An arm is a score with a normaliser in an ordinary model. All else is equal, and each arm is
compared with scaled-dot × softmax. ``scores=…`` and ``normalizers=…`` select parts or add your own.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from regard.lab.labs.collection import CollectionLab, Member
from regard.lab.labs.comparison import ComparisonLab, Plan, Preset, Result, Values
from regard.lab.labs.lab import Findings
from regard.lab.labs.scores import figures, findings
from regard.lab.labs.scores.arms import (
    EVERY,
    FEW,
    ONCE,
    REFERENCE,
    ScoresOptions,
    arms_of,
    chosen,
    every,
    name_of,
    once,
)

FULL_SEEDS, QUICK_SEEDS = 5, 3
#: No running mean of the weights: it would lag behind in so few steps.
TRAINING: Values = {"batch_size": 32, "schedule": "cosine", "average": 0}
NETWORK: Values = {"width": 32, "heads": 1, "feedforward": 64, "dropout": 0.0}

RECALL: Values = {
    **TRAINING, **NETWORK, "layers": 2, "position": "none", "pattern": "window-1/none",
    "length": 64, "learning_rate": 2e-3, "symbols": 64, "pairs": 8, "train_length": 32,
    "steps": 300, "evaluate_every": 30, "held_out": 500,
}  # fmt: skip
QUICK_RECALL: Values = {
    "symbols": 32, "pairs": 4, "train_length": 16, "steps": 150, "evaluate_every": 15,
    "examples": 5000, "held_out": 200,
}  # fmt: skip
SORTING: Values = {
    **TRAINING, **NETWORK, "layers": 1, "position": "learned", "length": 24,
    "learning_rate": 5e-3, "symbols": 8, "train_length": 8, "shortest": 8, "steps": 500,
    "evaluate_every": 50, "held_out": 500,
}  # fmt: skip
QUICK_SORTING: Values = {
    "train_length": 6, "shortest": 6, "steps": 200, "evaluate_every": 20,
    "examples": 5000, "held_out": 200,
}  # fmt: skip
REVIEWS: Values = {
    **TRAINING, **NETWORK, "layers": 1, "block": "pre-norm", "pool": "mean",
    "position": "sinusoidal", "word_dropout": 0.0, "init_std": 0.5, "length": 48,
    "learning_rate": 1e-2, "steps": 500, "evaluate_every": 50,
}  # fmt: skip
QUICK_REVIEWS: Values = {"steps": 250, "evaluate_every": 25}


def member(
    name: str,
    question: str,
    task: str,
    model: str,
    settings: Values,
    quick: Values,
    claims: Callable[[Result], Findings],
    data: str = "",
) -> Member:
    """Return the comparison of each score, and of each normaliser, on a task."""
    lab = ComparisonLab(
        question=question,
        task=task,
        arms=arms_of(ONCE, model),
        reference=REFERENCE,
        presets={data or task: Preset(seeds=FULL_SEEDS, settings=settings)},
        options=ScoresOptions,
        adapt=lambda plan: chosen(plan, once),
        measure=figures.measure,
        page=Path(__file__).with_name("member.md"),
        findings=lambda result: Findings.joined([claims(result), figures.single(result)]),
    )
    return Member(
        name, lab, lambda result: findings.rows(name, result), quick=quick, quick_seeds=QUICK_SEEDS
    )


def in_pairs(single: Member, model: str) -> Member:
    """Return the comparison of every score with every normaliser, on the task of a member."""
    name = f"{single.name}{findings.PAIRS}"
    lab = replace(
        single.lab,
        question="Do score and normaliser act together?",
        arms=arms_of(EVERY, model),
        adapt=_with_pair,
        measure=lambda result: None,
        page=Path(__file__).with_name("pairs.md"),
        findings=lambda result: Findings.joined(
            [findings.pairs_claims(result), Findings({}, {}, {"grid": figures.grid(result)})]
        ),
    )
    few = [name_of(*pair) for pair in FEW]
    return replace(
        single, name=name, lab=lab, rows=lambda result: findings.rows(name, result),
        quick_arms=few,
    )  # fmt: skip


def _with_pair(plan: Plan) -> Plan:
    """Compare sparsemax with a bounded score and with scaled-dot, if both take part."""
    plan = chosen(plan, every)
    names = {arm.name for arm in plan.arms}
    both = findings.TOGETHER
    return replace(plan, ladder=[both] if names.issuperset(both) else [])


RECALLING = member(
    "recall", "Which find a value by its key?", "mqar", "gpt", RECALL, QUICK_RECALL,
    findings.recall_claims,
)  # fmt: skip
SORTED = member(
    "sorting", "Which count and sort?", "sorting", "gpt", SORTING, QUICK_SORTING,
    findings.sorting_claims,
)  # fmt: skip
READING = member(
    "reviews", "Which read word order and negation?", "classification", "transformer", REVIEWS,
    QUICK_REVIEWS, findings.reviews_claims, data="reviews",
)  # fmt: skip

LAB = CollectionLab(
    members=[RECALLING, SORTED, READING, in_pairs(RECALLING, "gpt"), in_pairs(SORTED, "gpt")],
    page=Path(__file__).with_suffix(".md"),
    findings=findings.summary,
)
