"""A labelled text and its location, as read from every kind of file."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.lab.data.data_source import Columns
from regard.lab.data.spelling import label_of

SEPARATOR = "[SEP]"  # between two texts, where they are shown as one


class Input(str):
    """The input of a model: a text, perhaps a second one, and perhaps further columns.

    As a string it shows all of them, as reports do, and by it splits compare rows. Models read
    `texts_of`, so that a text that contains "[SEP]" stays one text.

    >>> pair = Input("Is it red?", "It is blue.", {"price": "3"})
    >>> pair, texts_of(pair), texts_of("one [SEP] text")
    ('Is it red? [SEP] It is blue. [price: 3]', ('Is it red?', 'It is blue.'), ('one [SEP] text',))
    """

    texts: tuple[str, ...]
    columns: Mapping[str, str]
    #: The columns as numbers for a model: see `regard.lab.data.features`.
    numbers: Mapping[str, float]

    def __new__(
        cls, first: str, second: str | None = None, columns: Mapping[str, Any] | None = None
    ) -> "Input":
        """Return the input of one text or two, and of the values of columns by name."""
        texts = (first,) if second is None else (first, second)
        values = {name: _value(value) for name, value in dict(columns or {}).items()}
        more = ", ".join(f"{name}: {value}" for name, value in values.items())
        made = super().__new__(cls, f" {SEPARATOR} ".join(texts) + (f" [{more}]" if more else ""))
        made.texts, made.columns, made.numbers = texts, values, {}
        return made

    def with_numbers(self, numbers: Mapping[str, float]) -> "Input":
        """Return the same input with numbers."""
        made = Input(*self._parts)
        made.numbers = numbers
        return made

    def __reduce__(self) -> Any:
        return Input, self._parts

    @property
    def _parts(self) -> tuple[str, str | None, dict[str, str]]:
        return self.texts[0], self.texts[1] if self.texts[1:] else None, dict(self.columns)


def texts_of(text: str) -> tuple[str, ...]:
    """Return the text, or the two texts, of an input."""
    return text.texts if isinstance(text, Input) else (text,)


def as_json(text: str) -> dict[str, Any]:
    """Return an input as JSON-serialisable values, which `from_json` reads.

    >>> as_json(Input("a", "b"))
    {'text': 'a', 'second': 'b'}
    """
    columns = dict(text.columns) if isinstance(text, Input) else {}
    texts = dict(zip(("text", "second"), texts_of(text), strict=False))
    return {**texts, **({"columns": columns} if columns else {})}


def from_json(row: Mapping[str, Any]) -> str:
    """Return the input that `as_json` wrote."""
    second, columns = row.get("second"), row.get("columns")
    if second is None and not columns:
        return str(row["text"])
    return Input(str(row["text"]), None if second is None else str(second), columns)


@dataclass(frozen=True, slots=True)
class Example:
    """A text or `Input`, its label as written in the file, and its location: ``reviews.csv:12``.

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
    """A row that is not an example, and why. A few empty rows are tolerated.

    For predictions a row with an empty text has the rest of its input as `text`, and an object
    without the key of a text its chosen values.
    """

    source: str
    why: str
    empty: bool = False
    text: str = ""
    values: tuple[Any, ...] = ()


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
        remedy = "; write it as a separate field" if isinstance(text, dict | list) else ""
        return BadRow(here, f"the text must be a string, not {_shown(text)}{remedy}")
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


def example_from(values: Sequence[Any], columns: Columns, here: str) -> Example | BadRow:
    """Return the example of the values of a row, in the order of `titles.columns_of`."""
    text, label, *more = values
    bare = columns.unlabelled or columns.several
    second = None
    if columns.second:
        second = example_of(more.pop(0), label, here, unlabelled=bare)
    group = more.pop(0) if columns.group else None
    together = "" if group is None else str(group).strip()
    example = example_of(text, label, here, together, unlabelled=bare)
    if second is None and not more:
        return example
    if isinstance(second, BadRow):
        second = replace(second, why=second.why.replace("the text", "the second text"))
    if wrong := [x for x in (example, second) if isinstance(x, BadRow) and not x.empty]:
        return wrong[0]
    if nested := next((value for value in more if isinstance(value, dict | list)), None):
        return BadRow(here, f"a further column must be a string or a number, not {_shown(nested)}")
    features = dict(zip(columns.further, more, strict=True))
    read = Input(example.text, None if second is None else second.text, features)
    whole = second if isinstance(second, BadRow) and isinstance(example, Example) else example
    return replace(whole, text=read)


def _value(value: Any) -> str:
    """Return a value of a further column as a string; "" if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return label_of(value if isinstance(value, str) else _shown(value))


def _shown(value: Any) -> str:
    return json.dumps(value, default=str)[:40]
