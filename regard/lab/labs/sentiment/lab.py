"""The sentiment ladder: from the mean of word vectors to a transformer, one change at a time.

The steps are those of the lab that regard comes from (AMAL, exercise 9): self-attention,
residual and LayerNorm, positions, CLS. The baselines are the mean, two kinds of pooling, an RNN, a
CNN and linear models. `regard.lab.labs.sentiment.plan` defines the arms and the settings per data
set.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import regard
from regard.core.errors import RegardError
from regard.lab.data.film_sentences import GENERATED, REAL
from regard.lab.data.sources import load_corpus
from regard.lab.labs.comparison import ComparisonLab, Result
from regard.lab.labs.lab import Findings
from regard.lab.labs.sentiment import ladder, word_order
from regard.lab.labs.sentiment.plan import (
    ARMS,
    BLIND,
    FILMS,
    PRESETS,
    REFERENCE,
    REVIEWS,
    SELF_PRETRAINED,
    SentimentOptions,
    adapt,
    usual_data,
)
from regard.lab.reports import figures
from regard.lab.reports.answer import percent
from regard.lab.reports.drawing import Chart
from regard.lab.reports.evidence import Arm as Evidence
from regard.lab.reports.findings import Cell
from regard.lab.tasks.estimates import arm_interval
from regard.lab.tasks.models import MODELS

AIMS = {"mean": 0.865, "best": 0.89, "pretrained": 0.925}  # accuracies on IMDB
MOST_BLIND = 0.75  # accuracy on the reviews that no arm without word order exceeds
LEAST_GAIN = 0.05  # of positions
MOST_GAIN = 0.02  # of the best network on TF-IDF, on real sentences
KINDS = {"real": REAL, "generated": GENERATED}
NEVER, SURE = 0.01, 0.5  # pairs of which an arm gets both right, without and with word order

NEXT = {
    FILMS: "regard lab sentiment size=full",
    REVIEWS: "regard lab sentiment --data imdb",
    "imdb": (
        "regard compare classification --data imdb --arms transformer:heads=1,transformer:heads=8"
    ),
}


Interval = tuple[float, float, float]  # mean, low, high


def following(result: Result) -> str:
    """Return the command to try next."""
    data = result.plan.data
    if data == REVIEWS and not depths_of(result):
        return "regard lab sentiment layers=1,3,6 --out runs/lab-sentiment-depth"
    return NEXT.get(data, "regard lab sentiment")


def depths_of(result: Result) -> list[int]:
    """Return the compared depths, or an empty list if the ladder was compared."""
    depths: list[int] = result.plan.options.depths
    return depths if len(depths) > 1 else []


def measure(result: Result) -> dict[str, Any] | None:
    """Test each arm on sentences whose label depends on word order."""
    if result.plan.data == FILMS:
        result.record["by_kind"] = by_kind(result.arms)
        return result.record["by_kind"]  # type: ignore[no-any-return]
    if result.plan.data != REVIEWS or depths_of(result):
        return None
    result.record["word_order"] = read_pairs(result.arms)
    return result.record["word_order"]  # type: ignore[no-any-return]


def by_kind(arms: Sequence[Evidence]) -> dict[str, dict[str, Interval]]:
    """Return each arm's accuracy on each kind of sentences: the mean over seeds, low and high."""
    found: dict[str, dict[str, Interval]] = {}
    for arm in arms:
        evaluations = [regard.load(folder).evaluate() for folder in arm.folders]
        right = np.stack([evaluation.correct for evaluation in evaluations])
        sources = [example.source for example in evaluations[0].examples]
        found[arm.name] = {
            kind: arm_interval(right[:, [source.startswith(start) for source in sources]])
            for kind, start in KINDS.items()
        }
    return found


def read_pairs(arms: Sequence[Evidence]) -> dict[str, Any] | None:
    """Return the answers of each arm's first run to pairs of sentences with the same words."""
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


def findings(result: Result) -> Findings:
    """Return the ladder, or accuracy over depth, with the claims about the data."""
    if depths := depths_of(result):
        return ladder.depth(result, depths)
    if result.plan.data == "imdb":
        return Findings.joined([claims_of_imdb(result), ladder.steps(result, as_claims=True)])
    if result.plan.data == FILMS:
        found = claims_of_films(result.measured)
        chart = Findings({}, figures={"kinds": kinds_chart(result.arms, result.measured)})
        return Findings.joined([found, chart, ladder.steps(result)])
    if result.plan.data == REVIEWS:
        order = claims_of_order(result.means, result.measured)
        return Findings.joined([order, ladder.steps(result)])
    return ladder.steps(result)


