"""The arms of the ladder, which arm each is built on, and the settings of each kind of data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from regard.errors import RegardError
from regard.labs import Order
from regard.labs.comparing import given, told
from regard.studies.arms import Arm
from regard.studies.budget import parse_budget

NAME = "sentiment"
TASK = "classification"
REFERENCE = "mean"
BLIND = ("mean", "attention-pool", "query-from-mean", "self-attention", "+residual")
LAYERED = (
    "self-attention", "+residual", "+positions", "+residual+positions", "+cls", "transformer"
)  # fmt: skip
ARMS = (*BLIND[:3], *LAYERED, "rnn", "cnn", "tfidf", "nb-svm")
#: Each rung and the arm from which it differs in exactly one setting.
BUILT_ON = {
    "attention-pool": "mean",
    "query-from-mean": "attention-pool",
    "self-attention": "mean",
    "+residual": "self-attention",
    "+positions": "self-attention",
    "+residual+positions": "+residual",
    "+cls": "+residual+positions",
}
#: What a residual is worth at each depth: question 2 of the exercise.
RESIDUALS = (("+residual", "self-attention"), ("+residual+positions", "+positions"))
BUDGETS = {"epochs", "steps", "tokens", "minutes"}
SELF_PRETRAINED = "self-pretrained"


@dataclass(frozen=True)
class Pretraining:
    """How an encoder is pretrained on the data's own texts, and how it is then fine-tuned."""

    network: Mapping[str, object]
    before: Mapping[str, object]
    after: Mapping[str, object]


@dataclass(frozen=True)
class Kind:
    """How the lab treats one kind of data.

    ``sizes`` and ``arms`` hold the data's and networks' settings, of all arms and of single arms
    that are no rungs. ``recipe`` and ``recipes`` hold the same of their training, wherever the
    defaults of training do not serve.
    """

    seeds: int
    sizes: Mapping[str, object] = field(default_factory=dict)
    arms: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    recipe: Mapping[str, object] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    pretraining: Pretraining | None = None


KINDS = {
    "reviews": Kind(
        seeds=3,
        sizes={
            "width": 48,
            "length": 40,
            "spread": 1.0,
            "dropout": 0.0,  # every word of these short texts counts
            "word_dropout": 0.0,
        },
        arms={"transformer": {"feedforward": 96}, "rnn": {"hidden": 32}, "cnn": {"filters": 32}},
        recipe={"learning_rate": 3e-3},  # small networks, three times as fast
    ),
    "imdb": Kind(  # chosen on validation by film
        seeds=3,
        sizes={"length": 500, "truncate": "ends", "vectors": "glove-50"},
        arms={
            "transformer": {
                "layers": 1,  # two learn the train split by heart
                "heads": 2,
                "feedforward": 200,
                "pool": "mean",
                "dropout": 0.3,
            },
            "tfidf": {"inverse_penalty": 10.0},
        },
        recipe={"learning_rate": 3e-3},
        recipes={"transformer": {"learning_rate": 1e-3}},
        # 91.8 % of the test, with 2.25 passes over the texts: docs/results/pretraining.md.
        pretraining=Pretraining(
            network={"length": 512, "width": 256, "layers": 3, "heads": 4, "feedforward": 1024}
            | {"position": "rotary", "norm": "pre", "tokenizer": "words", "vocabulary": 20_000},
            before={"tokens": 42_600_000, "batch_tokens": 8192, "share": 0.25, "dropout": 0.0}
            | {"optimizer": "muon", "learning_rate": 3e-3, "weight_decay": 0.1}
            | {"schedule": "cosine", "validation": 0.01, "evaluate_every": 1000},
            after={"epochs": 2, "schedule": "linear", "batch_tokens": 8192}
            | {"learning_rate": 3e-4, "dropout": 0.1},
        ),
    ),
    "file": Kind(seeds=3, sizes={"length": 256}),
}


