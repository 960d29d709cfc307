"""Generated sentences with people, places and organisations, tagged B-, I- and O.

Names are ambiguous: Jordan, Paris, Austin or Florence are people, places and organisations, and
most surnames of test do not occur in train. The type of a name follows from its neighbours or the
verb, which a clause may separate from it: a model that sees two words on either side has to guess.
"""

import random
import re

from regard.lab.data.biographies import BEGINS, ENDS
from regard.lab.data.examples import Example

#: Names of both people and places.
BOTH = "Jordan Paris Austin Florence Sydney Georgia Chelsea Lincoln Madison Savannah".split()
PEOPLE = "Ada Ben Clara Dana Emil Fatima Hugo Ines Jonas Kira Lena Milo Nora Omar Rosa".split()
PLACES = (
    "Berlin|Lisbon|New York|Nairobi|Osaka|San Juan|Cape Town|Vienna|Lima|New Delhi|Oslo|Santa Fe"
).split("|")
KINDS = "Group Bank Airlines Institute Records Press Foods Motors University Museum".split()
SLOTS = {
    "month": "January March May June August October".split(),
    "job": "director|editor|pilot|lawyer|chief engineer|teacher".split("|"),
    "day": "Monday Tuesday Friday Sunday".split(),
    "thing": "a letter|the report|two tickets|an old map|the prize".split("|"),
}
PATTERNS = (
    "{person} moved from {place} to {place} in {month} .",
    "{org} hired {person} as its new {job} .",
    "{org} opened an office in {place} last {day} .",
    "In {place} , {person} sold {thing} to {org} .",
    "{person} , who works for {org} , flew to {place} .",
    "The {job} of {org} met {person} on {day} .",
    "Nobody in {place} had heard of {person} .",
    "{person} wrote {thing} about {place} .",
    "Shares of {org} fell after {person} left .",
    "{place} is warm in {month} , says {person} .",
    "On {day} the {job} bought {thing} .",
    "{person} and {person} live near {place} .",
    "May I see {thing} ? asked {person} .",
)
#: Continuations of a subject whose type only the verb reveals.
OPEN = {
    "person": ("sold {thing} to {org} .", "wrote {thing} in {month} .", "met the {job} on {day} ."),
    "place": ("was warm in {month} .", "lies near {place} .", "lost half of its people ."),
    "org": ("hired the {job} .", "opened an office in {place} .", "fired {person} in {month} ."),
}
BETWEEN = (
    ", after a long and quiet winter ,",
    ", which nobody had thought of before ,",
    ", as the papers wrote again on {day} ,",
    ", much to the surprise of the {job} ,",
    "",
)
_slot = re.compile(r"{(\w+)}")


def sentences(count: int, seed: int = 0) -> list[Example]:
    """Return `count` distinct sentences, a pure function of both arguments.

    >>> (example,) = sentences(1, seed=2017)
    >>> print(example.text, example.label, sep=chr(10))
    The pilot of Jenart met Rosa on Tuesday .
    O O O B-org O B-person O O O
    """
    chance = random.Random(seed)
    examples: dict[str, Example] = {}
    while len(examples) < count:
        words, tags = _sentence(chance)
        text = " ".join(words)
        examples.setdefault(text, Example(text, " ".join(tags), f"entities:{len(examples) + 1}"))
    return list(examples.values())


def _sentence(chance: random.Random) -> tuple[list[str], list[str]]:
    words: list[str] = []
    tags: list[str] = []
    for part in re.split(r"({\w+})", _pattern(chance)):
        slot = _slot.fullmatch(part)
        filled = (_name(slot[1], chance) if slot else part).split()
        words += filled
        if slot and slot[1] not in SLOTS:
            tags += [
                f"{'I' if i else 'B'}-{slot[1].removeprefix('any_')}" for i in range(len(filled))
            ]
        else:
            tags += ["O"] * len(filled)
    return words, tags


def _pattern(chance: random.Random) -> str:
    """Return a pattern; in half of them only the verb reveals the type of the subject."""
    if chance.random() < 0.5:
        return chance.choice(PATTERNS)
    kind = chance.choice([*OPEN])
    subject = chance.choice([f"{{any_{kind}}}", f"{{{kind}}}"])
    return " ".join([subject, chance.choice(BETWEEN), chance.choice(OPEN[kind])])


def _name(slot: str, chance: random.Random) -> str:
    """Return a random text for a slot."""
    if slot in SLOTS:
        return chance.choice(SLOTS[slot])
    if slot.startswith("any_"):
        return chance.choice(BOTH)
    both = chance.random() < 0.4
    family = chance.choice(BEGINS) + chance.choice(ENDS)
    if slot == "person":
        first = chance.choice(BOTH if both else PEOPLE)
        return f"{first} {family}" if chance.random() < 0.5 else first
    if slot == "place":
        return chance.choice(BOTH if both else PLACES)
    owner = chance.choice(BOTH) if both else family
    return f"{owner} {chance.choice(KINDS)}" if chance.random() < 0.7 else family
