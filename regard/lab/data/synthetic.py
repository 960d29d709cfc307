"""Generated film reviews whose label depends on word order and negation.

Every sentence below is for a positive review: {+} is a positive word, {-} a negative one. A
negative review swaps them. There are three kinds:

* plain, 38 %: "The acting was {+}." Any model classifies them.
* negated, 8 %: "Nobody could call the acting {-}." A weighted sum over words cannot classify both
  them and the plain ones.
* exchanged, 54 %: "I expected a {-} film, but I saw a {+} film." Both labels have the same words
  with the same frequency, so a model that ignores their order is right half the time.

So a bag of words exceeds 38 + 8 + 54 / 2 = 73 % only by chance; a model of the grammar reaches
100 %.
"""

import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from regard.lab.data.examples import Example

SHARES = {"plain": 0.38, "negated": 0.08, "exchanged": 0.54}

SENTENCES: dict[str, Sequence[str]] = {
    "plain": (
        "The {part} was {very}{+}.",
        "What a {+} {film}!",
        "The {part} is {+} and the {part} {+}.",
        "This {film} is a {+noun}.",
        "I {+verb} the {part}.",
        "A {very}{+} {film} with a {+} {part}.",
        "The {part} alone makes it a {+noun}.",
    ),
    "negated": (
        "The {part} was not {-} at all.",
        "Nobody could call the {part} {very}{-}.",
        "I cannot say that the {part} was {-}.",
        "It would be wrong to call this {film} a {-noun}.",
        "At no point did I find the {part} {-}.",
        "I would not say that the {part} was not {+}.",
        "The {part} was not as {-} as I had been told.",
        "Never once was the {part} {very}{-}.",
    ),
    "exchanged": (
        # The neighbours of the two words differ, so that word pairs suffice.
        "It was {-} at first, but {+} in the end.",
        "The {part} was not {-}, it was {+}.",
        "It is {+} rather than {-}.",
        "The {part} was more {+} than {-}.",
        "Far from {-}, the {part} was {+}.",
        "I {+verb} it, though {them} {-verb} it.",
        "It is no {-noun}, it is a {+noun}.",
        "They promised a {-noun}, but it was a {+noun} in the end.",
        "The {film} is a {+noun}, the {other} a {-noun}.",
        # The neighbours are the same: the whole sentence matters.
        "I expected a {-} {film}, but I saw a {+} {film}.",
        "The {other} was a {-noun} to me, the {film} was a {+noun} to me.",
        "Where {them} saw a {-} story, I saw a {+} story.",
        "I call it a {+} piece of work, {them} call it a {-} piece of work.",
        "I {-verb} the {other} and I {+verb} the {film}.",
        "I {+verb} the {film} and I {-verb} the {other}.",
        "A {-} hour opens it, a {+} hour closes it.",
        "A {-} {part} cannot change that it is a {+} {film}.",
    ),
}
AROUND = (
    "I saw it on a rainy Tuesday.",
    "My sister chose it.",
    "It runs for two hours.",
    "We watched it at home.",
    "It was made in the nineties.",
    "The cinema was half empty.",
    "I went alone.",
    "It is set in a small town.",
)
CHOICES = {
    "+": "wonderful|moving|funny|clever|charming|gripping",
    "-": "dull|clumsy|tedious|awful|lifeless|boring",
    "+noun": "triumph|delight|pleasure|joy",
    "-noun": "mess|disappointment|bore|failure",
    "+verb": "loved|admired|enjoyed",
    "-verb": "hated|disliked|endured",
    "part": "acting|plot|ending|music|dialogue|script|camera|editing",
    "film": "film|movie|drama|comedy",
    "other": "book|trailer|play|series",
    "them": "my friends|the critics|my parents|our neighbours|most people",
    "very": "||||very |quite |rather |truly ",
}
WORDS = {slot: words.split("|") for slot, words in CHOICES.items()}

PRAISED = ("acting", "plot", "music", "dialogue", "camera")  # the labels of `praise`
ABOUT_PARTS = [
    x for kind in SENTENCES.values() for x in kind if "{part}" in x and "{film}" not in x
]


@dataclass(frozen=True)
class Grammar:
    """Sentences by kind, neutral sentences around them, and the words of each slot."""

    sentences: Mapping[str, Sequence[str]]
    around: Sequence[str]
    words: Mapping[str, Sequence[str]]
    space: str = " "  # between sentences


