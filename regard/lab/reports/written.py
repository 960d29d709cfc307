"""Quality of generated texts: by source length, and the worst texts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.lab.reports.evidence import Answer, Arm
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure
from regard.lab.reports.markup import Html, shorten, tag
from regard.lab.tasks import unit_of

BINS = 6  # bins with equal numbers of texts
FEWEST = 10  # minimum texts in a bin
SHOWN = 8  # worst texts shown
LENGTH = 400  # characters of a text; longer ones are truncated


def section(arms: Sequence[Arm]) -> list[Html]:
    """Return the quality by source length of every arm, and the worst texts of the best arm."""
    return [*_by_length(arms), *_worst(arms)]


def _by_length(arms: Sequence[Arm]) -> list[Html]:
    """Draw the metric over the source length, where a fixed-size state starts to forget."""
    series = []
    metric = ""
    for look, arm in enumerate(arm for arm in arms if arm.scores and arm.answers):
        metric = arm.scores[0].metric
        bins = by_length([len(answer.text) for answer in arm.answers])
        if len(bins) < 2:
            return []
        x = [float(np.mean([len(arm.answers[i].text) for i in chosen])) for chosen in bins]
        y = [100 * float(np.mean([_value(run, chosen) for run in arm.scores])) for chosen in bins]
        series.append(Series(arm.name, x, y, look=look))
    if not series:
        return []
    chart = line_chart(
        "Quality by length", series, x_label="characters of the source, mean of the bin",
        y_label=unit_of(metric).heading(metric),
    )  # fmt: skip
    count = len(series[0].x)
    how = f"Test texts by source length, in {count} bins of equal size; mean over all seeds."
    return [tag("h2", "Quality by source length"), Figure(chart, how).html()]


def by_length(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the indices of the texts in at most `BINS` bins of equal size, the shortest first.

    Texts of equal length share a bin, so there may be fewer bins.

    >>> [chosen.tolist() for chosen in by_length([5] * 20 + [3] * 20)]
    [[20, 21, 22, ...], [0, 1, 2, ...]]
    """
    sizes = np.asarray(lengths)
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, BINS + 1), method="nearest"))
    numbers = (
        np.searchsorted(edges[1:-1], sizes, side="right") if len(edges) > 2 else sizes > edges[0]
    )
    bins = [np.flatnonzero(numbers == number) for number in np.unique(numbers)]
    return [chosen for chosen in bins if len(chosen) >= FEWEST]


def _value(run: Any, chosen: NDArray[np.int64]) -> float:
    if run.corpus is not None:
        return float(run.corpus.score(chosen)) / 100
    return float(run.correct()[chosen].mean())


def _worst(arms: Sequence[Arm]) -> list[Html]:
    best = max((arm for arm in arms if arm.answers), key=lambda arm: arm.rank, default=None)
    if best is None:
        return []
    rows = worst(best)
    parts = [tag("h2", "Worst texts"), tag("p", f"Run: {best.name}, {best.folders[0].name}.")]
    if not rows:
        return [*parts, tag("p", "All texts match their references exactly.")]
    return parts + [_shown(answer, score) for answer, score in rows]


def worst(arm: Arm) -> list[tuple[Answer, str]]:
    """Return an arm's worst texts with their scores, by sentence BLEU or by confidence."""
    corpus = arm.scores[0].corpus if arm.scores else None
    wrong = [answer for answer in arm.answers if not answer.right]
    if corpus is None or len(corpus) != len(arm.answers):
        wrong.sort(key=lambda answer: (-answer.confidence, answer.index))
        return [(answer, f"confidence {answer.confidence:.1%}") for answer in wrong[:SHOWN]]
    scores = corpus.by_text()
    wrong.sort(key=lambda answer: (scores[answer.index], -len(answer.truth), answer.index))
    return [(answer, f"BLEU {scores[answer.index]:.1f}") for answer in wrong[:SHOWN]]


def _shown(answer: Answer, score: str) -> Html:
    rows = [("source", answer.text), ("reference", answer.truth), ("output", answer.predicted)]
    body = [
        tag("tr", tag("td", name), tag("td", shorten(text, LENGTH), class_="words", dir="auto"))
        for name, text in rows
    ]
    table = tag("table", tag("tbody", *body))
    return tag("div", tag("p", tag("b", score)), tag("div", table, class_="scroll"), class_="rung")
