"""Finding columns of a table by title, or by number where there is no header."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from regard.core.errors import RegardError
from regard.lab.data.data_source import NAMED, Columns
from regard.lab.data.examples import Remark

TEXT_NAMES = ("text", "review", "sentence", "content", "comment", "body", "message", "document")
LABEL_NAMES = ("label", "sentiment", "target", "class", "category", "stars", "rating", "polarity")


NO_FEATURES = ("id", "index", "split")  # titles of columns that tell a model nothing


class OtherFileError(RegardError):
    """A file of an unsupported kind, or without a recognisable column."""


class Chosen(NamedTuple):
    """The indexes of the columns to read; `titled`: the first row is a header.

    `remark` says how an ambiguous first row was read.
    """

    places: list[int]
    titled: bool
    remark: str = ""


def columns_of(
    here: str, header: Sequence[str], columns: Columns = NAMED, *, numbers: bool = True
) -> Chosen:
    """Return the columns of text, label and, if given, second text, group and further ones.

    Without labels, the text stands for the label, too.

    Raises: no such column; one column for text and label; as `place_of`, `must_be_distinct`.
    """
    names = [name.strip().casefold() for name in header]
    places, by_number = [], []
    first, *second = columns.texts
    asked_for: list[tuple[str, str, tuple[str, ...]]] = [
        ("text", first, TEXT_NAMES),
        ("text", first, TEXT_NAMES)
        if columns.unlabelled
        else ("label", columns.label, LABEL_NAMES),
        *(("second text", name, ()) for name in second),
    ]
    if columns.group:
        asked_for.append(("group", columns.group, ()))
    asked_for += [("further", name, ()) for name in columns.further]
    for what, given, usual in asked_for:
        wanted = (given,) if given else usual
        number = numbered(given, names) if given and numbers else None
        place: int | None
        if number is not None and 0 <= number < len(header):
            by_number.append(place := number)
        else:
            place = first_of(here, header, wanted)
            if place is None and number is not None:
                raise RegardError(f"{here}: {len(header)} columns, so no column {given}")
        if place is None:
            raise _no_column(here, header, what, given, numbers)
        places.append(place)
    names_of = dict[int, str]()
    for (what, *_), place in zip(asked_for[: 2 + len(second)], places, strict=False):
        if (other := names_of.get(place, what)) != what:
            raise RegardError(f"{here}: {other} and {what} are the same column, {header[place]!r}")
        names_of[place] = what
    usual_names = TEXT_NAMES + LABEL_NAMES
    by_name = len(by_number) < len(asked_for)  # a known name must be in a header
    if by_name:
        must_be_distinct(here, header)
    titled = by_name or all(names[place] in usual_names for place in by_number[:2])
    if not titled:
        return Chosen(places, titled, f"{here} is read as data, not as a header")
    read = {*NO_FEATURES, *(names[place] for place in places)}
    spare = [title for title, name in zip(header, names, strict=True) if name and name not in read]
    remark = f"columns that are not read: {listed(spare)}; features=NAME,… gives them to models"
    return Chosen(places, titled, remark if spare else "")


def place_of(here: str, header: Sequence[str], title: str) -> int | None:
    """Return the index of the column with a title, or with the title in another case, or None.

    >>> place_of("x.csv:1", ["Text", "text", "LABEL"], "text")
    1
    >>> place_of("x.csv:1", ["Text", "text", "LABEL"], "label")
    2

    Raises: several columns have the title, or have it in another case.
    """
    title = title.strip()
    names = [name.strip() for name in header]
    if title not in names:
        title = title.casefold()
        spelt = [name for name in names if name.casefold() == title]
        if len({*spelt}) > 1:
            raise RegardError(
                f"{here}: the columns {listed(spelt)} differ in case only; name one exactly"
            )
        names = [name.casefold() for name in names]
    if names.count(title) > 1:
        raise _duplicate(here, header[names.index(title)].strip())
    return names.index(title) if title in names else None


def column(here: str, header: Sequence[str], name: str) -> int:
    """Return the index of a column by its number from 1, or by its title. Raises: no such column.

    >>> column("x.csv:1", ["text", "label"], "Label"), column("x.csv:1", ["text", "label"], "1")
    (1, 0)
    """
    place = numbered(name, [title.strip() for title in header])
    if place is None:
        place = place_of(here, header, name)
    if place is None or not 0 <= place < len(header):
        raise RegardError(f"{here}: unknown column {name!r}; columns: {listed(header, 12)}")
    return place


def first_of(here: str, header: Sequence[str], titles: Sequence[str]) -> int | None:
    """Return the index of the column with the first of these titles, or None; see `place_of`."""
    places = (place_of(here, header, title) for title in titles)
    return next((place for place in places if place is not None), None)


def must_be_distinct(here: str, header: Sequence[str]) -> None:
    """Raise an error if two columns have the same title, unless it is empty."""
    titles: set[str] = set()
    for title in filter(None, map(str.strip, header)):
        if title in titles:
            raise _duplicate(here, title)
        titles.add(title)


def _duplicate(here: str, title: str) -> RegardError:
    return RegardError(f"{here}: duplicate column name {title!r:.60}; rename one of them")


def unread(names: Sequence[str], used: Sequence[int]) -> Iterator[Remark]:
    """Yield remarks on unused columns that may name the parts, or be the intended ones."""
    used_names = {names[place].strip().casefold(): names[place] for place in used}
    for place, name in enumerate(names):
        if name.strip().casefold() == "split" and place not in used:
            yield Remark(
                f"the column {name!r} is not read; if it separates train and test, write the "
                "rows of each part to a separate file and give data=TRAIN test=TEST"
            )
        read = used_names.get(name.strip().casefold(), "")
        if read.strip() and place not in used:
            yield Remark(f"the column {read!r} is read, not {name!r}, which differs in case only")


def text_column(here: str, header: Sequence[str], column: str) -> int:
    """Return the index of the column called `column`, or of one with a common name.

    Raises: no such column; as `place_of` and `must_be_distinct`.
    """
    place = first_of(here, header, (column,) if column else TEXT_NAMES)
    if place is not None:
        must_be_distinct(here, header)
        return place
    problem = f"unknown column {column!r}" if column else "cannot find the text column"
    raise RegardError(
        f"{here}: {problem}; columns: {listed(header)}; set text=NAME (predict, evaluate: "
        "--text NAME; for without=: without_text=NAME)"
    )


def _no_column(
    here: str, header: Sequence[str], what: str, given: str, numbers: bool
) -> RegardError:
    """Return the error for a missing column, named by the user or not recognised."""
    both = "text=NAME and label=NAME (--text, --label for data check and evaluate)"
    name, number = {
        "group": ("group=NAME (--group for data check)", "group=3"),
        "further": ("features=NAME,NAME", "features=3,4"),
        "second text": ("text=FIRST,SECOND", "text=2,3"),
    }.get(what, (both, "text=2 label=1"))
    if numbers:
        name += f", or numbers from 1: {number}"
    if not given:
        problem = f"cannot find the {what} column; columns: {listed(header)}; set {name}"
        return OtherFileError(f"{here}: {problem}, or let regard init FILE guess them")
    near = get_close_matches(given, header, n=3)
    hint = f"did you mean {' or '.join(map(repr, near))}? Columns" if near else "columns"
    return RegardError(f"{here}: unknown column {given!r}; {hint}: {listed(header)}; set {name}")


def numbered(given: str, names: Sequence[str]) -> int | None:
    """Return the index of a column given by its number, from 1; None for a name.

    Numbers are names if the first row has only numbers, as pandas writes unnamed columns.
    """
    number = given.strip()
    if not number.isdecimal() or (number in names and all(name.isdecimal() for name in names)):
        return None
    return int(number) - 1


def listed(names: Sequence[str], most: int = 8) -> str:
    """Return the first names as a list for an error."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:most]]
    return ", ".join(shown) + (f" and {len(names) - most:,} more" if len(names) > most else "")