def claims_of_imdb(result: Result) -> Findings:
    """Return the claims about accuracy on IMDB."""
    means = result.means
    models = {row["name"]: str(row.get("model", row["name"])) for row in result.record["arms"]}
    networks = [name for name, model in models.items()
             if not MODELS[model].deterministic and name != SELF_PRETRAINED]  # fmt: skip
    best = max(networks, key=means.__getitem__)
    names = {"mean": REFERENCE, "best": best, "pretrained": SELF_PRETRAINED}
    claims = {
        key: (means[name], means[name] >= AIMS[key]) for key, name in names.items() if name in means
    }
    return Findings(claims, {"best": best, "aims": AIMS})


def kinds_chart(arms: Sequence[Evidence], measured: Mapping[str, Mapping[str, Interval]]) -> Chart:
    """Return the accuracy of each arm on each kind of sentences, with intervals."""
    rows = []
    for kind in KINDS:
        for arm in arms:
            mean, low, high = (100 * end for end in measured[arm.name][kind])
            name, family = f"{kind}: {arm.name}", arm.family
            rows.append(figures.Row(name, mean, low, high, family, trained=arm.trained))
    return figures.interval_chart(
        "Accuracy on real and on generated film sentences", rows, x_label="accuracy, %"
    )


def claims_of_films(measured: Mapping[str, Mapping[str, Interval]]) -> Findings:
    """Return the claims about real sentences and about word order, and both accuracies."""
    accuracies = {
        name: {kind: ends[0] for kind, ends in kinds.items()} for name, kinds in measured.items()
    }
    networks = [name for name in accuracies if not MODELS[name].baseline]
    claims: dict[str, tuple[float, bool]] = {}
    values: dict[str, object] = {}
    if networks and "tfidf" in accuracies:
        values["best_real"] = best = max(networks, key=lambda name: accuracies[name]["real"])
        gain = accuracies[best]["real"] - accuracies["tfidf"]["real"]
        claims["real"] = (gain, gain < MOST_GAIN)
    rows: list[list[Cell]] = [
        [name, percent(kinds["real"]), percent(kinds["generated"])]
        for name, kinds in accuracies.items()
    ]
    table = ["arm", "real sentences, %", "generated sentences, %"], rows
    real = Findings(claims, values, tables={"by-kind": table})
    generated = {name: kinds["generated"] for name, kinds in accuracies.items()}
    return Findings.joined([real, claims_of_order(generated)])


def claims_of_order(means: Mapping[str, float], seen: Mapping[str, Any] | None = None) -> Findings:
    """Return the claims about word order: those of accuracies, and of pairs that were `seen`."""
    claims: dict[str, tuple[float, bool]] = {}
    values: dict[str, object] = {"most_blind": MOST_BLIND}
    if blind := {name: means[name] for name in BLIND if name in means}:
        values["best_blind"] = name = max(blind, key=blind.__getitem__)
        claims["blind"] = (blind[name], blind[name] <= MOST_BLIND)
    if {"+positions", "self-attention"} <= means.keys():
        gain = means["+positions"] - means["self-attention"]
        claims["positions"] = (gain, gain >= LEAST_GAIN)
    both = {name: row["both"] for name, row in (seen or {}).get("arms", {}).items()}
    seeing = {name: share for name, share in both.items() if name not in BLIND}
    if seeing and len(both) > len(seeing):
        most = max(both[name] for name in both if name in BLIND)
        claims["pairs-blind"] = (most, most <= NEVER)
        values["best_on_pairs"] = name = max(seeing, key=seeing.__getitem__)
        claims["pairs"] = (seeing[name], seeing[name] > SURE)
    return Findings(claims, values)


LAB = ComparisonLab(
    task="classification",
    arms=ARMS,
    presets=PRESETS,
    reference=REFERENCE,
    options=SentimentOptions,
    usual_data=usual_data,
    adapt=adapt,
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    findings=findings,
    next=following,
)
