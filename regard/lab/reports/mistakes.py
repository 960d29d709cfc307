"""The errors of a model: its confusion matrix and its most confident mistakes."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from regard.lab.reports.evidence import Answer, Arm, confusion_of
from regard.lab.reports.findings import Cell, Figure, Table
from regard.lab.reports.maps import confusion, heat_map
from regard.lab.reports.markup import Html, shorten, tag
from regard.lab.tasks.classification.evaluation import confused

SHOWN = 6  # mistakes of the best arm
LENGTH = 600  # characters of a text; longer ones are truncated
LABELS = 12  # labels up to which a confusion matrix shows its numbers
NAMES = 30  # labels up to which the sides of a map are labelled
PAIRS = 1_000  # confused pairs in the table


def section(arms: Sequence[Arm]) -> list[Html]:
    """Return the confusion of the best arm with answers, and its most confident mistakes."""
    best = max((arm for arm in arms if arm.answers), key=lambda arm: arm.rank, default=None)
    if best is None:
        return []
    parts = [tag("h2", "Errors")]
    note = f"{best.folders[0].name} of {best.name}, {len(best.answers):,} test texts."
    if not best.answers[0].several:
        parts += confusion_drawn(f"Confusion of {best.name}", *confusion_of(best.answers), note)
    wrong = confident_mistakes(best.answers)
    if not wrong:
        return [*parts, tag("p", f"{best.name} makes no mistake on these texts.")]
    parts.append(tag("h3", f"Most confident mistakes of {best.name}"))
    return parts + [_mistake(answer) for answer in wrong]


def confusion_drawn(title: str, labels: Sequence[str], counts: ArrayLike, note: str) -> list[Html]:
    """Draw the confusion counts[true][predicted]: as numbers, or with many labels as a heat map.

    The labels of the heat map are sorted by their number of texts, the largest first, and a table
    lists the confused pairs. A single label gives an empty list.
    """
    table = np.asarray(counts)
    if len(labels) < 2:
        return []
    if len(labels) <= LABELS:
        return [Figure(confusion(title, labels, table), note).html()]
    order = np.argsort(-table.sum(1), kind="stable")
    names = [labels[i] for i in order] if len(labels) <= NAMES else None
    rows = table[np.ix_(order, order)]
    chart = heat_map(
        title, rows / np.maximum(rows.sum(1, keepdims=True), 1), rows=names, columns=names,
        x_label="predicted", y_label="true",
    )  # fmt: skip
    how = "Shares of the texts of each true label; labels sorted by their number of texts"
    how += "." if names else " and numbered from 0."
    pairs = confused(labels, table)
    body: list[list[Cell]] = [[pair.texts, pair.predicted, pair.true] for pair in pairs[:PAIRS]]
    left = len(pairs) - len(body)
    more = f"{left:,} more pairs are in regard evaluate RUN --json." if left else ""
    listed = Table("Confused labels", ["texts", "predicted", "true"], body, more)
    summary = tag("summary", f"All {len(pairs):,} confused pairs of labels")
    return [Figure(chart, f"{note} {how}").html(), tag("details", summary, listed.html())]


def confident_mistakes(answers: Sequence[Answer]) -> list[Answer]:
    """Return the wrong answers of highest confidence, in decreasing order."""
    wrong = [answer for answer in answers if not answer.right]
    wrong.sort(key=lambda a: (-a.confidence if math.isfinite(a.confidence) else 0.0, a.index))
    return wrong[:SHOWN]


def _mistake(answer: Answer) -> Html:
    confidence = f" ({answer.confidence:.1%})" if math.isfinite(answer.confidence) else ""
    verdict = tag(
        "p",
        tag("b", f"predicted {answer.in_words(answer.predicted)}{confidence}"),
        tag("span", f" true {answer.in_words(answer.truth)}"),
    )
    text = tag("p", shorten(answer.text, LENGTH) or f"test text {answer.index}", dir="auto")
    return tag("div", verdict, text, class_="rung")
