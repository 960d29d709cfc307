"""A labelled text and its location, as read from every kind of file."""

import json
import math
from dataclasses import dataclass
from typing import Any

from regard.lab.data.spelling import label_of


@dataclass(frozen=True, slots=True)
class Example:
    """A text, its label as written in the file, and its location: ``reviews.csv:12``.

    Texts of one `group` (a film, an author, a customer) share more than their label, so a split
    keeps them together. `parents` has the head of each space-separated word of a parsed sentence,
    from 0; −1: a root.
    """

    text: str
    label: str
    source: str
    group: str = ""
    parents: tuple[int, ...] | None = None

    @property
    def words(self) -> list[str]:
        """Return the words of a parsed sentence, one for each of its `parents`."""
        return self.text.split(" ")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is not an example, and why. A few empty rows are tolerated."""

    source: str
    why: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """A sentence for the user about how an ambiguous file was read."""

    says: str


Row = Example | BadRow | Remark


def example_of(
    text: Any, label: Any, here: str, group: str = "", *, unlabelled: bool = False
) -> Example | BadRow:
    """Return the example of two values from JSON or a table, or a bad row with the reason.

    A number or boolean label, or a list of them and of strings, is written as in JSON. Null, NaN
    and whitespace count as empty; with ``unlabelled`` a label may be.
    """
    if text is not None and not isinstance(text, str):
        return BadRow(here, f"the text must be a string, not {_shown(text)}{_nested(text)}")
    if isinstance(label, dict) or (
        isinstance(label, list) and not all(isinstance(x, str | int | float) for x in label)
    ):
        return BadRow(
            here,
            f"the label must be a string, a number or a list of them, not {_shown(label)}",
        )
    if isinstance(label, list):
        label = json.dumps(label, ensure_ascii=False)
    text = text or ""
    for what, value in (("text", text), ("label", label), ("group", group)):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            place = error.start + 1
            return BadRow(here, f"unpaired surrogate at character {place} of the {what}")
    if not text.strip():
        return BadRow(here, "the text is empty", empty=True)
    if isinstance(label, float) and math.isnan(label):
        label = None
    label = "" if label is None else label if isinstance(label, str) else _shown(label)
    label = label_of(label)
    if not label and not unlabelled:
        return BadRow(here, "the label is empty", empty=True)
    return Example(text, label, here, label_of(group))


def _nested(value: Any) -> str:
    """Return the remedy for a nested value."""
    return "; write it as a separate field" if isinstance(value, dict | list) else ""


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:40]
