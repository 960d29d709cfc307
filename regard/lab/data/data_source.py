"""Where data come from, as every loader takes it."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from regard.core.errors import RegardError

if TYPE_CHECKING:
    from regard.lab.data.frames import Frame


@dataclass(frozen=True)
class Columns:
    """Columns by title, or by number from 1; "" where they are found by common names.

    ``text`` is the input, or "first,second" for two texts; ``label`` the answer: a label, a number,
    tags or the other side of a pair, which ``unlabelled`` rows lack. Rows of equal ``group`` stay
    in one split. ``labels`` renames values of the label column: "neg:0,pos:1". ``separator`` stands
    between several labels of a row; "any": it is found; "none": each value is one label; "": the
    same, but values that look like several labels are an error. ``features`` are further columns
    that models read, "price,country".
    """

    text: str = ""
    label: str = ""
    group: str = ""
    labels: str = ""
    separator: str = ""
    features: str = ""
    unlabelled: bool = False

    @property
    def several(self) -> bool:
        """Return whether a row has several labels, or none."""
        return self.separator not in ("", "none")

    @property
    def named(self) -> bool:
        """Return whether a column is given."""
        return bool(self.text or self.label or self.group or self.features)

    @property
    def texts(self) -> list[str]:
        """Return the columns of the first and, if there are two texts, of the second text.

        A comma before a space belongs to a title.

        Raises: more than two, or an empty name.
        """
        names = [name.strip() for name in re.split(",(?! )", self.text)]
        if len(names) > 2 or (len(names) == 2 and not all(names)):
            raise RegardError(f"text={self.text} must name one column, or two: text=FIRST,SECOND")
        return names

    @property
    def further(self) -> list[str]:
        """Return the names of the further columns. Raises: an empty name, or one twice."""
        names = [name.strip() for name in self.features.split(",")] if self.features else []
        if not all(names) or len({*names}) < len(names):
            raise RegardError(
                f"features={self.features} must name columns, each once: price,country"
            )
        return names

    @property
    def second(self) -> str:
        """Return the column of the second text, "" if there is one text."""
        return "".join(self.texts[1:])

    def filled(self, others: "Columns") -> "Columns":
        """Return these columns, with those of `others` in place of missing ones."""
        names = (field.name for field in fields(self))
        return Columns(*(getattr(self, name) or getattr(others, name) for name in names))


NAMED = Columns()  # columns with common names


@dataclass(frozen=True)
class Splits:
    """The division of rows into train, validation and test.

    ``validation`` is the share of train that is held out, or a file; None: a share that suits the
    data. ``test`` is a file. What no file has is split off by a hash of each text and of ``seed``.
    ``duplicates``: texts in two splits are dropped from the earlier, unless it is "keep".

    Raises: a share outside 0 … 1; a negative seed.
    """

    validation: float | str | None = None
    test: str = ""
    seed: int = 0
    duplicates: str = "drop"

    def __post_init__(self) -> None:
        if self.share is not None and not 0 <= self.share < 1:
            raise RegardError(f"validation must be a fraction between 0 and 1, not {self.share}")
        if self.seed < 0:
            raise RegardError(f"seed must be 0 or more, not {self.seed}")

    @property
    def share(self) -> float | None:
        """Return the share of train held out for validation, if it is not a file."""
        return None if isinstance(self.validation, str) else self.validation

    @property
    def files(self) -> dict[str, str]:
        """Return the files of validation and test that are given."""
        validation = self.validation if isinstance(self.validation, str) else ""
        files = {"validation": validation, "test": self.test}
        return {part: file for part, file in files.items() if file}


@dataclass(frozen=True)
class Limits:
    """The maximum amount of data.

    ``examples``: rows of train, chosen by the seed (0: all). ``longest``: characters of a text. A
    pair with a longer text is skipped and noted, or an error if ``too_long`` is "refuse".
    """

    examples: int = 0
    longest: int = 2_000
    too_long: Literal["drop", "refuse"] = "drop"

    def __post_init__(self) -> None:
        if self.examples < 0:
            raise RegardError(f"examples must be 0 or more, not {self.examples}")


@dataclass(frozen=True)
class DataSource:
    """A named data set or files, and what is read from them.

    ``data`` is a name, a file or folder, a pattern, an address, "FILE,FILE", or a DataFrame of
    labelled texts as a `regard.lab.data.frames.Frame`, which `of` makes; ``target`` the
    second of two aligned files; ``data_dir`` the folder of downloaded data sets. Texts of
    ``without`` are not read.
    """

    data: "Path | str | Frame"
    target: Path | str = ""
    data_dir: Path | str = ""
    columns: Columns = NAMED
    splits: Splits = Splits()
    limits: Limits = Limits()
    without: "DataSource | None" = None

    @classmethod
    def of(cls, data: Any) -> "DataSource":
        """Return a source; any other data get default columns, splits and limits."""
        from regard.lab.data.frames import Frame, is_frame

        source = data if isinstance(data, DataSource) else cls(data)
        return replace(source, data=Frame(source.data)) if is_frame(source.data) else source

    @property
    def name(self) -> str:
        """Return the data as a string."""
        return str(self.data)

    def at(self, data: Path | str, target: Path | str = "") -> "DataSource":
        """Return the same source with other files."""
        return replace(self, data=data, target=target)


def refuse(data: str, why: str, **given: object) -> None:
    """Raise an error that says what to remove, if any value is given.

    >>> refuse("imdb", "has its own parts", test="x.csv", validation="")
    Traceback (most recent call last):
    regard.core.errors.RegardError: imdb has its own parts; remove test
    """
    if names := [name for name, value in given.items() if value]:
        raise RegardError(f"{data} {why}; remove {', '.join(names)}")
