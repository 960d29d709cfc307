"""A text with its label and where it stands, as every file of labelled texts gives it."""

import json
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Example:
    """A text, its label as it stands in the file, and where it stands: ``reviews.csv:12``.

    Texts of one `group` (a film, an author, a customer) are alike in more than their label, so no
    split puts them on two sides. Of a parsed sentence `parents` says for each word, of those that
    stand between the text's spaces, on which one it hangs, from 0; −1: it is a root.
    """

    text: str
    label: str
    source: str
    group: str = ""
    parents: tuple[int, ...] | None = None

    @property
    def words(self) -> list[str]:
        """The words of a parsed sentence, one for each of its `parents`."""
        return self.text.split(" ")


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is no example, and why. An empty one is harmless where it is rare."""

    source: str
    why: str
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Remark:
    """What was taken of a file that leaves it open, in a sentence for its user."""

    says: str


Row = Example | BadRow | Remark


def example_of(text: Any, label: Any, here: str, group: str = "") -> Example | BadRow:
    """The row of two values as JSON or a table has them, or what is wrong with it.

    A label that is a number or a truth value is written as in JSON. Null, NaN and spaces are no
    label, and null and spaces no text.
    """
    if text is not None and not isinstance(text, str):
        return BadRow(here, f"the text is not a string but {_told(text)}")
    if isinstance(label, dict | list | tuple):
        return BadRow(
            here,
            f"the label is neither string nor number but {_told(label)}; regard takes one label a "
            "text",
        )
    text = text or ""
    for what, value in (("text", text), ("label", label), ("group", group)):
        try:
            str(value).encode()
        except UnicodeEncodeError as error:
            place = error.start + 1
            return BadRow(here, f"half a surrogate pair at character {place} of the {what}")
    if not text.strip():
        return BadRow(here, "the text is empty", empty=True)
    if isinstance(label, float) and math.isnan(label):
        label = None
    label = "" if label is None else label if isinstance(label, str) else _told(label)
    label = label.strip()
    if not label:
        return BadRow(here, "the label is empty", empty=True)
    return Example(text, label, here, group)


def _told(value: Any) -> str:
    return json.dumps(value, default=str)[:40]
