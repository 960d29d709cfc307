"""What the arms look at: a few test texts rung by rung, how spread attention is, pe·pe."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.errors import RegardError
from regard.reports.evidence import Answer, Arm
from regard.reports.figures import histogram
from regard.reports.maps import attention_strip, heat_map, strip_scale
from regard.reports.markup import Html, shorten, tag

TEXTS = 3  # shown word by word
SAMPLED = 24  # whose entropies are counted
LONGEST = 2_000  # signs of a text that is looked at
SMALL = 26  # words up to which every weight is drawn
BINS = 20
CLS = "[CLS]"
POSITIONS = 128


@dataclass(frozen=True)
class Layer:
    """One attention layer on one text: weights (heads, queries, keys) over its tokens."""

    name: str
    tokens: Sequence[str]
    weights: NDArray[np.float64]

    @property
    def received(self) -> NDArray[np.float64]:
        """(keys,): what each word receives, the mean over heads and queries; CLS asks alone."""
        asking = self.weights[:, :1] if self.tokens[:1] == [CLS] else self.weights
        return np.asarray(asking.mean((0, 1)), dtype=np.float64)

    @property
    def spread(self) -> NDArray[np.float64]:
        """(heads · queries,): entropy over that of equal weights: 0 one word, 1 all alike."""
        logs = np.log(self.weights, where=self.weights > 0, out=np.zeros_like(self.weights))
        entropy = -(self.weights * logs).sum(-1).ravel()
        return np.asarray(entropy / np.log(max(self.weights.shape[-1], 2)), dtype=np.float64)


def section(arms: Sequence[Arm]) -> list[Html]:
    """All of it for the arms that attend and whose first run can be loaded."""
    chosen = choose([arm for arm in arms if arm.answers])
    seen = {arm.name: looked for arm in arms if arm.family == "attention"
            if (looked := _look(arm, chosen))}  # fmt: skip
    parts = []
    if seen:
        parts += [tag("h2", "What they look at"), strip_scale()]
        parts += [_text(answer, i, arms, seen) for i, answer in enumerate(chosen[:TEXTS])]
        parts += _entropies(seen)
    return parts + _positions(arms)


def choose(arms: Sequence[Arm]) -> list[Answer]:
    """Test texts to look at: those that divide the arms most first, of readable length.

    The same for all arms, so that rungs are compared on the same words.
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


def _look(arm: Arm, answers: Sequence[Answer]) -> list[list[Layer]]:
    """The attention of an arm's first run on each text; nothing where it cannot be loaded."""
    import regard

    for folder in arm.folders:
        try:
            run = regard.load(folder)
            return [[_layer(*found[:3]) for found in run.attention(a.text)] for a in answers]
        except (RegardError, OSError):
            continue
    return []


def _layer(name: str, tokens: Sequence[str], weights: object) -> Layer:
    values = np.asarray(weights, dtype=np.float64)
    return Layer(plain_name(name), list(tokens), values.reshape(-1, *values.shape[-2:]))


def plain_name(path: str) -> str:
    """Where a layer sits in its model, for people.

    >>> plain_name("blocks.2.attention.attention"), plain_name("pool.attention")
    ('layer 3', 'pool')
    >>> plain_name("decoder.0.memory_attention.work.attention")
    'decoder 1, source'
    """
    short = re.sub(r"(\.(attention|work))+$", "", path)
    found = re.fullmatch(r"(blocks|layers|encoder|decoder)\.(\d+)(\.memory_attention)?", short)
    if not found:
        return short
    side = "layer" if found[1] in ("blocks", "layers") else found[1]
    return f"{side} {int(found[2]) + 1}" + (", source" if found[3] else "")


def _text(
    answer: Answer, index: int, arms: Sequence[Arm], seen: Mapping[str, list[list[Layer]]]
) -> Html:
    said = {arm.name: arm.answers[answer.index] for arm in arms
            if len(arm.answers) > answer.index}  # fmt: skip
    head = tag("h3", f"Text {index + 1}, in truth {answer.told(answer.truth)}")
    rungs, small = [], []
    for name, looked in seen.items():
        layers = looked[index]
        if not layers:
            continue
        last = layers[-1]
        verdict = said.get(name)
        words = [tag("b", name)]
        if verdict:
            look = "right" if verdict.right else "wrong"
            words.append(
                tag(
                    "span",
                    f"{'✓' if verdict.right else '✗'} {verdict.told(verdict.said)}",
                    class_=look,
                )
            )
        words.append(tag("span", last.name, class_="soft"))
        strip = attention_strip(last.tokens, last.received)
        rungs.append(tag("div", tag("p", *words), strip, class_="rung"))
        if last.weights.shape[1] > 1 and len(last.tokens) <= SMALL:
            small.append(_matrix(name, last))
    if small:
        more = tag("details", tag("summary", "Every weight, word by word"), *small)
        return tag("section", head, *rungs, more)
    return tag("section", head, *rungs)


def _matrix(name: str, layer: Layer) -> Html:
    chart = heat_map(
        f"{name}, {layer.name}: who looks at whom", layer.weights.mean(0), rows=layer.tokens,
        columns=layer.tokens, x_label="is looked at", y_label="looks",
    )  # fmt: skip
    return tag("figure", tag("div", chart, class_="scroll"))


def _entropies(seen: Mapping[str, list[list[Layer]]]) -> list[Html]:
    edges = np.linspace(0, 1, BINS + 1)
    shares = {}
    for name, texts in seen.items():
        spread = [layer.spread for layers in texts for layer in layers]
        if spread and sum(map(len, spread)):
            counts, _ = np.histogram(np.clip(np.concatenate(spread), 0, 1), edges)
            shares[name] = counts / counts.sum()
    if not shares:
        return []
    highest = max(float(share.max()) for share in shares.values())
    many = max(map(len, seen.values()))
    charts = [
        tag("figure", histogram(shorten(name, 30), share.tolist(), edges.tolist(), highest=highest,
            x_label="entropy / log(words)"))
        for name, share in shares.items()
    ]  # fmt: skip
    how = (
        f"How spread the weights of a query are, over all layers and heads and {many} test "
        "texts: 0 looks at one word, 1 at all words alike."
    )
    return [
        tag("h3", "How spread attention is"), tag("p", how, class_="note"),
        tag("div", *charts, class_="grid"),
    ]  # fmt: skip


def _positions(arms: Sequence[Arm]) -> list[Html]:
    """pe·pe of the sine positions, where an arm uses them."""
    arm = next((a for a in arms if a.config.get("position") == "sinusoidal"), None)
    if arm is None:
        return []
    import torch

    from regard.attention import sinusoidal

    width = int(arm.config.get("width", 128))
    table = sinusoidal(torch.arange(POSITIONS), width, torch.float64).numpy()
    chart = heat_map(
        f"pe·pe: sine positions of width {width}", table @ table.T, x_label="position j",
        y_label="position i",
    )  # fmt: skip
    how = (
        "The product of two positions depends on their distance alone: a constant band beside the "
        "diagonal, largest where i = j, with ripples further off."
    )
    caption = tag("figcaption", how)
    return [tag("h2", "Positions"), tag("figure", tag("div", chart, class_="scroll"), caption)]
