"""The figures of the scores lab."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from regard.lab.labs.comparison import Result
from regard.lab.labs.lab import Findings
from regard.lab.labs.replications.curves import Curves, curves_of, learning_chart
from regard.lab.labs.scores.arms import DOT, REFERENCE, name_of, pair_of
from regard.lab.reports.figures import Point, scatter
from regard.lab.reports.maps import heat_map
from regard.lab.reports.markup import Html

#: Arms whose learning curves are drawn, if they were run.
DRAWN = (
    REFERENCE, "gaussian", "additive", "synthesizer-random", name_of(DOT, "sparsemax"),
    name_of(DOT, "sigmoid"),
)  # fmt: skip
SHORTER = {
    "synthesizer": "syn", "factorised": "fact", "random": "rand", "temperature": "temp",
    "softmax-plus-one": "softmax + 1",
}  # fmt: skip


def measure(result: Result) -> Mapping[str, Curves]:
    """Return the learning curves of a few arms."""
    return curves_of(replace(result, arms=[one for one in result.arms if one.name in DRAWN]))


def single(result: Result) -> Findings:
    """Return accuracy against time, and learning over steps."""
    learning = learning_chart(result.measured, f"{result.plan.task}: learning of some arms")
    return Findings({}, {}, {"costs": costs(result), "learning": learning})


def shorter(name: str) -> str:
    """Return the names of parts, shortened.

    >>> shorter("synthesizer-factorised-random")
    'syn-fact-rand'
    """
    for long, short in SHORTER.items():
        name = name.replace(long, short)
    return name


def costs(result: Result) -> Html:
    """Return the chart of accuracy against the seconds of a training, for scores."""
    points = [
        Point(
            shorter(row["name"]), row["seconds"], 100 * row["mean"], 100 * row["low"],
            100 * row["high"], "baseline" if row["name"] == REFERENCE else "attention",
        )
        for row in result.record["arms"]
        if row["seconds"] and (pair_of(row["name"])[0] != DOT or row["name"] == REFERENCE)
    ]  # fmt: skip
    return scatter(
        f"{result.plan.task}: right against training time", points,
        x_label="training time of one network, s", y_label="right, %", height=520,
    )  # fmt: skip


def grid(result: Result) -> Html:
    """Return the heat map of score × normaliser; a pair that was not run stays blank."""
    means = {pair_of(name): mean for name, mean in result.means.items()}
    scores = list(dict.fromkeys(score for score, _ in means))
    names = list(dict.fromkeys(name for _, name in means))
    cells = np.array([[100 * means.get((a, b), np.nan) for b in names] for a in scores])
    return heat_map(
        f"{result.plan.task}: right, %, by score and normaliser", cells,
        rows=[shorter(score) for score in scores], columns=[shorter(name) for name in names],
        x_label="normaliser", y_label="score",
    )  # fmt: skip
