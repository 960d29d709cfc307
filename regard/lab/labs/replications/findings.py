"""The table of published findings: their sources, their settings here, and how they are decided.

Settings are smaller than the published ones.
"""

from collections.abc import Sequence

import numpy as np

from regard.lab.labs.collection import TO_THE_END, Member
from regard.lab.labs.comparison import Result, Values
from regard.lab.labs.intervals import in_words
from regard.lab.labs.replications.curves import (
    Curves,
    Lengths,
    curves_of,
    learning_findings,
    lengths_findings,
)
from regard.lab.labs.replications.outcomes import (
    Finding,
    above,
    at_lengths,
    below,
    better,
    both,
    fails,
    member,
    over_seeds,
    same,
    solves,
)
from regard.lab.studies.arms import Arm

ZOOLOGY = "Arora et al. 2023 (2312.04927), figure 2"
OLSSON = "Olsson et al. 2022 (2209.11895)"
VELICKOVIC = "Veličković et al. 2024 (2410.01104)"
ENTMAX = "Vasylenko et al. 2025 (2506.16640), table 1"
KAZEMNEJAD = "Kazemnejad et al. 2023 (2305.19466)"
POWER = "Power et al. 2022 (2201.02177); Nanda et al. 2023 (2301.05217)"
GRAZZI = "Grazzi et al. 2025 (2411.12537)"
SIEMS = "Siems et al. 2025 (2502.10297)"
KIMI = "Kimi team 2025 (2510.26692)"

TRAINING: Values = {
    **TO_THE_END, "steps": 2000, "width": 32, "heads": 2, "layers": 2, "feedforward": 128,
}  # fmt: skip
#: Pairs that two layers of attention recall within some hundred steps, and a sum of products of
#: positive features with as many columns does not keep apart.
RECALLED: Values = {
    "symbols": 64, "train_length": 32, "pairs": 8, "heads": 1, "feedforward": 64,
    "position": "rotary",
}  # fmt: skip
QUICK: Values = {"learning_rate": 3e-3, "steps": 300, "examples": 5000, "held_out": 200}


def gpt(name: str, *settings: str) -> Arm:
    """Return an arm of the decoder."""
    return Arm(name, "gpt", settings)


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
    [
        Finding("attention solves associative recall", ZOOLOGY, "about 100 %, 2 layers",
                solves("2 layers"), ("2 layers",)),
        Finding("one layer of attention does not", "When recalling in-context (2508.19029)",
                "fails", fails("1 layer", at_budget=True), ("1 layer", "2 layers")),
        Finding("states of constant size recall less at the same width", ZOOLOGY,
                "attention ahead of all models without it",
                both(better("2 layers", "linear", at_budget=True),
                     better("2 layers", "retention", at_budget=True)),
                ("linear", "2 layers", "retention")),
        Finding("the delta rule recalls what linear attention forgets",
                "Yang et al. 2024 (2406.06484)", "DeltaNet about 100 %, linear attention less",
                better("delta", "linear", at_budget=True), ("delta", "linear")),
    ],
    pairs=[("delta", "linear")],
    differs="8,192 symbols, 100,000 examples, up to 64 epochs at four rates there; {symbols} "
    "symbols, {pairs} pairs among {train_length}, all models with at most {steps} steps here",
    hours=2.2,
    settings={**TRAINING, **RECALLED, "steps": 6000, "patience": 20},
    quick={**QUICK, "symbols": 32, "train_length": 16, "pairs": 2, "width": 32},
)  # fmt: skip

