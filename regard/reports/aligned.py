"""What arms that write look at in their sources while they write: alignments, drawn."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError
from regard.reports.evidence import Answer, Arm
from regard.reports.figures import SIZE as LETTERS
from regard.reports.maps import NAMED, heat_map
from regard.reports.markup import Html, shorten, tag
from regard.reports.page import static
from regard.reports.scales import text_width

if TYPE_CHECKING:
    from regard.analysis.layer_attention import LayerAttention

TEXTS = 3
LONGEST = 120  # signs of a source that is drawn
SIDE = 40  # tokens of a side whose names can be read
HEADS = 16  # drawn of one arm and text
CELL, BESIDE = 20, 116  # the breadth of a token, and of what stands beside cells and their names


def section(arms: Sequence[Arm]) -> list[Html]:
    """For a few test texts the alignment of every arm that attends and can be loaded."""
    chosen = choose([arm for arm in arms if arm.answers])
    seen = {
        arm.name: looked
        for arm in arms
        if arm.family == "attention" and (looked := _look(arm, chosen))
    }
    if not seen:
        return []
    parts = [tag("h2", "Where they look while they write"), tag("p", HOW, class_="note")]
    return parts + [_text(answer, i, arms, seen) for i, answer in enumerate(chosen)]


HOW = (
    "A row is a token that was written, a column a token of the source; a row's weights add up to "
    "1. The mean over all heads and layers comes first, then every layer and head alone. Each arm "
    "wrote its own text."
)


def choose(arms: Sequence[Arm]) -> list[Answer]:
    """Test texts to draw: those that divide the arms most first, of middle length among the short.

    The same for all arms.
    """
    if not arms:
        return []
    answers = arms[0].answers
    tables = [arm.right[0] for arm in arms if arm.right.shape[-1:] == (len(answers),)]
    agreed = np.mean(tables, 0) if tables else np.ones(len(answers))
    lengths = [len(answer.text) for answer in answers]
    short = [i for i, long in enumerate(lengths) if 3 <= long <= LONGEST]
    middle = float(np.median([lengths[i] for i in short])) if short else 0.0
    ranked = sorted(short, key=lambda i: (abs(agreed[i] - 0.5), abs(lengths[i] - middle), i))
    return [answers[i] for i in ranked[:TEXTS]]


def maps(looked: "Sequence[LayerAttention]", name: str) -> list[Html]:
    """The mean over all heads of all layers, then every head of every layer, as heat maps.

    One head alone is its own mean.
    """
    if not looked:
        return []
    first = looked[0]
    alike = [layer for layer in looked if layer.weights.shape[1:] == first.weights.shape[1:]]
    mean = np.mean([layer.weights.mean(0) for layer in alike], 0)
    heads = [
        (f"{plain_layer(layer.layer)}, head {number}" if len(layer.weights) > 1
         else plain_layer(layer.layer), weights)
        for layer in looked
        for number, weights in enumerate(layer.weights, 1)
    ]  # fmt: skip
    among = sum(len(layer.weights) for layer in alike)
    whole = f"{name}: mean of {among} heads" if len(heads) > 1 else name
    found = [_map(first, whole, mean)]
    if len(heads) > 1:
        found += [_map(first, f"{name}, {says}", weights) for says, weights in heads[:HEADS]]
    return found


def drawing(chart: Html) -> str:
    """A map as a file of its own: an SVG with its colours inside, for light and dark."""
    begin, end = chart.split(">", 1)
    style = tag("style", Html(static("report.css")))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{begin}>{style}{end}\n'


def plain_layer(path: str) -> str:
    """Where a layer sits in its model, for people.

    >>> plain_layer("decoder.2.memory_attention.attention"), plain_layer("attention")
    ('layer 3', 'attention')
    >>> plain_layer("pool.attention")
    'pool'
    """
    block = re.match(r"(?:decoder|blocks)\.(\d+)\.", path)
    return f"layer {int(block[1]) + 1}" if block else re.sub(r"(\.attention)+$", "", path)


def _map(looked: "LayerAttention", title: str, weights: NDArray[np.floating]) -> Html:
    asking, tokens = looked.asking, [_visible(piece) for piece in looked.tokens]
    if asking is None:  # self-attention, or a pool that asks once
        asking = tokens if len(weights) == len(tokens) else ["the text"] * len(weights)
    named = len(asking) <= SIDE and len(tokens) <= SIDE
    beside = max(text_width(shorten(piece, NAMED), LETTERS) for piece in asking) if named else 0.0
    needed = max(CELL * len(tokens) + beside + BESIDE, len(title) * LETTERS * 0.63)
    return heat_map(
        title,
        weights,
        rows=[_visible(piece) for piece in asking] if named else None,
        columns=tokens if named else None,
        x_label="read" if looked.asking else "is looked at",
        y_label="written" if looked.asking else "looks",
        width=round(max(320, min(needed, 760))),
    )


def _visible(piece: str) -> str:
    return "␣" if piece == " " else piece


def _look(arm: Arm, answers: Sequence[Answer]) -> "list[list[LayerAttention]]":
    """The alignments of an arm's first run that can be loaded; none of one that never looks."""
    import regard

    for folder in arm.folders:
        try:
            run = regard.load(folder)
            found = [run.attention(answer.text) for answer in answers]
        except (RegardError, OSError):
            continue
        return found if any(found) else []
    return []


def _text(
    answer: Answer,
    index: int,
    arms: Sequence[Arm],
    seen: "Mapping[str, list[list[LayerAttention]]]",
) -> Html:
    said = {arm.name: arm.answers[answer.index].said for arm in arms
            if len(arm.answers) > answer.index}  # fmt: skip
    rows = [("read", answer.text, ""), ("wanted", answer.truth, "")]
    rows += [(name, text, "right" if text == answer.truth else "wrong")
             for name, text in said.items()]  # fmt: skip
    table = tag(
        "table",
        tag("tbody", *(tag("tr", tag("td", shorten(name, 40)),
            tag("td", shorten(text, 400), class_=f"words {look}".strip(), dir="auto"))
            for name, text, look in rows)),
    )  # fmt: skip
    drawn = {name: maps(texts[index], name) for name, texts in seen.items() if texts[index]}
    means = [tag("figure", tag("div", found[0], class_="scroll")) for found in drawn.values()]
    heads = [tag("figure", tag("div", chart, class_="scroll"))
             for found in drawn.values() for chart in found[1:]]  # fmt: skip
    parts = [tag("h3", f"Text {index + 1}"), tag("div", table, class_="scroll")]
    parts.append(tag("div", *means, class_="maps"))
    if heads:
        grid = tag("div", *heads, class_="maps")
        parts.append(tag("details", tag("summary", "Every layer and head"), grid))
    return tag("section", *parts)
