"""Where a model goes wrong: its confusion, and what it was surest of and wrong about."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from regard.reports.evidence import Answer, Arm, confusion_of
from regard.reports.findings import Cell, Table
from regard.reports.maps import confusion, heat_map
from regard.reports.markup import Html, shorten, tag
from regard.tasks.classification.evaluation import confused

SHOWN = 6  # mistakes of the best arm
LENGTH = 600  # signs of a text; longer ones are cut, with a mark
LABELS = 12  # a confusion of more has no room for its numbers
NAMES = 30  # labels that a side of a picture names
PAIRS = 1_000  # confused pairs in a table


def section(arms: Sequence[Arm]) -> list[Html]:
    """The confusion of the best arm that tells its answers, and its most confident mistakes."""
    best = max((arm for arm in arms if arm.answers), key=lambda arm: arm.rank, default=None)
    if best is None:
        return []
    parts = [tag("h2", "Where it goes wrong")]
    note = f"{best.folders[0].name} of {best.name}, {len(best.answers):,} test texts."
    parts += confusion_drawn(f"Confusion of {best.name}", *confusion_of(best.answers), note)
    wrong = confident_mistakes(best.answers)
    if not wrong:
        return [*parts, tag("p", f"{best.name} makes no mistake on these texts.")]
    parts.append(tag("h3", f"What {best.name} is surest of, and wrong about"))
    return parts + [_mistake(answer) for answer in wrong]


def confusion_drawn(title: str, labels: Sequence[str], counts: ArrayLike, note: str) -> list[Html]:
    """Draw a confusion counts[true][said]: every number of few labels, of more a map and a table.

    The map's labels stand by the number of their texts, the largest first. One label has no
    confusion.
    """
    table = np.asarray(counts)
    if len(labels) < 2:
        return []
    if len(labels) <= LABELS:
        return [_figure(confusion(title, labels, table), note)]
    order = np.argsort(-table.sum(1), kind="stable")
    names = [labels[i] for i in order] if len(labels) <= NAMES else None
    rows = table[np.ix_(order, order)]
    chart = heat_map(
        title, rows / np.maximum(rows.sum(1, keepdims=True), 1), rows=names, columns=names,
        x_label="said", y_label="true",
    )  # fmt: skip
    how = "Shares of the texts of each true label; the labels by their number of texts"
    how += "." if names else ", numbered from 0."
    pairs = confused(labels, table)
    body: list[list[Cell]] = [[pair.texts, pair.said, pair.true] for pair in pairs[:PAIRS]]
    left = len(pairs) - len(body)
    more = f"{left:,} more pairs are in regard evaluate RUN --json." if left else ""
    found = Table("What was said in place of what", ["texts", "said", "true"], body, more)
    summary = tag("summary", f"All pairs that were confused: {len(pairs):,}")
    return [_figure(chart, f"{note} {how}"), tag("details", summary, found.html())]


def _figure(chart: Html, note: str) -> Html:
    return tag("figure", tag("div", chart, class_="scroll"), tag("figcaption", note))


def confident_mistakes(answers: Sequence[Answer]) -> list[Answer]:
    """The wrong answers of highest confidence, the surest first."""
    wrong = [answer for answer in answers if not answer.right]
    wrong.sort(key=lambda a: (-a.confidence if math.isfinite(a.confidence) else 0.0, a.index))
    return wrong[:SHOWN]


def _mistake(answer: Answer) -> Html:
    sure = f", {answer.confidence:.1%} sure" if math.isfinite(answer.confidence) else ""
    verdict = tag(
        "p",
        tag("b", f"said {answer.told(answer.said)}{sure}"),
        tag("span", f" in truth {answer.told(answer.truth)}"),
    )
    text = tag("p", shorten(answer.text, LENGTH) or f"test text {answer.index}", dir="auto")
    return tag("div", verdict, text, class_="rung")