HYBRID = member(
    "hybrid",
    "How many layers of full attention does recall need?",
    "mqar",
    [
        gpt("none", "attention=linear"),
        gpt("1 of 4", "attention=linear*3/multi-head"),
        gpt("2 of 4", "attention=linear/multi-head"),
        gpt("all", "attention=multi-head"),
    ],
    [
        Finding("recall jumps with the first layers of full attention", "Wang et al. 2025 "
                "(2507.06457)", "recall rises up to one layer in three to six",
                better("1 of 4", "none", at_budget=True), ("1 of 4", "none")),
        Finding("one layer of full attention in four recalls as much as four", "Wang et al. 2025 "
                "(2507.06457)", "little gain beyond one in three to six",
                same("all", "1 of 4"), ("all", "1 of 4")),
    ],
    pairs=[("all", "1 of 4")],
    differs="72 models of 340 million and 1.3 billion there; 4 layers of width {width} here",
    hours=0.8,
    settings={**TRAINING, **RECALLED, "layers": 4, "steps": 3000, "patience": 20},
    quick={**QUICK, "symbols": 32, "train_length": 16, "pairs": 2, "width": 32},
)  # fmt: skip


def rises(result: Result) -> tuple[float, float, float]:
    """Return the steps of the rise over the steps before it."""
    curves: dict[str, Curves] = result.measured or {}
    return over_seeds(result, curves["2 layers"].rises() if "2 layers" in curves else [])


INDUCTION = member(
    "induction",
    "Does a repetition need two layers, and are they learned suddenly?",
    "induction",
    [gpt("2 layers"), gpt("1 layer", "layers=1")],
    [
        Finding("two layers form induction heads, one does not", OLSSON, "picture",
                both(solves("2 layers"), fails("1 layer", at_budget=True)),
                ("2 layers", "1 layer")),
        Finding("induction heads form in a phase change", OLSSON, "picture",
                both(solves("2 layers"), lambda result: below(rises(result), 2.0)), ("2 layers",),
                lambda result: "from 10 to 90 % of the gain in " + in_words(rises(result))
                + " times the steps before; 21 without a phase change"),
    ],
    differs="text there, random symbols here; a phase change is a rise in less than twice the "
    "steps before it",
    hours=0.1,
    settings={
        **TRAINING,
        "symbols": 32, "train_length": 24, "heads": 1, "position": "learned",
        "evaluate_every": 20, "patience": 15, "held_out": 300,
    },
    quick={**QUICK, "symbols": 16, "train_length": 12, "steps": 400, "evaluate_every": 10},
    measure=curves_of,
    figures=lambda result: learning_findings(result.measured, "Learning to continue a repetition"),
)  # fmt: skip


SIZES = (16, 64, 256, 1024)


def at_sizes(result: Result) -> str:
    """Return the scores of softmax at each number of items."""
    scores: Lengths = result.measured or {}
    return ", ".join(
        f"{100 * np.mean(values):.1f} at {n}" for n, values in scores.get("softmax", {}).items()
    )


def retrieval(name: str, question: str, levels: int, classes: int) -> Member:
    """Return the replication with a number of levels and classes."""
    return member(
        name,
        question,
        "max-retrieval",
        [
            Arm("softmax", "transformer", ()),
            Arm("scalable-softmax", "transformer", ("normalize=scalable-softmax",)),
        ],
        [
            Finding(f"attention disperses: the maximum of 1,024 items is missed ({levels} levels)",
                    VELICKOVIC, "98.6 / 94.3 / 81.3 / 53.8 % at 16 / 64 / 256 / 1k items",
                    fails("softmax", 0.9), ("softmax",), at_sizes),
            Finding(f"scalable softmax disperses less ({levels} levels)",
                    "Nakanishi 2025 (2501.19399)",
                    "longer texts are read better; for a temperature by entropy, 57.7 % in place "
                    "of 53.8 % at 1k (2410.01104)",
                    better("scalable-softmax", "softmax", at_budget=True),
                    ("scalable-softmax", "softmax")),
        ],
        differs="priorities are real numbers there, {levels} levels here, of which the highest "
        "of many items is almost always the same; trained on {shortest} to {train_length} items",
        hours=0.5,
        settings={
            **TRAINING,
            "levels": levels, "classes": classes, "train_length": 16, "shortest": 5,
            "test_length": 1024, "length": 1100, "held_out": 500, "heads": 1, "layers": 1,
            "feedforward": 64, "position": "none", "steps": 6000, "evaluate_every": 100,
            "patience": 12,
        },
        quick={**QUICK, "steps": 400, "levels": 16, "classes": 4, "held_out": 100},
        measure=lambda result: at_lengths(result, SIZES),
        figures=lambda result: lengths_findings(result.measured, "The maximum of more items"),
    )  # fmt: skip


