"""Pairs of sentences with the same words and opposite labels: only their order tells them apart."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.data.files import Example
from regard.data.synthetic import reviews

DRAWN = 12_000  # reviews among which pairs are looked for
SEED = 7_001  # not that of the built-in data
PAIRS = 200

Pair = tuple[Example, Example]


def pairs(known: Sequence[Example] = (), count: int = PAIRS) -> list[Pair]:
    """Pairs (negative, positive) of built-in reviews with the same bag of words, none in `known`.

    >>> negative, positive = pairs(count=1)[0]
    >>> words(negative.text) == words(positive.text), negative.text == positive.text
    (True, False)
    """
    seen = {example.text for example in known}
    bags: dict[tuple[str, ...], dict[str, Example]] = {}
    for example in reviews(DRAWN, SEED):
        if example.text not in seen:
            bags.setdefault(tuple(words(example.text)), {})[example.label] = example
    found = [(bag["negative"], bag["positive"]) for bag in bags.values() if len(bag) == 2]
    return found[:count]


def words(text: str) -> list[str]:
    """Return the bag of words of a text: its words and signs in lower case, sorted."""
    return sorted(re.findall(r"\w+|[^\w\s]", text.lower()))


def judge(
    found: Sequence[Pair], predict: Mapping[str, Callable[[list[str]], Sequence[str]]]
) -> dict[str, Any]:
    """Return what each arm says about the pairs: how often both right, how often the same of both.

    `predict` has a function from texts to labels for each arm. The result is the ``word_order``
    of a report: pairs, arms {name: {both, same}}, shown.
    """
    texts = [example.text for pair in found for example in pair]
    said = {name: list(ask(texts)) for name, ask in predict.items()}
    arms = {}
    for name, labels in said.items():
        answers = list(zip(labels[::2], labels[1::2], strict=True))
        both = sum(
            a == first.label and b == second.label
            for (a, b), (first, second) in zip(answers, found, strict=True)
        )
        same = sum(a == b for a, b in answers)
        arms[name] = {"both": both / len(found), "same": same / len(found)}
    shown = [
        {
            "texts": [example.text for example in found[i]],
            "truths": [example.label for example in found[i]],
            "said": {name: labels[2 * i : 2 * i + 2] for name, labels in said.items()},
        }
        for i in _shortest_and_longest(found)
    ]
    return {"pairs": len(found), "arms": arms, "shown": shown}


def _shortest_and_longest(found: Sequence[Pair]) -> list[int]:
    order = sorted(range(len(found)), key=lambda i: (len(found[i][0].text), i))
    return sorted({order[0], order[-1]}, key=order.index) if order else []
