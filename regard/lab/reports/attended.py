"""Attention of the arms on a few test texts, its entropy, and position similarity."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.analysis.layer_attention import LayerAttention
from regard.lab.reports.evidence import Answer, Arm
from regard.lab.reports.figures import histogram
from regard.lab.reports.findings import Figure
from regard.lab.reports.maps import attention_strip, heat_map, strip_scale
from regard.lab.reports.markup import Html, shorten, tag

TEXTS = 3  # texts shown word by word
SAMPLED = 24  # texts in the entropy histograms
LONGEST = 2_000  # characters of a text
SMALL = 26  # words up to which all weights are drawn
BINS = 20
CLS = "[CLS]"
POSITIONS = 128


Layers = Sequence[LayerAttention]


def received(layer: LayerAttention) -> NDArray[np.float64]:
    """Return the weight of each key, (keys,), as a mean over heads and queries.

    With a [CLS] token only its query counts.
    """
    queries = layer.weights[:, :1] if layer.tokens[:1] == [CLS] else layer.weights
    return np.asarray(queries.mean((0, 1), dtype=np.float64))


def entropy(layer: LayerAttention) -> NDArray[np.float64]:
    """Return the entropy of each query's weights over that of uniform weights.

    Shape (heads · queries,); 0 is a single key, 1 uniform attention.
    """
    weights = layer.weights.astype(np.float64)
    logs = np.log(weights, where=weights > 0, out=np.zeros_like(weights))
    return np.asarray(-(weights * logs).sum(-1).ravel() / np.log(max(weights.shape[-1], 2)))


def section(arms: Sequence[Arm]) -> list[Html]:
    """Return the attention section for the attention arms whose runs can be loaded."""
    chosen = choose([arm for arm in arms if arm.answers])
    attention = {arm.name: by_text for arm in arms if arm.family == "attention"
                 if (by_text := _attention(arm, chosen))}  # fmt: skip
    parts = []
    if attention:
        parts += [tag("h2", "Attention on test texts"), strip_scale()]
        parts += [_text(answer, i, arms, attention) for i, answer in enumerate(chosen[:TEXTS])]
        parts += _entropies(attention)
    return parts + _positions(arms)


def choose(arms: Sequence[Arm]) -> list[Answer]:
    """Choose test texts of readable length, those on which the arms disagree most first.

    All arms show the same texts, so that their attention can be compared.
    """
    if not arms or not arms[0].answers:
        return []
    answers = arms[0].answers
    tables = [arm.right[0] for arm in arms if arm.right.shape[-1:] == (len(answers),)]
    agreed = np.mean(tables, 0) if tables else np.ones(len(answers))
    lengths = [len(answer.text.split()) for answer in answers]
    readable = [i for i, n in enumerate(lengths) if n >= 4 and len(answers[i].text) <= LONGEST]
    middle = float(np.median(lengths)) if lengths else 0.0
    ranked = sorted(readable, key=lambda i: (abs(agreed[i] - 0.5), abs(lengths[i] - middle), i))
    return [answers[i] for i in ranked[:SAMPLED]]


def _attention(arm: Arm, answers: Sequence[Answer]) -> list[Layers]:
    """Return the attention of the arm's first loadable run on each text; empty without one."""
    return arm.from_run(lambda run: [run.attention(answer.text) for answer in answers])


def plain_name(path: str) -> str:
    """Return a readable name for the module path of an attention layer.

    >>> plain_name("blocks.2.attention.attention"), plain_name("pool.attention")
    ('layer 3', 'pool')
    >>> plain_name("decoder.0.memory_attention.work.attention")
    'decoder 1, source'
    """
    short = re.sub(r"(\.(attention|work))+$", "", path)
    match = re.fullmatch(r"(blocks|layers|encoder|decoder)\.(\d+)(\.memory_attention)?", short)
    if not match:
        return short
    side = "layer" if match[1] in ("blocks", "layers") else match[1]
    return f"{side} {int(match[2]) + 1}" + (", source" if match[3] else "")


def _text(
    answer: Answer, index: int, arms: Sequence[Arm], attention: Mapping[str, list[Layers]]
) -> Html:
    predictions = {arm.name: arm.answers[answer.index] for arm in arms
                   if len(arm.answers) > answer.index}  # fmt: skip
    head = tag("h3", f"Text {index + 1}, true answer: {answer.in_words(answer.truth)}")
    rungs, small = [], []
    for name, texts in attention.items():
        layers = texts[index]
        if not layers:
            continue
        last = layers[-1]
        prediction = predictions.get(name)
        words = [tag("b", name)]
        if prediction:
            sign, look = ("✓", "right") if prediction.right else ("✗", "wrong")
            answered = prediction.in_words(prediction.predicted)
            words.append(tag("span", f"{sign} {answered}", class_=look))
        words.append(tag("span", plain_name(last.layer), class_="soft"))
        strip = attention_strip(last.tokens, received(last))
        rungs.append(tag("div", tag("p", *words), strip, class_="rung"))
        if last.weights.shape[1] > 1 and len(last.tokens) <= SMALL:
            small.append(_matrix(name, last))
    if small:
        more = tag("details", tag("summary", "All weights, word by word"), *small)
        return tag("section", head, *rungs, more)
    return tag("section", head, *rungs)


def _matrix(name: str, layer: LayerAttention) -> Html:
    chart = heat_map(
        f"{name}, {plain_name(layer.layer)}: attention weights",
        layer.weights.mean(0, dtype=np.float64), rows=layer.tokens, columns=layer.tokens,
        x_label="key", y_label="query",
    )  # fmt: skip
    return Figure(chart).html()


def _entropies(attention: Mapping[str, list[Layers]]) -> list[Html]:
    edges = np.linspace(0, 1, BINS + 1)
    shares = {}
    for name, texts in attention.items():
        entropies = [entropy(layer) for layers in texts for layer in layers]
        if entropies and sum(map(len, entropies)):
            counts, _ = np.histogram(np.clip(np.concatenate(entropies), 0, 1), edges)
            shares[name] = counts / counts.sum()
    if not shares:
        return []
    highest = max(float(share.max()) for share in shares.values())
    count = max(map(len, attention.values()))
    charts = [
        tag("figure", histogram(shorten(name, 30), share.tolist(), edges.tolist(), highest=highest,
            x_label="entropy / log(words)"))
        for name, share in shares.items()
    ]  # fmt: skip
    how = (
        f"Normalised entropy of the attention weights of each query, over all layers and heads "
        f"and {count} test texts: 0 attends to one word, 1 to all words equally."
    )
    return [
        tag("h3", "Attention entropy"), tag("p", how, class_="note"),
        tag("div", *charts, class_="grid"),
    ]  # fmt: skip


def _positions(arms: Sequence[Arm]) -> list[Html]:
    """Draw the dot products of the sinusoidal positions, if an arm uses them."""
    arm = next((a for a in arms if a.config.get("position") == "sinusoidal"), None)
    if arm is None:
        return []
    import torch

    from regard.attention import sinusoidal

    width = int(arm.config.get("width", 128))
    table = sinusoidal(torch.arange(POSITIONS), width, torch.float64).numpy()
    chart = heat_map(
        f"Dot products of sinusoidal positions, width {width}", table @ table.T,
        x_label="position j",
        y_label="position i",
    )  # fmt: skip
    how = (
        "The dot product of two positions depends only on their distance: it is largest at i = j "
        "and oscillates with growing distance."
    )
    return [tag("h2", "Positions"), Figure(chart, how).html()]