RETRIEVAL = retrieval(
    "max-retrieval", "Does softmax find the maximum of more items than in training?", 32, 10
)
RETRIEVAL_FINE = retrieval(
    "max-retrieval-512", "Does it where the highest priorities are rare?", 512, 4
)

INDEXING = member(
    "indirect-indexing",
    "Which positions find the symbol so many places away from another?",
    "indirect-indexing",
    [gpt("rotary", "position=rotary"), gpt("pope", "position=pope")],
    [
        Finding("PoPE separates what from where", "Gopalakrishnan et al. 2025 (2509.10534)",
                "rotary 11.2 %, PoPE 94.8 %, 3 seeds", better("pope", "rotary", at_budget=True),
                ("pope", "rotary")),
    ],
    differs="longer texts and larger shifts there; {train_length} symbols, shifts to {reach} here",
    hours=0.8,
    settings={
        **TRAINING,
        "symbols": 8, "train_length": 6, "reach": 2, "width": 64, "steps": 9000, "patience": 20,
    },
    quick={**QUICK, "steps": 200},
)  # fmt: skip


FACTORS = (6, 12, 24)


def by_factor(result: Result) -> str:
    """Return the scores at 1, 2 and 4 times the trained length."""
    scores: Lengths = result.measured or {}
    says = "; ".join(
        f"{name} " + " / ".join(f"{100 * np.mean(values):.1f}" for values in by_length.values())
        for name, by_length in scores.items()
    )
    return f"{says} % at {' / '.join(map(str, FACTORS))} symbols, trained on up to {FACTORS[0]}"


SORTING = member(
    "sorting",
    "Which normaliser sorts more symbols than in training?",
    "sorting",
    [gpt("softmax"), gpt("adaptive-entmax", "normalize=adaptive-entmax")],
    [
        Finding("softmax does not sort twice the trained length", ENTMAX, "0 %",
                fails("softmax", 0.5), ("softmax",), by_factor),
        Finding("adaptive entmax sorts longer inputs than softmax", ENTMAX,
                "100 / 79.7 % in place of 0 / 0 % at 2 / 4 times",
                better("adaptive-entmax", "softmax"), ("adaptive-entmax", "softmax"), by_factor),
    ],
    differs="larger models, ALiBi and no positions by head, longer training there; trained on "
    "{shortest} to {train_length} symbols, tested on {test_length}",
    hours=0.9,
    settings={
        **TRAINING,
        "symbols": 8, "train_length": 6, "shortest": 2, "test_length": 12, "held_out": 500,
        "position": "none", "steps": 6000, "patience": 40,
    },
    quick={**QUICK, "symbols": 8, "held_out": 100},
    measure=lambda result: at_lengths(result, FACTORS),
    figures=lambda result: lengths_findings(result.measured, "Results without a mistake"),
)  # fmt: skip


POSITIONS = ("none", "t5-bias", "alibi", "rotary", "learned")

