"""Pairs of sentences with the same words and opposite labels, which differ only in word order."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from regard.lab.data.examples import Example
from regard.lab.data.synthetic import reviews

DRAWN = 12_000  # reviews searched for pairs
SEED = 7_001  # differs from that of the built-in data
PAIRS = 200

Pair = tuple[Example, Example]


def pairs(known: Sequence[Example] = (), count: int = PAIRS) -> list[Pair]:
    """Return pairs (negative, positive) of reviews with equal bags of words, none in `known`.

    >>> negative, positive = pairs(count=1)[0]
    >>> words(negative.text) == words(positive.text), negative.text == positive.text
    (True, False)
    """
    texts = {example.text for example in known}
    bags: dict[tuple[str, ...], dict[str, Example]] = {}
    for example in reviews(DRAWN, SEED):
        if example.text not in texts:
            bags.setdefault(tuple(words(example.text)), {})[example.label] = example
    matches = [(bag["negative"], bag["positive"]) for bag in bags.values() if len(bag) == 2]
    return matches[:count]


def words(text: str) -> list[str]:
    """Return a text's bag of words: words and punctuation in lower case, sorted."""
    return sorted(re.findall(r"\w+|[^\w\s]", text.lower()))


def judge(
    sentence_pairs: Sequence[Pair], predict: Mapping[str, Callable[[list[str]], Sequence[str]]]
) -> dict[str, Any]:
    """Return how often each arm has both texts of a pair right, and how often equal answers.

    `predict` maps each arm to a function from texts to labels. The result is the ``word_order``
    of a report: pairs, arms {name: {both, same}}, shown.
    """
    texts = [example.text for pair in sentence_pairs for example in pair]
    predicted = {name: list(ask(texts)) for name, ask in predict.items()}
    arms = {}
    for name, labels in predicted.items():
        answers = list(zip(labels[::2], labels[1::2], strict=True))
        both = sum(
            a == first.label and b == second.label
            for (a, b), (first, second) in zip(answers, sentence_pairs, strict=True)
        )
        same = sum(a == b for a, b in answers)
        arms[name] = {"both": both / len(sentence_pairs), "same": same / len(sentence_pairs)}
    shown = [
        {
            "texts": [example.text for example in sentence_pairs[i]],
            "truths": [example.label for example in sentence_pairs[i]],
            "said": {name: labels[2 * i : 2 * i + 2] for name, labels in predicted.items()},
        }
        for i in _shortest_and_longest(sentence_pairs)
    ]
    return {"pairs": len(sentence_pairs), "arms": arms, "shown": shown}


def _shortest_and_longest(sentence_pairs: Sequence[Pair]) -> list[int]:
    order = sorted(range(len(sentence_pairs)), key=lambda i: (len(sentence_pairs[i][0].text), i))
    return sorted({order[0], order[-1]}, key=order.index) if order else []
