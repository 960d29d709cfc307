"""Further columns of a row as numbers for a model: standardised, or one for each value."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median, pstdev
from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from pydantic import Field

from regard.core.errors import RegardError
from regard.lab.data.columns import MISSING
from regard.lab.data.examples import Input
from regard.lab.data.labels import number_of, why_no_number
from regard.lab.data.numbers import remedy
from regard.lab.data.titles import listed

VALUES = 100  # categories of a column, the most frequent
LEAST = 2  # rows of a category
Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True)
class Feature:
    """The encoding of a column as numbers.

    Numbers x become (x − mean) / deviation; a missing one is replaced by the ``median``, and a
    second number is 1 for it if training rows lacked some (``missing``). A column with other
    values, ``values`` being those of at least two training rows, becomes a 1 for the value or for
    any other, and 0 elsewhere; "True" is "true".
    """

    name: str
    values: tuple[str, ...] | None = None  # None: numbers
    median: Finite = 0.0
    mean: Finite = 0.0
    deviation: Annotated[Finite, Field(gt=0)] = 1.0
    missing: bool = False

    @classmethod
    def fit(cls, name: str, rows: Sequence[str]) -> "Feature":
        """Choose the kind of a column by its training values, and its parameters.

        Raises: numbers with decimal commas or thousands separators.
        """
        known = [value for value in rows if not _is_missing(value)]
        numbers = [number for value in known if (number := number_of(value)) is not None]
        if not known or len(numbers) < len(known):
            others = [value for value in known if number_of(value) is None]
            if others and all(map(remedy, others)):
                raise RegardError(f"column {name}: {why_no_number(others[0])}")
            counts = Counter(map(_spelled, rows)).most_common(VALUES)
            return cls(name, tuple(sorted(value for value, count in counts if count >= LEAST)))
        middle, missing = median(numbers), len(known) < len(rows)
        filled = [*numbers, *[middle] * (len(rows) - len(known))]
        return cls(name, None, middle, fmean(filled), pstdev(filled) or 1.0, missing)

    def encode(self, value: str) -> dict[str, float]:
        """Return the numbers of a value, each with its name.

        Raises: a value that is not a number, in a column of numbers.

        >>> Feature.fit("price", ["1", "", "3"]).encode("3")
        {'price': 1.22..., 'price is missing': 0.0}
        >>> Feature.fit("country", ["DE", "FR", "DE"]).encode("IT")
        {'country = DE': 0.0, 'country is another': 1.0}
        """
        if self.values is not None:
            value = _spelled(value)
            names = {f"{self.name} = {known}": float(known == value) for known in self.values}
            return {**names, f"{self.name} is another": float(value not in self.values)}
        number = self.median if _is_missing(value) else number_of(value)
        if number is None:
            raise RegardError(f"column {self.name}: {value!r:.40} is not a number, as in training")
        scaled = {self.name: (number - self.mean) / self.deviation}
        if self.missing:
            scaled[f"{self.name} is missing"] = float(_is_missing(value))
        return scaled


@dataclass(frozen=True)
class Features:
    """The further columns of a data set, learned from its training rows."""

    columns: tuple[Feature, ...] = ()

    @classmethod
    def fit(cls, names: Sequence[str], texts: Sequence[str]) -> "Features":
        """Learn the columns of these names from training inputs."""
        return cls(tuple(Feature.fit(name, values) for name, values in _columns(names, texts)))

    @property
    def width(self) -> int:
        """Return the number of numbers for each row."""
        return sum(len(column.encode("")) for column in self.columns)

    def json(self) -> list[dict[str, Any]]:
        """Return the columns as JSON-serialisable values."""
        return [
            {**asdict(x), "values": None if x.values is None else list(x.values)}
            for x in self.columns
        ]

    def encode(self, text: str) -> str:
        """Return an input with the numbers of its columns.

        Raises: no further columns; an unknown one; a value that is not a number.
        """
        names = [column.name for column in self.columns]
        given: Mapping[str, str] = text.columns if isinstance(text, Input) else {}
        if unknown := [name for name in given if name not in names]:
            known = f"; columns: {listed(names)}" if names else ", and none"
            raise RegardError(f"this run does not read the column {unknown[0]!r:.60}{known}")
        if not names:
            return text
        if not isinstance(text, Input) or not given:
            raise RegardError(
                f"this run reads further columns, {listed(names)}; give them, too (--feature "
                "NAME=VALUE, or a file with these columns)"
            )
        pairs = (column.encode(given.get(column.name, "")).items() for column in self.columns)
        return text.with_numbers({name: x for items in pairs for name, x in items})


def notes(names: Sequence[str], texts: Sequence[str]) -> list[str]:
    """Return a sentence about each column most of whose values are numbers, but not all."""
    said = []
    for name, values in _columns(names, texts):
        known = [value for value in values if not _is_missing(value)]
        odd = [value for value in known if number_of(value) is None]
        if 0 < 2 * len(odd) < len(known):
            said.append(
                f"column {name}: {len(odd):,} of {len(known):,} values are not numbers, such as "
                f"{odd[0]!r:.40}, so that each value is a category; to read numbers, clear them"
            )
    return said


def _columns(names: Sequence[str], texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    rows = [text.columns for text in texts if isinstance(text, Input)]
    return [(name, [row[name] for row in rows]) for name in names]


def _is_missing(value: str) -> bool:
    return value.casefold() in MISSING


def _spelled(value: str) -> str:
    """Return a value as JSON has it: "True" of a table is "true"."""
    return value.lower() if value.lower() in {"true", "false"} else value


def matrix(texts: Sequence[str]) -> Float[np.ndarray, "texts numbers"]:
    """Return the numbers of encoded inputs; of no width without further columns."""
    rows = [list(text.numbers.values()) if isinstance(text, Input) else [] for text in texts]
    return np.array(rows, dtype=np.float64).reshape(len(texts), -1 if texts else 0)