LENGTHS = member(
    "length",
    "Which positions sort longer inputs than in training?",
    "sorting",
    [gpt(name, f"position={name}") for name in POSITIONS],
    [
        Finding("no positions extrapolate better than rotary and learned ones", KAZEMNEJAD,
                "ranking: none, T5 bias, ALiBi, rotary, absolute",
                both(better("none", "rotary"), better("none", "learned")),
                ("none", "rotary", "learned")),
        Finding("T5's bias extrapolates better than rotary positions", KAZEMNEJAD,
                "ranking: none, T5 bias, ALiBi, rotary, absolute", better("t5-bias", "rotary"),
                ("t5-bias", "rotary")),
        Finding("ALiBi extrapolates better than rotary positions", "Press et al. 2022 (2108.12409)",
                "perplexity of longer texts", better("alibi", "rotary"), ("alibi", "rotary")),
        Finding("rotary positions extrapolate better than learned ones", "Su et al. 2021 "
                "(2104.09864)", "any length", better("rotary", "learned"), ("rotary", "learned")),
    ],
    pairs=[("t5-bias", "rotary"), ("alibi", "rotary"), ("rotary", "learned")],
    differs="one of their tasks, trained on {shortest} to {train_length} symbols and tested on "
    "{test_length}; {layers} layers",
    hours=0.5,
    settings={
        **TRAINING,
        "symbols": 16, "train_length": 8, "shortest": 2, "test_length": 12, "held_out": 500,
        "metric": "accuracy", "steps": 6000, "patience": 12,
    },
    quick={**QUICK, "steps": 200, "symbols": 8, "held_out": 100},
)  # fmt: skip


def delay(result: Result) -> tuple[float, float, float]:
    """Return the steps up to 90 % of validation over those up to a training loss of 0.05 nats."""
    curves: dict[str, Curves] = result.measured or {}
    ratios: list[float] = []
    if decayed := curves.get("weight decay 1"):
        pairs = zip(decayed.learned(0.05), decayed.first(0.9), strict=True)
        ratios = [late / max(early, 1.0) for early, late in pairs]
    return over_seeds(result, ratios)


GROKKING = member(
    "grokking",
    "Does a network generalise addition long after it has memorised the examples?",
    "modular-addition",
    [gpt("weight decay 1", "weight_decay=1"), gpt("no weight decay", "weight_decay=0")],
    [
        Finding("sums are memorised first and generalised late", POWER,
                "test accuracy reaches 100 % long after training accuracy",
                both(solves("weight decay 1"), lambda result: above(delay(result), 2.0)),
                ("weight decay 1",),
                lambda result: "validation exceeds 90 % after " + in_words(delay(result))
                + " times the steps of memorising"),
        Finding("weight decay makes them generalise", POWER, "most with weight decay",
                better("weight decay 1", "no weight decay"), ("weight decay 1", "no weight decay")),
    ],
    differs="modulus 97, up to 100,000 steps of 512 pairs there; modulus {modulus}, a share of "
    "{share}, {steps} steps of {batch_size} pairs here",
    hours=0.5,
    search=None,  # the papers' rate
    settings={
        **TRAINING,
        "modulus": 53, "share": 0.4, "width": 64, "heads": 4, "layers": 1, "feedforward": 256,
        "position": "learned", "length": 16, "steps": 16_000, "batch_size": 512,
        "learning_rate": 1e-3, "patience": 80, "average": 0,
    },
    quick={"modulus": 23, "steps": 1500, "evaluate_every": 25},
    seeds=(3, 6),
    measure=curves_of,
    figures=lambda result: learning_findings(result.measured, "Validation accuracy"),
)  # fmt: skip


#: One layer without positions, tested at twice the trained length.
TRACKING: Values = {
    **TRAINING, "layers": 1, "position": "none", "train_length": 32, "test_length": 64,
    "examples": 20_000, "held_out": 500, "patience": 12, "batch_size": 64,
}  # fmt: skip

