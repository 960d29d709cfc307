"""Draw the contribution of each word to the prediction of a word-counting model."""

from typing import TYPE_CHECKING

import numpy as np

from regard.lab.reports.findings import Cell, Figure, Table
from regard.lab.reports.maps import heat_map
from regard.lab.reports.markup import Html, shorten

if TYPE_CHECKING:
    from regard.lab.tasks.baselines import Weighed

SIDE = 24  # words of a chart


def chart(text: "Weighed") -> Html:
    """Draw the words in text order; of a long text only those with the largest weights."""
    largest = np.sort(np.argsort(-np.abs(text.weights), kind="stable")[:SIDE])
    words = [text.words[i] for i in largest]
    title = f"Contribution of each word to {shorten(text.of, 60)}"
    if len(words) < len(text.words):
        title += f": {len(words)} of {len(text.words):,} words"
    return heat_map(title, text.weights[None, largest], rows=[""], columns=words, diverging=True)


def section(text: "Weighed") -> list[Html]:
    """Return the chart, then a table of all terms by decreasing absolute weight."""
    terms = sorted(text.terms.items(), key=lambda term: -abs(term[1]))
    rows: list[list[Cell]] = [[term, round(weight, 4)] for term, weight in terms]
    note = f"The weights and the bias of {text.bias:.3f} sum to the score, {text.score:.3f}."
    table = Table("Words and pairs of words", ["term", "weight"], rows, note)
    return [Figure(chart(text)).html(), table.html()]
