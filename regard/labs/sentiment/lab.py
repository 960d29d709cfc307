"""The sentiment ladder: from the mean of word vectors to a transformer, rung by rung.

The rungs are those of the lab that regard comes from (AMAL, exercise 9): self-attention,
residual and LayerNorm, positions, CLS; below them the mean and two ways to pool, beside them what
else reads texts. `regard.labs.sentiment.plan` has the arms and the settings of each kind of data.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.labs import LABS, Order, Say, Show
from regard.labs.comparing import DRY_RUN, Planned, conclude, follow, forecast, pretrain, told
from regard.labs.finding import claim, command
from regard.labs.sentiment import ladder, word_order
from regard.labs.sentiment.plan import (
    BLIND,
    NAME,
    REFERENCE,
    SELF_PRETRAINED,
    TASK,
    Plan,
    plan_for,
)
from regard.models import MODELS
from regard.reports.answer import percent
from regard.reports.comparison import write_report
from regard.reports.evidence import Arm as Found
from regard.reports.evidence import arms_of
from regard.runs.before import WAYS
from regard.studies.arms import Arm
from regard.studies.job import RunTask
from regard.studies.launch import Job

NEXT = {
    "reviews": "regard lab sentiment --data imdb",
    "imdb": (
        "regard compare classification --data imdb --arms transformer:heads=1,transformer:heads=8"
    ),
}


def run(order: Order, say: Say, show: Show) -> dict[str, Any]:
    """Train every arm, compare, look at word order, write the report; the JSON object."""
    from regard.studies.compare import compare

    data, plan, out = order.data or "reviews", plan_for(order), place_for(order)
    introduce(data, plan, say)
    pretrain(pretraining(plan, out), order.workers or 0, show)
    comparison = compare(
        TASK,
        arms_in(plan, out),
        seeds=plan.seeds,
        budget=order.budget or None,
        reference=REFERENCE,
        out=out,
        overrides=plan.overrides,
        workers=order.workers,
        ladder=plan.rungs,
        on_event=follow(show),
    )
    record = comparison.record()
    found = arms_of(record, out)
    pairs = read_pairs(found) if data == "reviews" and not plan.depths else None
    if plan.depths:
        tables = [ladder.depth_table(record, plan.depths)]
        section = ladder.depth_section(record, plan.depths)
    else:
        tables = [table] if (table := ladder.table(record, found)) else []
        section = {"title": "What does each rung add?", "says": []}
    section |= {"tables": [table.json() for table in tables]}
    record |= {
        "question": LABS[NAME].question,
        "data": data,
        "word_order": pairs,
        "sections": [section] if tables else [],
        "claims": ladder.depth_claims(record, plan.depths)
        if plan.depths
        else claims(record, data, pairs),
        "command": command(NAME, order),
    }
    record["report"] = str(write_report(record, out))
    lines = comparison.rows()
    for table in tables:
        lines += ["", table.title, table.text()]
    conclude(record, lines, found, following(data, plan), say)
    return record


def following(data: str, plan: Plan) -> str:
    """Return the command to try next."""
    if data == "reviews" and not plan.depths:
        return "regard lab sentiment layers=1,3,6 --out runs/lab-sentiment-depth"
    return NEXT.get(data, "regard lab sentiment")


def rehearse(order: Order, say: Say) -> dict[str, Any]:
    """Two batches and one step of each arm, and what all of them would take."""
    from regard.studies.compare import Study

    plan, out = plan_for(order), place_for(order)
    introduce(order.data or "reviews", plan, say)
    arms = [replace(a, overrides=tuple(p for p in a.overrides if not p.startswith("init=")))
            for a in plan.arms]  # fmt: skip
    study = Study.plan(
        TASK,
        arms,
        seeds=plan.seeds,
        budget=order.budget or None,
        reference=REFERENCE,
        out=out / DRY_RUN,
        overrides=plan.overrides,
    )
    before = pretraining(plan, out)[:1]
    planned = [Planned(f"{job.arm}, pretraining", job.task, plan.seeds) for job in before]
    planned += [
        Planned(arm.name, job.task, 1 if arm.deterministic else plan.seeds)
        for arm, job in zip(arms, study.jobs(), strict=False)
    ]
    return forecast(NAME, planned, order.workers or 2, say)


def place_for(order: Order) -> Path:
    """Return the folder that the lab writes into."""
    return order.out or Path("runs") / f"lab-sentiment-{Path(order.data or 'reviews').stem}"


def pretraining(plan: Plan, out: Path) -> list[Job]:
    """Return a job for every seed of the self-pretrained arm."""
    if not plan.pretraining:
        return []
    way, own = WAYS["bert"]
    return [
        Job(
            SELF_PRETRAINED,
            seed,
            RunTask(str(out / "pretrained" / f"seed-{seed}"), way, "bert",
                    (*told(plan.pretraining), *own, f"seed={seed}")),
        )
        for seed in range(plan.seeds)
    ]  # fmt: skip


def arms_in(plan: Plan, out: Path) -> list[Arm]:
    """Return the arms, of which the self-pretrained one begins from its runs in a folder."""
    if not plan.pretraining:
        return plan.arms
    init = f"init={out / 'pretrained' / 'seed-{seed}'}"
    return [
        replace(arm, overrides=(init, *arm.overrides)) if arm.name == SELF_PRETRAINED else arm
        for arm in plan.arms
    ]


def introduce(data: str, plan: Plan, say: Say) -> None:
    """The question and what will be done about it."""
    say(LABS[NAME].question)
    say(f"{len(plan.arms)} arms on {data}, {plan.seeds} seeds each (baselines once)")
    if plan.pretraining:
        say(f"{SELF_PRETRAINED} reads the texts first, once for each seed: this takes hours")


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
        return _claims_of_imdb(record, means)
    return _claims_of_order(means, pairs) if data == "reviews" else []


def _claims_of_imdb(record: Mapping[str, Any], means: Mapping[str, float]) -> list[dict[str, Any]]:
    models = {row["name"]: str(row.get("model", row["name"])) for row in record["arms"]}
    alone = [name for name, model in models.items()
             if not MODELS[model].deterministic and name != SELF_PRETRAINED]  # fmt: skip
    best = max(alone, key=means.__getitem__)
    says = [
        ("mean", "the mean of word vectors reaches 86.5 %", 0.865),
        (best, f"the best network trained on labels alone, {best}, reaches 89.0 %", 0.89),
        (SELF_PRETRAINED, "pretrained on IMDB's own texts, an encoder reaches 92.5 %", 0.925),
    ]
    return [
        claim(f"{words}: {percent(means[name])} %", means[name], means[name] >= aim)
        for name, words, aim in says
        if name in means
    ]


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
