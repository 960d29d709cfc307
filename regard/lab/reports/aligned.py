"""Alignment heat maps: the source tokens that sequence-to-sequence arms attend to."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from regard.lab.reports.evidence import Answer, Arm
from regard.lab.reports.findings import Figure
from regard.lab.reports.maps import NAMED, heat_map
from regard.lab.reports.markup import SIZE as LETTERS
from regard.lab.reports.markup import Html, shorten, tag
from regard.lab.reports.page import static
from regard.lab.reports.scales import text_width

if TYPE_CHECKING:
    from regard.analysis.layer_attention import LayerAttention
    from regard.lab.runs import Run

TEXTS = 3
LONGEST = 120  # characters of a source that is drawn
SIDE = 40  # tokens of a side up to which they are labelled
HEADS = 16  # drawn for each arm and text
CELL, BESIDE = 20, 116  # the width of a token, and of everything except cells and labels


def section(arms: Sequence[Arm]) -> list[Html]:
    """Return the alignments of all attention arms that can be loaded, for a few test texts."""
    chosen = choose([arm for arm in arms if arm.answers])
    alignments = {
        arm.name: by_text
        for arm in arms
        if arm.family == "attention" and (by_text := _alignments(arm, chosen))
    }
    if not alignments:
        return []
    parts = [tag("h2", "Alignment of output and source"), tag("p", HOW, class_="note")]
    return parts + [_text(answer, i, arms, alignments) for i, answer in enumerate(chosen)]


HOW = (
    "Each row is an output token, each column a source token; the weights of a row sum to 1. The "
    "first map is the mean over all heads and layers; the others show single heads. Each arm "
    "generated its own output."
)


def choose(arms: Sequence[Arm]) -> list[Answer]:
    """Choose short test texts of medium length, those on which the arms disagree most first.

    All arms show the same texts.
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


def maps(layers: "Sequence[LayerAttention]", name: str) -> list[Html]:
    """Draw the mean over all heads of all layers, then each head, as heat maps.

    With a single head only that head is drawn.
    """
    if not layers:
        return []
    first = layers[0]
    same_shape = [layer for layer in layers if layer.weights.shape[1:] == first.weights.shape[1:]]
    mean = np.mean([layer.weights.mean(0) for layer in same_shape], 0)
    heads = [
        (f"{plain_layer(layer.layer)}, head {number}" if len(layer.weights) > 1
         else plain_layer(layer.layer), weights)
        for layer in layers
        for number, weights in enumerate(layer.weights, 1)
    ]  # fmt: skip
    count = sum(len(layer.weights) for layer in same_shape)
    title = f"{name}: mean of {count} heads" if len(heads) > 1 else name
    charts = [_map(first, title, mean)]
    if len(heads) > 1:
        charts += [_map(first, f"{name}, {head}", weights) for head, weights in heads[:HEADS]]
    return charts


def drawing(chart: Html) -> str:
    """Return a chart as a standalone SVG file with the styles of the light and dark themes."""
    begin, end = chart.split(">", 1)
    style = tag("style", Html(static("report.css")))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{begin}>{style}{end}\n'


def plain_layer(path: str) -> str:
    """Return a readable name for the module path of an attention layer.

    >>> plain_layer("decoder.2.memory_attention.attention"), plain_layer("attention")
    ('layer 3', 'attention')
    >>> plain_layer("pool.attention")
    'pool'
    """
    block = re.match(r"(?:decoder|blocks)\.(\d+)\.", path)
    return f"layer {int(block[1]) + 1}" if block else re.sub(r"(\.attention)+$", "", path)


def _map(layer: "LayerAttention", title: str, weights: NDArray[np.floating]) -> Html:
    queries, keys = layer.asking, [_visible(token) for token in layer.tokens]
    if queries is None:  # self-attention, or pooling with a single query
        queries = keys if len(weights) == len(keys) else ["the text"] * len(weights)
    named = len(queries) <= SIDE and len(keys) <= SIDE
    labels = max(text_width(shorten(token, NAMED), LETTERS) for token in queries) if named else 0.0
    needed = max(CELL * len(keys) + labels + BESIDE, len(title) * LETTERS * 0.63)
    return heat_map(
        title,
        weights,
        rows=[_visible(token) for token in queries] if named else None,
        columns=keys if named else None,
        x_label="source" if layer.asking else "key",
        y_label="output" if layer.asking else "query",
        width=round(max(320, min(needed, 760))),
    )


def _visible(word: str) -> str:
    return "␣" if word == " " else word


def _alignments(arm: Arm, answers: Sequence[Answer]) -> "list[list[LayerAttention]]":
    """Return the alignments of the arm's first loadable run.

    Empty without attention, and for a model that continues its input instead of reading a source.
    """

    def view(run: "Run") -> "list[list[LayerAttention]]":
        reads = run.task.writes == "another"
        return [run.attention(answer.text) for answer in answers] if reads else []

    by_text = arm.from_run(view)
    return by_text if any(by_text) else []


def _text(
    answer: Answer,
    index: int,
    arms: Sequence[Arm],
    alignments: "Mapping[str, list[list[LayerAttention]]]",
) -> Html:
    outputs = {arm.name: arm.answers[answer.index].predicted for arm in arms
            if len(arm.answers) > answer.index}  # fmt: skip
    rows = [("source", answer.text, ""), ("reference", answer.truth, "")]
    rows += [(name, text, "right" if text == answer.truth else "wrong")
             for name, text in outputs.items()]  # fmt: skip
    table = tag(
        "table",
        tag("tbody", *(tag("tr", tag("td", shorten(name, 40)),
            tag("td", shorten(text, 400), class_=f"words {look}".strip(), dir="auto"))
            for name, text, look in rows)),
    )  # fmt: skip
    drawn = {name: maps(texts[index], name) for name, texts in alignments.items() if texts[index]}
    means = [Figure(charts[0]).html() for charts in drawn.values()]
    heads = [Figure(chart).html() for charts in drawn.values() for chart in charts[1:]]
    parts = [tag("h3", f"Text {index + 1}"), tag("div", table, class_="scroll")]
    parts.append(tag("div", *means, class_="maps"))
    if heads:
        grid = tag("div", *heads, class_="maps")
        parts.append(tag("details", tag("summary", "All layers and heads"), grid))
    return tag("section", *parts)