@dataclass(frozen=True)
class Plan:
    """What is run.

    ``arms`` have their own settings, ``overrides`` are those of all arms that have them.
    ``rungs``: the pairs that differ in one setting and are compared beside the reference.
    ``depths``: layers of each layered arm, where they are swept. ``pretraining``: the settings of
    the run that the self-pretrained arm begins from, one for each seed.
    """

    arms: list[Arm]
    overrides: list[str]
    seeds: int
    rungs: list[tuple[str, str]]
    depths: list[int] = field(default_factory=list)
    pretraining: dict[str, object] = field(default_factory=dict)


def plan_for(order: Order) -> Plan:
    """Return the lab's settings for this kind of data under the user's own.

    The user's budget replaces the lab's. ``layers=3`` holds for the arms that have layers;
    ``layers=1,3,6`` trains these arms alone, at each depth. ``pretrained=RUN`` begins the
    self-pretrained arm from that run, ``pretrained=none`` leaves the arm out.

    Errors: a pair that is not ``key=value``; layers that are no numbers; ``pretrained`` where no
    arm is pretrained. Other settings are checked by the comparison.
    """
    data = order.data or "reviews"
    kind = KINDS.get(data, KINDS["file"])
    mine = given(order)
    depths = _depths(mine.pop("layers", ""))
    pretrained = mine.pop("pretrained", "")
    if pretrained and kind.pretraining is None:
        raise RegardError(f"pretrained={pretrained}: no arm is pretrained on {data}; leave it out")
    own_budget = bool(order.budget) or bool(BUDGETS & mine.keys())

    def left(settings: Mapping[str, object]) -> dict[str, object]:
        dropped = mine.keys() | (BUDGETS if own_budget else set())
        return {name: value for name, value in settings.items() if name not in dropped}

    def arm(name: str, layers: int | None, label: str) -> Arm:
        own = left({**kind.arms.get(name, {}), **kind.recipes.get(name, {})})
        own |= {} if layers is None else {"layers": layers}
        return Arm(label, name, told(own))

    shared = {"data": data, **left({**kind.sizes, **kind.recipe}), **mine}
    seeds = order.seeds or kind.seeds
    if len(depths) > 1:
        swept = [arm(name, depth, at(name, depth)) for name in LAYERED for depth in depths]
        rungs = [(at(a, depth), at(b, depth)) for a, b in RESIDUALS for depth in depths]
        return Plan([arm(REFERENCE, None, REFERENCE), *swept], list(told(shared)), seeds, rungs,
                    depths)  # fmt: skip
    layers = depths[0] if depths else None
    arms = [arm(name, layers if name in LAYERED else None, name) for name in ARMS]
    rungs = [(rung, base) for rung, base in BUILT_ON.items() if base != REFERENCE]
    before: dict[str, object] = {}
    if kind.pretraining and pretrained != "none":
        sizes = {**kind.pretraining.network, **{k: v for k, v in mine.items()
                                                if k in kind.pretraining.network}}  # fmt: skip
        after = {"init": pretrained} if pretrained else sizes
        arms.append(Arm(SELF_PRETRAINED, "bert", told({**after, **left(kind.pretraining.after)})))
        budget = {k: v for k, v in mine.items() if k in BUDGETS}
        budget |= parse_budget(order.budget) if order.budget else {}
        if not pretrained:
            before = {"data": data, **sizes, **left(kind.pretraining.before), **budget}
    return Plan(arms, list(told(shared)), seeds, rungs, [], before)


def at(name: str, depth: int) -> str:
    """Return what an arm is called at a depth: short, for the names beside a chart."""
    return f"{name} ×{depth}"


def _depths(layers: str) -> list[int]:
    parts = [part.strip() for part in layers.split(",")] if layers else []
    if not all(part.isdigit() and int(part) for part in parts) or len({*parts}) < len(parts):
        raise RegardError(
            f"layers={layers}: give a number of layers, or several to compare: layers=1,3,6"
        )
    return [int(part) for part in parts]
