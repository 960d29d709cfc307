"""Where two runs answer the test split differently: counts, and the texts that one gets right."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from regard.errors import RegardError

LABELS = 100  # different true answers up to which texts can be chosen by them

Side = Literal["", "a", "b"]


@dataclass(frozen=True)
class Filter:
    """Which texts: those that ``right`` alone gets right, of one true answer, with some words."""

    right: Side = ""
    truth: str = ""
    contains: str = ""

    def takes(self, row: dict[str, str]) -> bool:
        """Whether a row of `Disagreements` is one of them; case makes no difference."""
        if self.right not in ("", row["right"]) or self.truth not in ("", row["truth"]):
            return False
        words = self.contains.casefold()
        return any(words in row[key].casefold() for key in ("text", "truth", "a", "b"))


@dataclass(frozen=True)
class Disagreements:
    """The texts that one of two runs gets right, short ones first.

    ``right`` counts whose answers are right: of both, of a alone, of b alone, of neither.
    """

    right: dict[str, int]
    rows: list[dict[str, str]]

    @classmethod
    def between(cls, names: tuple[str, str], judged: Sequence[Any]) -> "Disagreements":
        """Of two runs by what they answered. Errors: no answers; answers to other texts."""
        first, second = judged
        if not first.said or not second.said:
            raise RegardError(
                "these runs say numbers, or are judged token by token: no answer is right or wrong"
            )
        ours, theirs = np.asarray(first.correct), np.asarray(second.correct)
        texts = [[example.text for example in found.examples] for found in (first, second)]
        if texts[0] != texts[1]:
            raise RegardError(f"{names[0]} and {names[1]} were not judged on the same texts")
        counts = [ours & theirs, ours & ~theirs, ~ours & theirs, ~ours & ~theirs]
        said = [found.said for found in (first, second)]
        places = sorted(np.flatnonzero(ours != theirs), key=lambda i: (len(texts[0][i]), i))
        rows = [
            {"text": texts[0][i], "truth": first.examples[i].label, "a": said[0][i],
             "b": said[1][i], "right": "a" if ours[i] else "b"}
            for i in places
        ]  # fmt: skip
        keys = ("both", "a", "b", "neither")
        sums = (int(count.sum()) for count in counts)
        return cls(dict(zip(keys, sums, strict=True)), rows)

    def page(self, chosen: Filter, offset: int, limit: int) -> dict[str, Any]:
        """Some of the texts that a filter takes, how many it takes, and what it can choose by."""
        found = [row for row in self.rows if chosen.takes(row)]
        truths = sorted({row["truth"] for row in self.rows})
        return {
            "right": self.right,
            "truths": truths if len(truths) <= LABELS else [],
            "found": len(found),
            "offset": min(offset, len(found)),
            "shown": found[offset : offset + limit],
        }
