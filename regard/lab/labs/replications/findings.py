"""The table of published findings: their sources, their settings here, and their verdicts.

Settings are smaller than the published ones, so that each takes less than an hour on two cores.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from regard.core.settings import key_of
from regard.lab.labs.collection import Member
from regard.lab.labs.comparison import Result, Values
from regard.lab.labs.equal import equal_parameters
from regard.lab.labs.intervals import in_words, interval
from regard.lab.labs.replications.curves import (
    Curves,
    Lengths,
    curves_of,
    learning_findings,
    lengths_findings,
)
from regard.lab.labs.replications.outcomes import (
    AGREES,
    UNCLEAR,
    Outcome,
    above,
    all_of,
    at_lengths,
    below,
    better,
    difference,
    mean_of,
    member,
    solved,
    unsolved,
    written,
)
from regard.lab.studies.arms import Arm

PERFECT, HALF = 0.95, 0.5  # accuracies that are called solved, and not solved
ZOOLOGY = "Arora et al. 2023, figure 2"
#: The learning rate falls to zero at the end of the steps.
TRAINING: Values = {"schedule": "linear", "learning_rate": 3e-3, "dropout": 0.0}


def gpt(name: str, *settings: str) -> Arm:
    """Return an arm of the decoder."""
    return Arm(name, "gpt", settings)


def recall_outcomes(result: Result) -> list[Outcome]:
    """Compare two layers of attention with one, and with states of constant size."""
    known = solved(result, "2 layers", PERFECT)
    behind = all_of(*(better(result, "2 layers", name) for name in ("linear", "retention")))
    return [
        Outcome(
            "attention solves associative recall", ZOOLOGY, "about 100 %, 2 layers",
            written(result, "2 layers"), mean_of(result, "2 layers"), known,
        ),
        Outcome(
            "one layer of attention does not", "When recalling in-context (2508.19029)", "fails",
            written(result, "1 layer"), difference(result, "2 layers", "1 layer"),
            all_of(known, unsolved(result, "1 layer", HALF)),
        ),
        Outcome(
            "states of constant size recall less at the same width", ZOOLOGY,
            "attention ahead of all models without it", written(result, "linear", "retention"),
            difference(result, "2 layers", "linear"), all_of(known, behind),
        ),
        Outcome(
            "the delta rule recalls what linear attention forgets",
            "Yang et al. 2024 (2406.06484)", "DeltaNet about 100 %, linear attention less",
            written(result, "delta", "linear"), difference(result, "delta", "linear"),
            better(result, "delta", "linear"),
        ),
    ]  # fmt: skip


RECALL = member(
    "recall",
    "Which models recall the values of several keys?",
    "mqar",
    [
        gpt("2 layers"),
        gpt("1 layer", "layers=1"),
        gpt("linear", "attention=linear"),
        gpt("retention", "attention=retention"),
        gpt("delta", "attention=delta"),
    ],
    recall_outcomes,
    pairs=[("delta", "linear")],
    settings={
        **TRAINING,
        "symbols": 128, "train_length": 32, "pairs": 4, "width": 64, "heads": 1, "layers": 2,
        "feedforward": 128, "position": "rotary", "steps": 700, "batch_size": 64,
        "evaluate_every": 100,
    },
    quick={
        "symbols": 32, "train_length": 16, "pairs": 2, "width": 32, "steps": 300, "batch_size": 32,
        "examples": 5000, "held_out": 200,
    },
)  # fmt: skip


def induction_outcomes(result: Result) -> list[Outcome]:
    """Compare one layer with two, and measure how sudden two layers learn."""
    curves: dict[str, Curves] = result.measured
    rise = interval(curves["2 layers"].rises()) if "2 layers" in curves else interval([])
    known = solved(result, "2 layers", PERFECT)
    source = "Olsson et al. 2022 (2209.11895)"
    return [
        Outcome(
            "two layers form induction heads, one does not", source, "picture",
            written(result, "2 layers", "1 layer"), difference(result, "2 layers", "1 layer"),
            all_of(known, unsolved(result, "1 layer", HALF)),
        ),
        Outcome(
            "induction heads form in a phase change", source, "picture",
            "from 10 to 90 % of the gain in " + in_words(rise) + " times the steps before",
            rise[0], all_of(known, below(rise, 1.0)),
        ),
    ]  # fmt: skip


INDUCTION = member(
    "induction",
    "Does a repetition need two layers, and are they learned suddenly?",
    "induction",
    [gpt("2 layers"), gpt("1 layer", "layers=1")],
    induction_outcomes,
    settings={
        **TRAINING,
        "symbols": 32, "train_length": 24, "width": 32, "heads": 1, "layers": 2,
        "feedforward": 128, "position": "learned", "steps": 2000, "batch_size": 32,
        "learning_rate": 2e-3, "evaluate_every": 40, "held_out": 300,
    },
    quick={
        "symbols": 16, "train_length": 12, "steps": 400, "examples": 5000, "held_out": 100,
        "evaluate_every": 10,
    },
    measure=curves_of,
    figures=lambda result: learning_findings(result.measured, "Learning to continue a repetition"),
)  # fmt: skip


SIZES = (16, 64, 256, 1024)


def retrieval_outcomes(result: Result) -> list[Outcome]:
    """Compare the accuracy at more items than in training with that of the trained number."""
    scores: Lengths = result.measured
    levels = next(pair for pair in result.plan.overrides if key_of(pair) == "levels")
    plain = scores.get("softmax", {n: [] for n in SIZES})
    means = {n: interval(values) for n, values in plain.items()}
    drop = interval([a - b for a, b in zip(plain[SIZES[0]], plain[SIZES[-1]], strict=True)])
    says = ", ".join(f"{100 * mean:.1f} at {n}" for n, (mean, _, _) in means.items())
    source = "Veličković et al. 2024 (2410.01104)"
    return [
        Outcome(
            f"attention disperses: the maximum of more items is missed ({levels})", source,
            "98.6 / 94.3 / 81.3 / 53.8 % at 16 / 64 / 256 / 1k items", f"{says} %", drop[0],
            above(drop, 0.1) if above(means[SIZES[0]], 0.8) == AGREES else UNCLEAR,
        ),
        Outcome(
            f"scalable softmax disperses less ({levels})", "Nakanishi 2025 (2501.19399)",
            "longer texts are read better; for a temperature by entropy, Veličković et al. have "
            "57.7 % in place of 53.8 % at 1k",
            written(result, "scalable-softmax", "softmax"),
            difference(result, "scalable-softmax", "softmax"),
            better(result, "scalable-softmax", "softmax"),
        ),
    ]  # fmt: skip


def retrieval(name: str, question: str, levels: int, classes: int, steps: int) -> Member:
    """Return the replication with a number of levels and classes."""
    return member(
        name,
        question,
        "max-retrieval",
        [
            Arm("softmax", "transformer", ()),
            Arm("scalable-softmax", "transformer", ("normalize=scalable-softmax",)),
        ],
        retrieval_outcomes,
        settings={
            **TRAINING,
            "levels": levels, "classes": classes, "train_length": 16, "shortest": 5,
            "test_length": 1024, "length": 1100, "held_out": 500, "width": 32, "heads": 1,
            "layers": 1, "feedforward": 64, "position": "none", "steps": steps, "batch_size": 64,
            "evaluate_every": 250,
        },
        quick={"steps": 400, "levels": 16, "classes": 4, "examples": 5000, "held_out": 100},
        measure=lambda result: at_lengths(result, SIZES),
        figures=lambda result: lengths_findings(result.measured, "The maximum of more items"),
    )  # fmt: skip


RETRIEVAL = retrieval(
    "max-retrieval", "Does softmax find the maximum of more items than in training?", 32, 10, 2500
)
RETRIEVAL_FINE = retrieval(
    "max-retrieval-128", "Does it with more levels, of which the highest is rare?", 128, 4, 3000
)


def indexing_outcomes(result: Result) -> list[Outcome]:
    """Compare PoPE with rotary positions."""
    return [
        Outcome(
            "PoPE separates what from where", "Gopalakrishnan et al. 2025 (2509.10534)",
            "rotary 11.2 %, PoPE 94.8 %, 3 seeds", written(result, "rotary", "pope"),
            difference(result, "pope", "rotary"), better(result, "pope", "rotary"),
        )
    ]  # fmt: skip


INDEXING = member(
    "indirect-indexing",
    "Which positions find the symbol so many places away from another?",
    "indirect-indexing",
    [gpt("rotary", "position=rotary"), gpt("pope", "position=pope")],
    indexing_outcomes,
    settings={
        **TRAINING,
        "symbols": 8, "train_length": 6, "reach": 2, "width": 64, "heads": 2, "layers": 2,
        "feedforward": 128, "steps": 3000, "batch_size": 64, "evaluate_every": 300,
    },
    quick={"steps": 200, "examples": 5000, "held_out": 200},
)  # fmt: skip


FACTORS = (8, 16, 32)


def sorting_outcomes(result: Result) -> list[Outcome]:
    """Compare results without a mistake beyond the trained length."""
    scores: Lengths = result.measured
    says = "; ".join(
        f"{name} " + " / ".join(f"{100 * np.mean(values):.1f}" for values in by_length.values())
        for name, by_length in scores.items()
    )
    trained = f"{says} % at {' / '.join(map(str, FACTORS))} symbols, trained on up to 8"
    source = "Vasylenko et al. 2025 (2506.16640), table 1"
    return [
        Outcome(
            "softmax does not sort beyond the trained length", source, "0 / 0 % at 2 / 4 times",
            trained, mean_of(result, "softmax"),
            all_of(*(below(interval(scores.get("softmax", {}).get(n, [])), 0.05)
                     for n in FACTORS[1:])),
        ),
        Outcome(
            "adaptive entmax sorts longer inputs than softmax", source,
            "100 / 79.7 % in place of 0 / 0 % at 2 / 4 times", trained,
            difference(result, "adaptive-entmax", "softmax"),
            better(result, "adaptive-entmax", "softmax"),
        ),
    ]  # fmt: skip


SORTING = member(
    "sorting",
    "Which normaliser sorts more symbols than in training?",
    "sorting",
    [
        gpt("softmax"),
        gpt("adaptive-entmax", "normalize=adaptive-entmax"),
    ],
    sorting_outcomes,
    settings={
        **TRAINING,
        "symbols": 16, "train_length": 8, "shortest": 2, "test_length": 16, "held_out": 500,
        "width": 32, "heads": 2, "layers": 2, "feedforward": 128, "position": "none",
        "steps": 2000, "batch_size": 64, "evaluate_every": 200,
    },
    quick={"steps": 300, "symbols": 8, "examples": 5000, "held_out": 100},
    measure=lambda result: at_lengths(result, FACTORS),
    figures=lambda result: lengths_findings(result.measured, "Results without a mistake"),
)  # fmt: skip


POSITIONS = ("none", "t5-bias", "alibi", "rotary", "learned")


def length_outcomes(result: Result) -> list[Outcome]:
    """Compare positions on longer inputs than in training."""
    source = "Kazemnejad et al. 2023 (2305.19466)"
    return [
        Outcome(
            "no positions extrapolate better than rotary and learned ones", source,
            "ranking: none, T5 bias, ALiBi, rotary, absolute",
            written(result, *POSITIONS), difference(result, "none", "rotary"),
            all_of(better(result, "none", "rotary"), better(result, "none", "learned")),
        ),
        Outcome(
            "T5's bias extrapolates better than rotary positions", source,
            "ranking: none, T5 bias, ALiBi, rotary, absolute", written(result, "t5-bias", "rotary"),
            difference(result, "t5-bias", "rotary"), better(result, "t5-bias", "rotary"),
        ),
    ]  # fmt: skip


LENGTHS = member(
    "length",
    "Which positions sort longer inputs than in training?",
    "sorting",
    [gpt(name, f"position={name}") for name in POSITIONS],
    length_outcomes,
    pairs=[("t5-bias", "rotary")],
    settings={
        **TRAINING,
        "symbols": 16, "train_length": 8, "shortest": 2, "test_length": 12, "held_out": 500,
        "metric": "accuracy", "width": 32, "heads": 2, "layers": 2, "feedforward": 128,
        "steps": 1000, "batch_size": 64, "evaluate_every": 100,
    },
    quick={"steps": 200, "symbols": 8, "examples": 5000, "held_out": 100},
)  # fmt: skip


def grokking_outcomes(result: Result) -> list[Outcome]:
    """Compare weight decay with none, and the steps of memorising with those of generalising."""
    curves: dict[str, Curves] = result.measured
    ratios: list[float] = []
    if decayed := curves.get("weight decay 1"):
        pairs = zip(decayed.learned(0.05), decayed.first(0.9), strict=True)
        ratios = [late / max(early, 1.0) for early, late in pairs]
    ratio = interval(ratios)
    says = f"validation exceeds 90 % after {in_words(ratio)} times the steps of memorising"
    source = "Power et al. 2022 (2201.02177); Nanda et al. 2023 (2301.05217)"
    share = next(pair for pair in result.plan.overrides if key_of(pair) == "share")
    return [
        Outcome(
            f"sums are memorised first and generalised late ({share})", source,
            "test accuracy reaches 100 % long after training accuracy",
            f"{written(result, 'weight decay 1')}; {says}", ratio[0],
            all_of(solved(result, "weight decay 1", PERFECT), above(ratio, 2.0)),
        ),
        Outcome(
            f"weight decay makes them generalise ({share})", source,
            "most with weight decay", written(result, "weight decay 1", "no weight decay"),
            difference(result, "weight decay 1", "no weight decay"),
            better(result, "weight decay 1", "no weight decay"),
        ),
    ]  # fmt: skip


def grokking(name: str, question: str, share: float, steps: int) -> Member:
    """Return the replication with a share of the pairs for training."""
    return member(
        name,
        question,
        "modular-addition",
        [gpt("weight decay 1", "weight_decay=1"), gpt("no weight decay", "weight_decay=0")],
        grokking_outcomes,
        settings={
            **TRAINING,
            "modulus": 53, "share": share, "width": 64, "heads": 4, "layers": 1,
            "feedforward": 256, "position": "learned", "length": 16, "steps": steps,
            "batch_size": 5000, "learning_rate": 1e-3, "schedule": "constant", "patience": 0,
            "average": 0, "evaluate_every": 50,
        },
        quick={"modulus": 23, "steps": 1500, "evaluate_every": 25},
        measure=curves_of,
        figures=lambda result: learning_findings(result.measured, "Validation accuracy"),
    )  # fmt: skip


GROKKING = grokking(
    "grokking",
    "Does a network generalise addition long after it has memorised the examples?",
    0.4,
    4000,
)
GROKKING_LESS = grokking("grokking-30", "Does it with fewer examples to memorise?", 0.3, 6000)


CHANGES = {
    "gated": (
        "a gate behind the attention predicts better",
        "Qiu et al. 2025 (2505.06708)",
        "a lower loss, models of 1.7 and 15 billion",
    ),
    "differential": (
        "differential attention predicts better",
        "Ye et al. 2024 (2410.05258)",
        "a lower loss, models up to 13 billion",
    ),
    "forgetting": (
        "forgetting attention predicts better",
        "Lin et al. 2025 (2503.02130)",
        "a lower loss of long texts, a model of 760 million",
    ),
    "qk-norm": (
        "QK-norm predicts better",
        "Henry et al. 2020 (2010.04245)",
        "a higher BLEU of translations with little data",
    ),
}


def language_outcomes(result: Result) -> list[Outcome]:
    """Compare each change with plain attention."""
    return [
        Outcome(
            finding, source, published, written(result, name, "plain"),
            difference(result, name, "plain"), better(result, name, "plain", at_budget=True),
        )
        for name, (finding, source, published) in CHANGES.items()
    ]  # fmt: skip


LANGUAGE = member(
    "language",
    "Which changes of attention predict the next letter better?",
    "language-modeling",
    [
        gpt("plain"),
        gpt("gated", "attention=gated"),
        gpt("differential", "attention=differential"),
        gpt("forgetting", "attention=forgetting"),
        gpt("qk-norm", "score=scaled-dot+qk-norm"),
    ],
    language_outcomes,
    data="pydoc",
    adapt=lambda plan: replace(
        plan, arms=equal_parameters(plan.task, plan.arms, plan.overrides, "plain")
    ),
    settings={
        **TRAINING,
        "width": 64, "heads": 2, "layers": 2, "feedforward": 256, "position": "rotary",
        "dropout": 0.0, "length": 64, "steps": 500, "batch_size": 32, "evaluate_every": 100,
    },
    quick={"steps": 40, "width": 32},
)  # fmt: skip

MEMBERS: Sequence[Member] = (
    RECALL, INDUCTION, RETRIEVAL, RETRIEVAL_FINE, INDEXING, SORTING, LENGTHS, GROKKING,
    GROKKING_LESS, LANGUAGE,
)  # fmt: skip
