"""The sentiment ladder: from the mean of word vectors to a transformer, rung by rung.

The rungs are those of the lab that regard comes from (AMAL, exercise 9): self-attention,
residual and LayerNorm, positions, CLS; below them the mean and two ways to pool, beside them what
else reads texts. `regard.labs.sentiment.plan` has the arms and the settings of each kind of data.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.errors import RegardError
from regard.labs.comparison import ComparisonLab, Result
from regard.labs.lab import Claim, claim
from regard.labs.sentiment import ladder, word_order
from regard.labs.sentiment.plan import (
    ARMS,
    BLIND,
    PRESETS,
    REFERENCE,
    SELF_PRETRAINED,
    SentimentOptions,
    adapt,
)
from regard.models import MODELS
from regard.reports.answer import percent
from regard.reports.evidence import Arm as Evidence
from regard.reports.findings import Section

NEXT = {
    "reviews": "regard lab sentiment --data imdb",
    "imdb": (
        "regard compare classification --data imdb --arms transformer:heads=1,transformer:heads=8"
    ),
}


def following(result: Result) -> str:
    """Return the command to try next."""
    data = result.plan.data
    if data == "reviews" and not depths_of(result):
        return "regard lab sentiment layers=1,3,6 --out runs/lab-sentiment-depth"
    return NEXT.get(data, "regard lab sentiment")


def depths_of(result: Result) -> list[int]:
    """Return the depths that were compared; none where the ladder was."""
    depths: list[int] = result.plan.options.depths
    return depths if len(depths) > 1 else []


def measure(result: Result) -> dict[str, Any] | None:
    """Ask each arm about sentences that differ in word order alone."""
    if result.plan.data != "reviews" or depths_of(result):
        return None
    result.record["word_order"] = read_pairs(result.arms)
    return result.record["word_order"]  # type: ignore[no-any-return]


def read_pairs(arms: Sequence[Evidence]) -> dict[str, Any] | None:
    """Return what the first run of each arm says about pairs of the same words."""
    import regard
    from regard.data.sources import load_corpus

    predict: dict[str, Callable[[list[str]], Sequence[str]]] = {}
    for arm in arms:
        try:
            run = regard.load(arm.folders[0])
        except (RegardError, IndexError):
            continue
        predict[arm.name] = _labels_of(run)
    return word_order.judge(word_order.pairs(load_corpus("reviews").train), predict) or None


def _labels_of(run: Any) -> Callable[[list[str]], list[str]]:
    return lambda texts: [prediction.label for prediction in run.predict(texts)]


def figures(result: Result) -> list[Section]:
    """Return the ladder, or accuracy over depth."""
    if depths := depths_of(result):
        return [ladder.depth_section(result, depths)]
    table = ladder.table(result)
    return [Section("What does each rung add?", tables=[table])] if table else []


def claims(result: Result) -> list[Claim]:
    """Return what to look for, each with the number that this run found."""
    if depths := depths_of(result):
        return ladder.depth_claims(result, depths)
    if result.plan.data == "imdb":
        return claims_of_imdb(result)
    return claims_of_order(result.means, result.seen) if result.plan.data == "reviews" else []


def claims_of_imdb(result: Result) -> list[Claim]:
    """Return which accuracy is reached by what."""
    means = result.means
    models = {row["name"]: str(row.get("model", row["name"])) for row in result.record["arms"]}
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


def claims_of_order(means: Mapping[str, float], seen: Mapping[str, Any] | None) -> list[Claim]:
    """Return what can be told without word order, and what with it."""
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
    both = {name: row["both"] for name, row in (seen or {}).get("arms", {}).items()}
    seeing = {name: share for name, share in both.items() if name not in BLIND}
    if seeing and len(both) > len(seeing):
        most = max(both[name] for name in both if name in BLIND)
        says = "same words, opposite labels: blind arms are never right about both sentences"
        found.append(claim(f"{says}: {percent(most)} %", most, most <= 0.01))
        name = max(seeing, key=seeing.__getitem__)
        says = f"same words, opposite labels: {name} is right about both in"
        found.append(claim(f"{says} {percent(seeing[name])} %", seeing[name], seeing[name] > 0.5))
    return found


LAB = ComparisonLab(
    task="classification",
    arms=ARMS,
    presets=PRESETS,
    reference=REFERENCE,
    options=SentimentOptions,
    adapt=adapt,
    measure=measure,
    figures=figures,
    claims=claims,
    next=following,
)
