"""What the words of a text add to an answer, drawn: of a model that counts words."""

from typing import TYPE_CHECKING

import numpy as np

from regard.reports.findings import Cell, Table
from regard.reports.maps import heat_map
from regard.reports.markup import Html, shorten, tag

if TYPE_CHECKING:
    from regard.models.baselines import Weighed

SIDE = 24  # words of a picture


def chart(found: "Weighed") -> Html:
    """Draw the words in a row; of many those of the largest weights, in the order of the text."""
    heaviest = np.sort(np.argsort(-np.abs(found.weights), kind="stable")[:SIDE])
    words = [found.words[i] for i in heaviest]
    title = f"What each word adds to {shorten(found.of, 60)}"
    if len(words) < len(found.words):
        title += f": {len(words)} of {len(found.words):,} words"
    return heat_map(title, found.weights[None, heaviest], rows=[""], columns=words, diverging=True)


def section(found: "Weighed") -> list[Html]:
    """The picture, then every word and pair with its weight, the heaviest first."""
    terms = sorted(found.terms.items(), key=lambda term: -abs(term[1]))
    rows: list[list[Cell]] = [[term, round(weight, 4)] for term, weight in terms]
    note = f"With the bias of {found.bias:.3f} they make up the score, {found.score:.3f}."
    table = Table("Words and pairs of words", ["term", "adds"], rows, note)
    return [tag("figure", tag("div", chart(found), class_="scroll")), table.html()]
