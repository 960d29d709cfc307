"""Published findings about language models: which changes of attention predict letters better."""

from collections.abc import Sequence
from functools import partial

import numpy as np

import regard
from regard.lab.labs.collection import Member, finished
from regard.lab.labs.comparison import Result, Values
from regard.lab.labs.equal import equalized
from regard.lab.labs.intervals import in_words, interval
from regard.lab.labs.replications.findings import TRAINING, gpt
from regard.lab.labs.replications.outcomes import Finding, above, better, member, over_seeds, same

CHANGES = {
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
    "value residual": (
        "values of the first layer in later ones predict better",
        "Zhou et al. 2024 (2410.17897)",
        "a lower loss at equal parameters; nanochat's log: helps a lot",
    ),
    "depth attention": (
        "attention over depth predicts better than sums of layers",
        "Kimi team 2026 (2603.15031)",
        "a lower loss, more with depth",
    ),
    "delta hybrid": (
        "three layers of delta in four predict better than attention alone",
        "Wang et al. 2025 (2507.06457); Kimi team 2025 (2510.26692)",
        "flat in the share of full attention, or lower with KDA",
    ),
}

#: A model of letters, all arms with equal parameters and steps.
LETTERS: Values = {
    **TRAINING, "schedule": "linear", "average": 0, "patience": 0, "width": 64, "layers": 4,
    "feedforward": 256, "position": "rotary", "length": 64, "steps": 1000,
    "evaluate_every": 100,
}  # fmt: skip
of_letters = partial(
    member,
    task="language-modeling",
    data="pydoc",
    adapt=equalized,
    settings=LETTERS,
    quick={"learning_rate": 3e-3, "steps": 40, "width": 32},
    seeds=(3, 10),
    delta=0.5,
)

LANGUAGE = of_letters(
    "language",
    "Which changes of attention predict the next letter better?",
    arms=[
        gpt("plain"),
        gpt("differential", "attention=differential"),
        gpt("forgetting", "attention=forgetting"),
        gpt("qk-norm", "score=scaled-dot+qk-norm"),
        gpt("value residual", "attention=multi-head+value-residual"),
        gpt("depth attention", "residual=depth-attention"),
        gpt("delta hybrid", "attention=delta*3/multi-head"),
    ],
    findings=[
        Finding(*CHANGES[name], better(name, "plain", at_budget=True), (name, "plain"))
        for name in CHANGES
    ],
    differs="hundreds of millions of parameters there; 340,000 letters of Python's own help text, "
    "equal parameters and {steps} steps here",
    hours=1.5,
)  # fmt: skip

QIU = "Qiu et al. 2025 (2505.06708)"
EXCLUSIVE = "Exclusive self-attention (2603.09078)"
SENTENCE = "return a new list containing all items from the iterable in order"


def first_shares(result: Result) -> dict[str, dict[str, float]]:
    """Return the weight on the first token of each seed, over layers, heads, late queries."""
    return {
        one.name: {
            folder.name: float(np.mean([layer.weights[:, len(layer.weights[0]) // 2 :, 0]
                                        for layer in regard.load(folder).attention(SENTENCE)]))
            for folder in finished(one)
        }
        for one in result.arms
    }  # fmt: skip


def first_gap(result: Result) -> tuple[float, float, float]:
    """Return by how much a gate lowers the share of weight on the first token, by seed."""
    shares = result.measured or {}
    plain, gate = shares.get("plain", {}), shares.get("gate", {})
    return over_seeds(result, [plain[seed] - gate[seed] for seed in plain if seed in gate])


def shares_in_words(result: Result) -> str:
    """Return the share of weight on the first token of each arm."""
    shares = (result.measured or {}).items()
    return "weight on the first token, %: " + ", ".join(
        f"{name} {in_words(interval([*by_seed.values()]), 2, 100)}" for name, by_seed in shares
    )


STAGES = of_letters(
    "stages",
    "What do a gate and exclusive outputs change, alone and together?",
    arms=[
        gpt("plain"),
        gpt("gate", "attention=multi-head+gate"),
        gpt("exclusive", "attention=multi-head+exclusive"),
        gpt("both", "attention=multi-head+exclusive+gate"),
    ],
    findings=[
        Finding("a gate behind the attention predicts better", QIU,
                "a lower loss, models of 1.7 and 15 billion",
                better("gate", "plain", at_budget=True), ("gate", "plain")),
        Finding("a gate lowers the weight on the first token", QIU, "46.7 to 4.8 %",
                lambda result: above(first_gap(result), 0.0), ("gate", "plain"), shares_in_words),
        Finding("exclusive outputs predict better", EXCLUSIVE, "a lower loss, more with length",
                better("exclusive", "plain", at_budget=True), ("exclusive", "plain")),
        Finding("beside exclusive outputs a gate adds nothing", "modded-nanogpt, issue 317",
                "a log of runs", same("both", "exclusive"), ("both", "exclusive")),
    ],
    pairs=[("both", "exclusive")],
    differs="hundreds of millions of parameters and long texts there; letters of Python's own help "
    "text in windows of {length}, equal parameters and {steps} steps here",
    hours=1.2,
    measure=first_shares,
)  # fmt: skip


MEMBERS: Sequence[Member] = (LANGUAGE, STAGES)
