"""Which column of a table is which: by its title, or by its number where there is no header."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from regard.errors import RegardError

TEXT_NAMES = ("text", "review", "sentence", "content", "comment", "body", "message", "document")
LABEL_NAMES = ("label", "sentiment", "target", "class", "category", "stars", "rating", "polarity")


class OtherFileError(RegardError):
    """A file of another kind than is read, or with no column that looks like what is wanted."""


@dataclass(frozen=True)
class Columns:
    """Where what is asked for stands in a row; `titled`: the first row is a header."""

    text: int
    label: int
    group: int | None
    titled: bool

    @property
    def places(self) -> list[int]:
        """Where text, label and, if one was named, group stand."""
        return [self.text, self.label, *([] if self.group is None else [self.group])]


def columns_of(
    here: str,
    header: Sequence[str],
    text: str | None,
    label: str | None,
    group: str | None,
    numbers: bool = True,
) -> Columns:
    """Which column is which; `titled` says whether the first row is a header."""
    names = [name.strip().casefold() for name in header]
    found, by_number = [], []
    asked_for: list[tuple[str, str | None, tuple[str, ...]]] = [
        ("text", text, TEXT_NAMES),
        ("label", label, LABEL_NAMES),
    ]
    if group:
        asked_for.append(("group", group, ()))
    for what, given, usual in asked_for:
        wanted = usual if given is None else (given.strip().casefold(),)
        number = numbered(given, names) if given and numbers else None
        place: int | None
        if number is not None and 0 <= number < len(header):
            by_number.append(place := number)
        else:
            place = next((names.index(name) for name in wanted if name in names), None)
            if place is None and number is not None:
                raise RegardError(f"{here}: has {len(header)} columns, so no column {given}")
        if place is None:
            raise _no_column(here, header, what, given, numbers)
        found.append(place)
    if found[0] == found[1]:
        raise RegardError(f"{here}: text and label are the same column, {header[found[0]]!r}")
    usual_names = TEXT_NAMES + LABEL_NAMES
    by_name = len(by_number) < len(asked_for)  # a name that is found stands in a header
    titled = by_name or all(names[place] in usual_names for place in by_number[:2])
    return Columns(found[0], found[1], found[2] if group else None, titled)


def _no_column(
    here: str, header: Sequence[str], what: str, given: str | None, numbers: bool
) -> RegardError:
    """The error for a column that is not there: what was named, or what none looks like."""
    name = "the columns by text=NAME and label=NAME (--text, --label for data check and evaluate)"
    if what == "group":
        name = "it by group=NAME (--group for data check)"
    if numbers:
        number = "group=3" if what == "group" else "text=2 label=1"
        name += f", or by number, from 1: {number}"
    if not given:
        says = f"no column looks like the {what}; there are {listed(header)}; name {name}"
        return OtherFileError(f"{here}: {says}")
    near = get_close_matches(given, header, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}? There" if near else "there"
    return RegardError(f"{here}: no column {given!r}; {hint} are {listed(header)}; name {name}")


def numbered(given: str, names: Sequence[str]) -> int | None:
    """The place of a column that is given by its number, from 1; None of one given by its name.

    Where the first row is numbers alone, as pandas writes columns without names, they are names.
    """
    number = given.strip()
    if not number.isdecimal() or (number in names and all(name.isdecimal() for name in names)):
        return None
    return int(number) - 1


def listed(names: Sequence[str], most: int = 8) -> str:
    """The first names, for an error."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most:,} more" if len(names) > most else "")