PARITY = member(
    "parity",
    "Which states count modulo 2 beyond the trained length?",
    "counting",
    [
        gpt("β in (0, 2)", "attention=delta-reach-2"),
        gpt("β in (0, 1)", "attention=delta"),
        gpt("attention", "attention=multi-head"),
    ],
    [
        Finding("with negative eigenvalues the delta rule learns parity", GRAZZI, "100 %",
                solves("β in (0, 2)", 0.99), ("β in (0, 2)",)),
        Finding("without them it does not", GRAZZI, "at chance (theorem 1)",
                fails("β in (0, 1)", 0.9, at_budget=True), ("β in (0, 1)", "β in (0, 2)")),
        Finding("softmax attention of one layer does not learn parity", "Hahn 2020 (1906.06755)",
                "theorem", fails("attention", 0.9, at_budget=True), ("attention", "β in (0, 2)")),
    ],
    differs="3 to 40 bits, tested on 40 to 256 there; 2 to {train_length} here, {test_length}",
    hours=0.5,
    settings=TRACKING,
    quick={**QUICK, "steps": 600, "train_length": 16, "test_length": 32},
)  # fmt: skip


def products(name: str, question: str, task: str, what: str, **own: object) -> Member:
    """Return a replication about one and two products of Householder steps."""
    two, one = "2 products", "1 product"

    def arm(label: str, number: int) -> Arm:
        return gpt(label, f"attention=deltanet-reach-2-products-{number}")

    return member(
        name,
        question,
        task,
        [arm(two, 2), arm(one, 1)],
        [
            Finding(f"2 Householder products learn {what}", SIEMS, "100 %",
                    solves(two), (two,)),
            Finding(f"1 of them learns {what} less well", SIEMS, "fails beyond the trained length",
                    better(two, one, at_budget=True), (two, one)),
        ],
        differs="128 symbols, tested on 512 there; 2 to {train_length} here, {test_length}",
        hours=1,
        settings={
            **TRACKING, "width": 64, "heads": 8, "examples": 200_000, "steps": 8000,
            "patience": 20, **own,
        },
        quick={**QUICK, "steps": 300, "train_length": 8, "test_length": 16},
    )  # fmt: skip


MODULAR = products(
    "modular-counting", "Do rotations need two reflections?", "counting", "sums modulo 3",
    modulus=3, train_length=16, test_length=32,
)  # fmt: skip
PERMUTATIONS = products(
    "permutations", "How many Householder products does S₃ need?", "permutations", "S3",
    points=3, train_length=12, test_length=24,
)  # fmt: skip

STACK = member(
    "stack",
    "Does a decay per column help the delta rule?",
    "stack",
    [gpt("delta"), gpt("kda", "attention=kda")],
    [
        Finding("Kimi delta attention follows a stack better than the delta rule", KIMI,
                "KDA ahead of Gated DeltaNet", better("kda", "delta", at_budget=True),
                ("kda", "delta")),
    ],
    differs="Gated DeltaNet, longer texts there; delta, {train_length} symbols here",
    hours=0.5,
    settings={
        **TRAINING, "attention": "delta", "symbols": 8, "train_length": 24, "test_length": 24,
        "layers": 1, "position": "none", "steps": 3000,
    },
    quick={**QUICK, "train_length": 12, "test_length": 12},
)  # fmt: skip


INDEXER = member(
    "indexer",
    "Are keys better chosen one by one, by a trained indexer, or in blocks?",
    "mqar",
    [gpt("indexer", "attention=dsa-8"), gpt("blocks", "attention=moba-4-2")],
    [
        Finding("a trained indexer recalls more than routing to blocks, at equal keys read",
                "DeepSeek-AI 2025, DeepSeek-V3.2", "as good as full attention",
                better("indexer", "blocks"), ("indexer", "blocks")),
    ],
    differs="2,048 keys of 128,000 there; 8 keys of {train_length} here, trained from the start",
    hours=0.6,
    settings={**TRAINING, **RECALLED, "heads": 2, "steps": 8000, "patience": 20},
    quick={**QUICK, "symbols": 32, "train_length": 16, "pairs": 2},
)  # fmt: skip

MEMBERS: Sequence[Member] = (
    RECALL, HYBRID, INDUCTION, RETRIEVAL, RETRIEVAL_FINE, INDEXING, SORTING, LENGTHS, GROKKING,
    PARITY, MODULAR, PERMUTATIONS, STACK, INDEXER,
)  # fmt: skip
