"""The sentiment ladder: from the mean of word vectors to a transformer, rung by rung.

The rungs are those of the lab that regard comes from (AMAL, exercise 9): self-attention,
residual and LayerNorm, positions, CLS; below them the mean and two ways to pool, beside them what
else reads texts. The settings of each kind of data stand in `KINDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import conclude, follow
from regard.labs.finding import claim, command
from regard.labs.sentiment import word_order
from regard.models import MODELS
from regard.reports.answer import percent
from regard.reports.comparison import write_report
from regard.reports.evidence import Arm as Found
from regard.reports.evidence import arms_of
from regard.reports.scales import duration
from regard.settings import Settings
from regard.studies.arms import Arm
from regard.tasks import TASKS
from regard.training.settings import TrainingSettings

TASK = "sentiment"
REFERENCE = "mean"
BLIND = ("mean", "attention-pool", "query-from-mean", "self-attention", "+residual")
ARMS = (*BLIND, "+positions", "+cls", "transformer", "rnn", "cnn", "tfidf", "nb-svm")
LAYERED = ("self-attention", "+residual", "+positions", "+cls", "transformer")
RUNGS = (  # each on what it is built on; those built on the mean are compared with it anyway
    ("query-from-mean", "attention-pool"),
    ("self-attention", "query-from-mean"),
    ("+residual", "self-attention"),
    ("+positions", "self-attention"),
    ("+cls", "+residual"),
    ("transformer", "+cls"),
)


BUDGETS = {"epochs", "steps", "tokens", "minutes"}
NEXT = {
    "reviews": "regard lab sentiment --data imdb",
    "imdb": "regard compare sentiment --data imdb --arms transformer:heads=1,transformer:heads=8",
}


@dataclass(frozen=True)
class Kind:
    """How the lab treats one kind of data: seeds, settings of all arms, settings of single ones."""

    seeds: int
    settings: Mapping[str, object]
    arms: Mapping[str, Mapping[str, object]]


KINDS = {
    "reviews": Kind(  # 32 runs in less than a minute on two cores
        seeds=3,
        settings={
            "width": 48,
            "epochs": 5,
            "learning_rate": 5e-3,
            "batch_tokens": 1024,
            "evaluate_every": 52,
            "length": 40,
            "spread": 1.0,  # beside sine positions of size 1
            "dropout": 0.0,  # every word of these short texts counts
            "word_dropout": 0.0,
        },
        arms={
            **{name: {"layers": 1} for name in LAYERED},  # three take longer than a minute
            "transformer": {"layers": 2, "position": "rotary", "feedforward": 96},
            "rnn": {"hidden": 32},
            "cnn": {"filters": 32},
        },
    ),
    "imdb": Kind(  # chosen on validation by film; about an hour on two cores
        seeds=3,
        settings={
            "epochs": 2,
            "learning_rate": 3e-3,
            "batch_tokens": 6000,
            "length": 500,
            "truncate": "ends",
            "vectors": "glove-50",
        },
        arms={
            "+positions": {"spread": 0.5},  # sine positions of size 1 would drown the words
            "+cls": {"spread": 0.5},
            "transformer": {
                "layers": 1,  # two learn the train split by heart
                "learning_rate": 1e-3,
                "heads": 2,
                "spread": 0.1,
                "feedforward": 200,
                "position": "rotary",
                "pool": "mean",
                "dropout": 0.3,
            },
            "tfidf": {"inverse_penalty": 10.0},
        },
    ),
    "file": Kind(seeds=3, settings={"epochs": 8, "length": 256}, arms={}),
}


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Train every arm, compare, look at word order, write the report; the JSON object."""
    from regard.studies.compare import compare

    data, plan = order.data or "reviews", plan_for(order)
    out = order.out or Path("runs") / f"lab-sentiment-{Path(data).stem}"
    introduce(data, plan, say)
    comparison = compare(
        TASK,
        plan.arms,
        seeds=plan.seeds,
        budget=order.budget or None,
        reference=REFERENCE,
        out=out,
        overrides=plan.overrides,
        workers=order.workers,
        ladder=RUNGS,
        on_event=follow(show),
    )
    record = comparison.record()
    found = arms_of(record, out)
    pairs = read_pairs(found) if data == "reviews" else None
    record |= {
        "question": LABS[TASK].question,
        "data": data,
        "word_order": pairs,
        "claims": claims(record, data, pairs),
        "command": command(TASK, order),
    }
    record["report"] = str(write_report(record, out))
    table = comparison.table().splitlines()[: 1 + len(record["arms"])]
    conclude(record, table, found, NEXT.get(data, "regard lab sentiment"), say)
    return record


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Two batches and one step of each arm, and what all of them would take."""
    import torch

    plan = plan_for(order)
    introduce(order.data or "reviews", plan, say)
    threads, rows, total = torch.get_num_threads(), [], 0.0
    torch.set_num_threads(1)  # as the comparison's workers have it
    try:
        for arm in plan.arms:
            seconds, memory = _forecast(arm, plan, order.budget)
            rows.append({"name": arm.name, "seconds": seconds, "memory_mb": memory})
            total += seconds * (1 if arm.deterministic else plan.seeds)
            say(f"  {arm.name:<16} {duration(seconds):>8} a seed, {memory:,.0f} MB")
    finally:
        torch.set_num_threads(threads)
    workers = order.workers or 2
    say(f"in all about {duration(total / workers)} with {workers} workers")
    return {"task": TASK, "forecast": rows, "seconds": total / workers, "workers": workers}


def _forecast(arm: Arm, plan: "Plan", budget: str) -> tuple[float, float]:
    """Seconds and megabytes of one run of an arm."""
    from regard import runs
    from regard.studies.budget import parse_budget

    given = [f"{k}={v}" for k, v in (parse_budget(budget) if budget else {}).items()]
    fields = {field for part in _parts(arm.model) for field in part.model_fields}
    own = {key(pair) for pair in arm.overrides}
    shared = [p for p in plan.overrides if key(p) in fields and key(p) not in own]
    seen = runs.forecast(TASK, arm.model, [*shared, *given, *arm.overrides])
    return seen.seconds, seen.memory_mb


@dataclass(frozen=True)
class Plan:
    """What is run: the arms with their own settings, and those of all arms that have them."""

    arms: list[Arm]
    overrides: list[str]
    seeds: int


def plan_for(order: Order) -> Plan:
    """The lab's settings for this kind of data under the user's own.

    A budget of the user's replaces the lab's; `layers` is for the arms that have some, so that
    the mean stays a mean. Errors: a pair that is not ``key=value``; what
    names no setting is refused by the comparison.
    """
    data = order.data or "reviews"
    kind = KINDS.get(data, KINDS["file"])
    mine = {key(pair): pair.partition("=")[2].strip() for pair in order.overrides}
    for pair in order.overrides:
        if "=" not in pair:
            raise RegardError(f"settings are written key=value, not {pair!r}")
    usual = {"data": data, **kind.settings}
    if order.budget or BUDGETS & mine.keys():
        usual = {name: value for name, value in usual.items() if name not in BUDGETS}
    layers = {"layers": mine.pop("layers")} if "layers" in mine else {}
    arms = []
    for name in ARMS:
        own = {k: v for k, v in kind.arms.get(name, {}).items() if k not in mine}
        own |= layers if name in LAYERED else {}
        arms.append(Arm(name, name, tuple(f"{k}={v}" for k, v in own.items())))
    together = {**usual, **mine}
    overrides = [f"{name}={value}" for name, value in together.items()]
    return Plan(arms, overrides, order.seeds or kind.seeds)


def key(pair: str) -> str:
    """The setting that a ``key=value`` names."""
    return pair.partition("=")[0].strip().replace("-", "_")


def introduce(data: str, plan: Plan, say: Say) -> None:
    """The question and what will be done about it."""
    say(LABS[TASK].question)
    say(f"{len(plan.arms)} arms on {data}, {plan.seeds} seeds each (baselines once)")


def read_pairs(found: Sequence[Found]) -> dict[str, Any] | None:
    """What the first run of each arm says about sentences that differ in word order alone."""
    import regard
    from regard.data.sources import load_corpus

    predict: dict[str, Callable[[list[str]], Sequence[str]]] = {}
    for arm in found:
        try:
            run = regard.load(arm.folders[0])
        except (RegardError, IndexError):
            continue
        predict[arm.name] = _labels_of(run)
    return word_order.judge(word_order.pairs(load_corpus("reviews").train), predict) or None


def _labels_of(run: Any) -> Callable[[list[str]], list[str]]:
    return lambda texts: [prediction.label for prediction in run.predict(texts)]


def claims(
    record: Mapping[str, Any], data: str, pairs: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """What to look for, each with the number that this run found."""
    means = {row["name"]: float(row["mean"]) for row in record["arms"]}
    if data == "imdb":
        best = max(
            (name for name in means if MODELS[name].kind == "network"), key=means.__getitem__
        )
        return [
            claim(f"the mean of word vectors reaches 86.5 %: {percent(means['mean'])} %",
                   means["mean"], means["mean"] >= 0.865),
            claim(f"the best network, {best}, reaches 89.0 %: {percent(means[best])} %",
                   means[best], means[best] >= 0.89),
        ]  # fmt: skip
    return _claims_of_order(means, pairs) if data == "reviews" else []


def _claims_of_order(
    means: Mapping[str, float], pairs: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    blind = {name: means[name] for name in BLIND if name in means}
    found = []
    if blind:
        name = max(blind, key=blind.__getitem__)
        says = f"no arm that is blind to word order passes 75 %: {name}, the best of them, has"
        found.append(claim(f"{says} {percent(blind[name])} %", blind[name], blind[name] <= 0.75))
    if {"+positions", "self-attention"} <= means.keys():
        gain = means["+positions"] - means["self-attention"]
        says = f"positions lift self-attention by five points: {percent(gain)}"
        found.append(claim(says, gain, gain >= 0.05))
    both = {name: row["both"] for name, row in (pairs or {}).get("arms", {}).items()}
    seeing = {name: share for name, share in both.items() if name not in BLIND}
    if seeing and len(both) > len(seeing):
        most = max(both[name] for name in both if name in BLIND)
        says = "same words, opposite labels: blind arms are never right about both sentences"
        found.append(claim(f"{says}: {percent(most)} %", most, most <= 0.01))
        name = max(seeing, key=seeing.__getitem__)
        says = f"same words, opposite labels: {name} is right about both in"
        found.append(claim(f"{says} {percent(seeing[name])} %", seeing[name], seeing[name] > 0.5))
    return found


def _parts(model: str) -> tuple[type[Settings], ...]:
    return (TASKS[TASK].settings, MODELS[model].settings, TrainingSettings)