ENGLISH = Grammar(SENTENCES, AROUND, WORDS)
EXCHANGE = {"+": "-", "-": "+"}
SLOT = re.compile(r"{(\W?)(\w*)}")


def reviews(
    count: int, seed: int = 0, grammar: Grammar = ENGLISH, name: str = "reviews"
) -> list[Example]:
    """Return `count` distinct film reviews, half of them positive, in random order.

    ``name`` is that of the data set, for the sources of the examples.

    >>> for review in reviews(2, seed=3):
    ...     print(review.label, "|", review.text)
    negative | I hated the script. It is set in a small town.
    positive | It was awful at first, but funny in the end.
    """
    chance = random.Random(seed)
    examples: dict[str, Example] = {}
    while len(examples) < count:
        label = ("negative", "positive")[len(examples) % 2]
        text = _review(chance, grammar, positive=label == "positive")
        if text not in examples:
            examples[text] = Example(text, label, "")
    shuffled = list(examples.values())
    chance.shuffle(shuffled)
    return [
        Example(example.text, example.label, f"{name}:{row}")
        for row, example in enumerate(shuffled, 1)
    ]


def ratings(count: int, seed: int = 0) -> list[Example]:
    """Return `count` distinct reviews of one to five sentences with a rating from 0 to 10.

    A sentence is positive (10 points) or negative (0); the rating is the mean, to one decimal.

    >>> rating = ratings(1, seed=3)[0]
    >>> print(rating.label, "|", rating.text)
    5 | It is lifeless rather than wonderful. A tedious hour opens it, a charming hour closes it.
    """
    chance = random.Random(seed)
    examples: dict[str, Example] = {}
    while len(examples) < count:
        praises = [chance.random() < 0.5 for _ in range(chance.randint(1, 5))]
        kinds = chance.choices(list(SHARES), list(SHARES.values()), k=len(praises))
        text = " ".join(
            _sentence(chance.choice(SENTENCES[kind]), chance, WORDS, positive)
            for kind, positive in zip(kinds, praises, strict=True)
        )
        points = round(10 * sum(praises) / len(praises), 1)
        examples.setdefault(text, Example(text, f"{points:g}", f"ratings:{len(examples) + 1}"))
    return list(examples.values())


def praise(count: int, seed: int = 0) -> list[Example]:
    """Return `count` distinct reviews of one to four parts of a film, a sentence each.

    The labels are the parts that are praised, none if all are criticised.

    >>> review = praise(1, seed=3)[0]
    >>> print(review.label, "|", review.text)
    ["camera"] | Never once was the camera awful. The plot was not moving at all.
    """
    chance = random.Random(seed)
    examples: dict[str, Example] = {}
    while len(examples) < count:
        likes = {
            part: chance.random() < 0.5 for part in chance.sample(PRAISED, chance.randint(1, 4))
        }
        text = " ".join(
            _sentence(chance.choice(ABOUT_PARTS), chance, {**WORDS, "part": [part]}, positive)
            for part, positive in likes.items()
        )
        label = json.dumps(sorted(part for part, positive in likes.items() if positive))
        examples.setdefault(text, Example(text, label, f"praise:{len(examples) + 1}"))
    return list(examples.values())


def _review(chance: random.Random, grammar: Grammar, *, positive: bool) -> str:
    """Return a sentence with an opinion, often preceded or followed by a neutral one."""
    kind = chance.choices(list(SHARES), list(SHARES.values()))[0]
    judges = _sentence(chance.choice(grammar.sentences[kind]), chance, grammar.words, positive)
    tells, space = chance.choice(grammar.around), grammar.space
    return chance.choice((judges, f"{tells}{space}{judges}", f"{judges}{space}{tells}"))


def _sentence(
    pattern: str, chance: random.Random, words: Mapping[str, Sequence[str]], positive: bool
) -> str:
    def fill(slot: re.Match[str]) -> str:
        sign, word = slot.groups()
        if sign and not positive:
            sign = EXCHANGE[sign]
        return chance.choice(words[sign + word])

    text = SLOT.sub(fill, pattern)
    text = re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", text)
    return text[0].upper() + text[1:]
