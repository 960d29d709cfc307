"""How good written texts are: by the length of their source, by the search, and the worst."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.reports.evidence import Answer, Arm
from regard.reports.figures import Series, line_chart
from regard.reports.findings import Cell, Table
from regard.reports.markup import Html, shorten, tag
from regard.tasks import unit_of

BINS = 6  # of equally many texts each
FEWEST = 10  # texts in a bin
SHOWN = 8  # of the worst texts
LENGTH = 400  # signs of a text


def section(arms: Sequence[Arm]) -> list[Html]:
    """Quality by length for every arm; the worst texts of the best."""
    return [*_by_length(arms), *_worst(arms)]


def searches(found: Sequence[Mapping[str, Any]], metric: str) -> Table:
    """Greedy and beams of several sizes side by side, of one run on the same texts."""
    rows: list[list[Cell]] = [
        [
            str(row["search"]),
            round(100 * row["value"], 1),
            round(row["log_probability"], 2),
            round(row["length"], 3),
            round(1000 * row["seconds"], 1),
        ]
        for row in found
    ]
    heads = ["search", unit_of(metric).heading(metric), "mean ln p", "length ratio"]
    return Table("Beam against greedy", [*heads, "ms a text"], rows, SEARCH)


SEARCH = (
    "Mean ln p is of the texts that were found: a wider beam finds likelier ones, which need not "
    "be better. The length ratio is of what was written to what was wanted, in signs."
)


def _by_length(arms: Sequence[Arm]) -> list[Html]:
    """The metric over the length of the source: where a single state begins to forget."""
    series = []
    metric = ""
    for look, arm in enumerate(arm for arm in arms if arm.judged and arm.answers):
        metric = arm.judged[0].metric
        bins = by_length([len(answer.text) for answer in arm.answers])
        if len(bins) < 2:
            return []
        x = [float(np.mean([len(arm.answers[i].text) for i in chosen])) for chosen in bins]
        y = [100 * float(np.mean([_value(run, chosen) for run in arm.judged])) for chosen in bins]
        series.append(Series(arm.name, x, y, look=look))
    if not series:
        return []
    chart = line_chart(
        "Quality by length", series, x_label="signs of the source, mean of the bin",
        y_label=unit_of(metric).heading(metric),
    )  # fmt: skip
    how = f"The test texts in {len(series[0].x)} bins of equally many, by their length; all seeds."
    note = tag("figcaption", how)
    figure = tag("figure", tag("div", chart, class_="scroll"), note)
    return [tag("h2", "Length against quality"), figure]


def by_length(lengths: Sequence[int]) -> list[NDArray[np.int64]]:
    """The numbers of the texts in at most `BINS` bins of equally many, the shortest first.

    Texts of one length share a bin, so there may be fewer.

    >>> [chosen.tolist() for chosen in by_length([5] * 20 + [3] * 20)]
    [[20, 21, 22, ...], [0, 1, 2, ...]]
    """
    sizes = np.asarray(lengths)
    edges = np.unique(np.quantile(sizes, np.linspace(0, 1, BINS + 1), method="nearest"))
    where = (
        np.searchsorted(edges[1:-1], sizes, side="right") if len(edges) > 2 else sizes > edges[0]
    )
    bins = [np.flatnonzero(where == number) for number in np.unique(where)]
    return [chosen for chosen in bins if len(chosen) >= FEWEST]


def _value(run: Any, chosen: NDArray[np.int64]) -> float:
    if run.judgement is not None:
        return float(run.judgement.score(chosen)) / 100
    return float(run.correct()[chosen].mean())


def _worst(arms: Sequence[Arm]) -> list[Html]:
    best = max((arm for arm in arms if arm.answers), key=lambda arm: arm.rank, default=None)
    if best is None:
        return []
    found = worst(best)
    parts = [tag("h2", "The worst texts"), tag("p", f"Of {best.name}, {best.folders[0].name}.")]
    if not found:
        return [*parts, tag("p", "Every text is as it should be, letter by letter.")]
    return parts + [_shown(answer, says) for answer, says in found]


def worst(arm: Arm) -> list[tuple[Answer, str]]:
    """An arm's worst texts with their score: by each text's own BLEU, or wrong and surest."""
    corpus = arm.judged[0].judgement if arm.judged else None
    wrong = [answer for answer in arm.answers if not answer.right]
    if corpus is None or len(corpus) != len(arm.answers):
        wrong.sort(key=lambda answer: (-answer.confidence, answer.index))
        return [(answer, f"{answer.confidence:.1%} sure") for answer in wrong[:SHOWN]]
    scores = corpus.by_text()
    wrong.sort(key=lambda answer: (scores[answer.index], -len(answer.truth), answer.index))
    return [(answer, f"BLEU {scores[answer.index]:.1f}") for answer in wrong[:SHOWN]]


def _shown(answer: Answer, says: str) -> Html:
    rows = [("read", answer.text), ("wanted", answer.truth), ("written", answer.said)]
    body = [
        tag("tr", tag("td", name), tag("td", shorten(text, LENGTH), class_="words", dir="auto"))
        for name, text in rows
    ]
    table = tag("table", tag("tbody", *body))
    return tag("div", tag("p", tag("b", says)), tag("div", table, class_="scroll"), class_="rung")
