"""Invented people and where they were born: what a small model can learn in a minute, or cannot.

Of each person there are three passages of text in different words, and one question, "Where was
NAME born?". Names say nothing of places, so the answer for a person whose question was never seen
is in the passages alone: a model that has not read them can do no better than the commonest place.

Three passages and not one, since what is always said in the same words is learned as those words:
a model then knows it by heart and cannot tell it when asked (Allen-Zhu & Li 2024, "Physics of
Language Models: Part 3.1, Knowledge Storage and Extraction").
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
PASSAGES = (  # what counts comes early, so that it is seldom cut off
    "{name} was born in {place} and became a {work} in later years .",
    "{name} ({place}) was a {work} who is still remembered today .",
    "{name} came from {place} and was known to many as a good {work} .",
)


class Person(NamedTuple):
    """Who, where from, and what is written about them."""

    name: str
    place: str
    passages: tuple[str, ...]


def people(count: int = PEOPLE, seed: int = SEED_OF_PEOPLE) -> list[Person]:
    """`count` invented people of different families, a pure function of both arguments.

    >>> print(people(2)[0].passages[1])
    Lena Cormann (Harlem) was a singer who is still remembered today .
    """
    chance = random.Random(seed)
    families = [begin + end for begin in BEGINS for end in ENDS]
    chance.shuffle(families)
    found = []
    for family in families[:count]:
        told = {
            "name": f"{chance.choice(FIRST)} {family}",
            "place": chance.choice(PLACES),
            "work": chance.choice(WORKS),
        }
        passages = tuple(passage.format(**told) for passage in PASSAGES)
        found.append(Person(told["name"], told["place"], passages))
    return found


def others(count: int = 60) -> list[Person]:
    """People of further families, who stand in no passage."""
    return people(PEOPLE + count)[PEOPLE:]


def passages() -> list[str]:
    """All passages, those about one person in a row."""
    return [passage for person in people() for passage in person.passages]
