"""The arms of the lab, and the settings of each kind of data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from regard.labs import Order
from regard.labs.comparing import given
from regard.studies.arms import Arm

ARMS = ("gru", "luong-dot", "luong-general", "luong-concat", "bahdanau", "transformer")
REFERENCE = "gru"
BUDGETS = {"epochs", "steps", "tokens", "minutes"}


@dataclass(frozen=True)
class Kind:
    """How the lab treats one kind of data: its task, settings of all arms and of single ones."""

    task: str
    seeds: int
    settings: Mapping[str, object]
    recurrent: Mapping[str, object] = field(default_factory=dict)
    transformer: Mapping[str, object] = field(default_factory=dict)


#: Chosen on validation: a GRU with dropout 0.4, and a small Transformer for 29,000 pairs. All arms
#: read the same batches for as many epochs, so that a difference is one of the models.
SENTENCES = Kind(
    task="translation",
    seeds=1,
    settings={"epochs": 18, "schedule": "linear", "average": 0.998, "batch_tokens": 4096}
    | {"evaluate_every": 440},
    recurrent={
        "width": 192,
        "hidden": 384,
        "dropout": 0.4,
        "learning_rate": 0.002,
    },
    transformer={
        "width": 128,
        "layers": 4,
        "heads": 4,
        "feedforward": 256,
        "dropout": 0.3,
        "learning_rate": 0.003,
        "warmup": 0.1,
    },
)
KINDS = {
    "dates": Kind(  # six runs in about a minute on two cores
        task="dates",
        seeds=1,
        settings={
            "locales": "en_US,fr,it,nl",
            "examples": 12_000,
            "steps": 700,  # in 320 the transformer learns nothing
            "schedule": "linear",
            "batch_tokens": 1024,
            "learning_rate": 6e-3,
            "warmup": 0.1,
            "dropout": 0.0,
            "evaluate_every": 175,
            "judged": 200,
        },
        recurrent={"width": 32, "hidden": 64, "spread": 1.0, "tie": 1},
        transformer={
            "width": 64,
            "layers": 1,
            "heads": 4,
            "feedforward": 128,
            "position": "rotary",
            "learning_rate": 4e-3,
        },
    ),
    "multi30k": SENTENCES,
    "eng-fra": SENTENCES,
}
OWN = Kind(task="translation", seeds=1, settings={})
NEXT = {
    "dates": "regard lab translation steps=1200 --out runs/lab-translation-1200",
    "multi30k": "regard lab translation --data multi30k source_name=en target_name=de",
}


@dataclass(frozen=True)
class Plan:
    """What is run: the task, the arms with their own settings, and those of all."""

    task: str
    arms: list[Arm]
    overrides: list[str]
    seeds: int


def plan_for(order: Order) -> Plan:
    """The lab's settings for this kind of data under the user's own.

    A budget of the user's replaces the lab's. Errors: a pair that is not ``key=value``; what names
    no setting is refused by the comparison.
    """
    data = order.data or "dates"
    kind = KINDS.get(data, OWN)
    mine = given(order)
    own_budget = bool(order.budget) or bool(BUDGETS & mine.keys())

    def left(settings: Mapping[str, object]) -> dict[str, object]:
        dropped = mine.keys() | (BUDGETS if own_budget else set())
        return {name: value for name, value in settings.items() if name not in dropped}

    arms = []
    for name in ARMS:
        own = left(kind.transformer if name == "transformer" else kind.recurrent)
        arms.append(Arm(name, name, tuple(f"{key}={value}" for key, value in own.items())))
    together = {"data": data, **left(kind.settings), **mine}
    overrides = [f"{name}={value}" for name, value in together.items()]
    return Plan(kind.task, arms, overrides, order.seeds or kind.seeds)


def place_for(order: Order) -> Path:
    """The folder that the lab writes into."""
    return order.out or Path("runs") / f"lab-translation-{Path(order.data or 'dates').stem}"
