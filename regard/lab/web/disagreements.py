"""Disagreements of two runs on the test split: counts, and the texts that only one gets right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.core.errors import RegardError
from regard.lab.data.examples import as_json
from regard.lab.web.requests import DisagreementsRequest

LABELS = 100  # most reference answers by which texts can be filtered


@dataclass(frozen=True)
class Disagreements:
    """The texts that only one of two runs gets right, short ones first.

    ``right`` counts texts that both get right, only a, only b, and neither.
    """

    right: dict[str, int]
    rows: list[dict[str, Any]]

    @classmethod
    def between(cls, names: tuple[str, str], evaluations: Sequence[Any]) -> "Disagreements":
        """Compare the answers of two runs. Raises: no labels or texts; different test texts."""
        first, second = evaluations
        if not first.predictions or not second.predictions:
            raise RegardError(
                "these runs predict numbers or are scored per token, so no answer is right or wrong"
            )
        a, b = np.asarray(first.correct), np.asarray(second.correct)
        texts = [[example.text for example in scores.examples] for scores in (first, second)]
        if texts[0] != texts[1]:
            raise RegardError(f"{names[0]} and {names[1]} have different test texts")
        counts = [a & b, a & ~b, ~a & b, ~a & ~b]
        answers = [scores.predictions for scores in (first, second)]
        places = sorted(np.flatnonzero(a != b), key=lambda i: (len(texts[0][i]), i))
        rows = [
            {**as_json(texts[0][i]), "truth": first.examples[i].label, "a": answers[0][i],
             "b": answers[1][i], "right": "a" if a[i] else "b"}
            for i in places
        ]  # fmt: skip
        keys = ("both", "a", "b", "neither")
        sums = (int(count.sum()) for count in counts)
        return cls(dict(zip(keys, sums, strict=True)), rows)

    def page(self, query: DisagreementsRequest) -> dict[str, Any]:
        """Return a page of the texts that match a request, their number, and the counts."""
        rows = [row for row in self.rows if query.matches(row)]
        truths = sorted({row["truth"] for row in self.rows})
        return {
            "right": self.right,
            "truths": truths if len(truths) <= LABELS else [],
            "found": len(rows),
            "offset": min(query.offset, len(rows)),
            "shown": rows[query.offset : query.offset + query.limit],
        }
