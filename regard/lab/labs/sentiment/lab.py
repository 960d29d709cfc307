"""The sentiment ladder: from the mean of word vectors to a transformer, one change at a time.

The steps are those of the lab that regard comes from (AMAL, exercise 9): self-attention,
residual and LayerNorm, positions, CLS. The baselines are the mean, two kinds of pooling, an RNN, a
CNN and linear models. `regard.lab.labs.sentiment.plan` defines the arms and the settings per data
set.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.core.errors import RegardError
from regard.lab.labs.comparison import ComparisonLab, Result
from regard.lab.labs.lab import Claim, claim
from regard.lab.labs.sentiment import ladder, word_order
from regard.lab.labs.sentiment.plan import (
    ARMS,
    BLIND,
    PRESETS,
    REFERENCE,
    SELF_PRETRAINED,
    SentimentOptions,
    adapt,
)
from regard.lab.reports.answer import percent
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.findings import Section
from regard.lab.tasks.models import MODELS

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
    """Return the compared depths, or an empty list if the ladder was compared."""
    depths: list[int] = result.plan.options.depths
    return depths if len(depths) > 1 else []


def measure(result: Result) -> dict[str, Any] | None:
    """Test each arm on pairs of sentences that differ only in word order."""
    if result.plan.data != "reviews" or depths_of(result):
        return None
    result.record["word_order"] = read_pairs(result.arms)
    return result.record["word_order"]  # type: ignore[no-any-return]


def read_pairs(arms: Sequence[Evidence]) -> dict[str, Any] | None:
    """Return the answers of each arm's first run to pairs of sentences with the same words."""
    import regard
    from regard.lab.data.sources import load_corpus

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
    return ladder.section(result)


def claims(result: Result) -> list[Claim]:
    """Return the claims with the numbers of this run."""
    if depths := depths_of(result):
        return ladder.depth_claims(result, depths)
    if result.plan.data == "imdb":
        return claims_of_imdb(result) + ladder.rung_claims(result)
    return claims_of_order(result.means, result.measured) if result.plan.data == "reviews" else []


def claims_of_imdb(result: Result) -> list[Claim]:
    """Return the claims about accuracy on IMDB."""
    means = result.means
    models = {row["name"]: str(row.get("model", row["name"])) for row in result.record["arms"]}
    networks = [name for name, model in models.items()
             if not MODELS[model].deterministic and name != SELF_PRETRAINED]  # fmt: skip
    best = max(networks, key=means.__getitem__)
    aims = [
        ("mean", "the mean of word vectors reaches 86.5 %", 0.865),
        (best, f"the best network trained on labels alone, {best}, reaches 89.0 %", 0.89),
        (SELF_PRETRAINED, "pretrained on IMDB's own texts, an encoder reaches 92.5 %", 0.925),
    ]
    return [
        claim(f"{words}: {percent(means[name])} %", means[name], means[name] >= aim)
        for name, words, aim in aims
        if name in means
    ]


def claims_of_order(means: Mapping[str, float], seen: Mapping[str, Any] | None) -> list[Claim]:
    """Return the claims about word order."""
    blind = {name: means[name] for name in BLIND if name in means}
    rows = []
    if blind:
        name = max(blind, key=blind.__getitem__)
        says = f"no arm without word order exceeds 75 %: {name}, the best of them, reaches"
        rows.append(claim(f"{says} {percent(blind[name])} %", blind[name], blind[name] <= 0.75))
    if {"+positions", "self-attention"} <= means.keys():
        gain = means["+positions"] - means["self-attention"]
        says = f"positions improve self-attention by at least five points: {percent(gain)}"
        rows.append(claim(says, gain, gain >= 0.05))
    both = {name: row["both"] for name, row in (seen or {}).get("arms", {}).items()}
    seeing = {name: share for name, share in both.items() if name not in BLIND}
    if seeing and len(both) > len(seeing):
        most = max(both[name] for name in both if name in BLIND)
        says = "same words, opposite labels: arms without word order never get both sentences right"
        rows.append(claim(f"{says}: {percent(most)} %", most, most <= 0.01))
        name = max(seeing, key=seeing.__getitem__)
        says = f"same words, opposite labels: {name} gets both right in"
        rows.append(claim(f"{says} {percent(seeing[name])} %", seeing[name], seeing[name] > 0.5))
    return rows


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
