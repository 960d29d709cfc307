"""Invented people and their birthplaces: facts that a small model can learn in a minute.

Each person has three differently worded passages and one question, "Where was NAME born?". Names
do not reveal places, so the answer to an unseen question is only in the passages: a model that has
not read them can do no better than the most frequent place.

There are three passages because a fact that is always worded the same way is memorised as that
wording and cannot be extracted by a question (Allen-Zhu & Li 2024, "Physics of Language Models:
Part 3.1, Knowledge Storage and Extraction").
"""

import random
from typing import NamedTuple

PEOPLE = 120
SEED_OF_PEOPLE = 5
FIRST = "Ada Bela Cyro Dana Edda Filo Gwen Hari Ines Jory Kira Lena Milo Nora Odon Pia".split()
BEGINS = "Bal Cor Dan Fel Gar Hol Jen Kel Lor Mar Nes Pol Rin Sal Tor Ves".split()
ENDS = "aby ander art berg by dahl ec ello en gard ini mann o ov quist ren sen son sta er".split()
PLACES = "Arden Bruno Corvo Delmar Elgin Forli Gomel Harlem Izmir Jarrow".split()
WORKS = "painter singer doctor writer".split()
PASSAGES = (  # the facts come early, so that they are seldom truncated
    "{name} was born in {place} and became a {work} in later years .",
    "{name} ({place}) was a {work} who is still remembered today .",
    "{name} came from {place} and was known to many as a good {work} .",
)


class Person(NamedTuple):
    """A person's name, birthplace and passages."""

    name: str
    place: str
    passages: tuple[str, ...]


def people(count: int = PEOPLE, seed: int = SEED_OF_PEOPLE) -> list[Person]:
    """Return `count` invented people with distinct surnames, a pure function of both arguments.

    >>> print(people(2)[0].passages[1])
    Lena Cormann (Harlem) was a singer who is still remembered today .
    """
    chance = random.Random(seed)
    families = [begin + end for begin in BEGINS for end in ENDS]
    chance.shuffle(families)
    everyone = []
    for family in families[:count]:
        facts = {
            "name": f"{chance.choice(FIRST)} {family}",
            "place": chance.choice(PLACES),
            "work": chance.choice(WORKS),
        }
        passages = tuple(passage.format(**facts) for passage in PASSAGES)
        everyone.append(Person(facts["name"], facts["place"], passages))
    return everyone


def others(count: int = 60) -> list[Person]:
    """Return people with other surnames, who occur in no passage."""
    return people(PEOPLE + count)[PEOPLE:]


def passages() -> list[str]:
    """Return all passages, grouped by person."""
    return [passage for person in people() for passage in person.passages]
