"""Labels of a file: renaming, and checks for variant spellings and missing values."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.numbers import parse_number, remedy
from regard.lab.data.spelling import counted, label_of, likeness

NONE = frozenset(
    {"None", "null", "NULL", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "<NA>"}
)  # markers of missing values


MOST = 1e100  # limit of regression targets, so that their squares are finite


def number_of(label: str) -> float | None:
    """Return a label as a number, or None if it is not one.

    >>> number_of("−2.5"), number_of("1e-3"), number_of("two"), number_of("nan")
    (-2.5, 0.001, None, None)
    """
    value = parse_number(label)
    return value if value is not None and abs(value) < MOST else None


def why_no_number(label: str) -> str:
    """Return why a label is not a number, with the remedy if the cause is known.

    >>> why_no_number("1,75")
    "'1,75' is not a number; write it with a decimal point: 1.75"
    """
    problem = f"{label!r:.80} is not a number"
    if label in NONE:
        return f"{problem}; if it means a missing value, remove the row"
    return f"{problem}; {how}" if (how := remedy(label)) else problem


def hardly_repeat(labels: Sequence[str]) -> bool:
    """Return whether labels are numbers with too many distinct values for classes.

    Markers of missing values are ignored; numbers with a decimal comma or separators count.
    """
    kinds = {label for label in labels if label not in NONE}
    return too_many(len(kinds), len(labels)) and all(
        number_of(label) is not None or remedy(label) for label in kinds
    )


def too_many(kinds: int, rows: int) -> bool:
    """Return whether this many distinct values (kinds) in this many rows are not classes."""
    return kinds > 50 and kinds > rows / 4


def parse_labels(asked: str) -> dict[str, str]:
    """Return the new name of each renamed label, from ``labels=``.

    >>> parse_labels("neg:0, pos:1")
    {'neg': '0', 'pos': '1'}

    Raises: a pair without a colon or with an empty side; a label twice.
    """
    names: dict[str, str] = {}
    for pair in asked.split(",") if asked else ():
        old, colon, new = (label_of(part) for part in pair.rpartition(":"))
        if not (colon and old and new):
            raise RegardError(f"labels={asked!r:.80}: expected OLD:NEW,OLD:NEW, e.g. neg:0,pos:1")
        if old in names:
            raise RegardError(f"labels={asked!r:.80}: {old!r} is renamed twice")
        names[old] = new
    return names


def rename(
    examples: Sequence[Example], names: Mapping[str, str], *, must_occur: bool = True
) -> list[Example]:
    """Return the examples with their labels renamed; labels not in `names` are kept.

    Raises: a name in `names` that no example has, unless `must_occur` is false.
    """
    if not names:
        return list(examples)
    known = dict.fromkeys(example.label for example in examples)
    if must_occur and (missing := [name for name in names if name not in known]):
        raise RegardError(f"labels=: no row has the label {missing[0]!r:.60}{among(known)}")
    return [replace(x, label=names.get(x.label, x.label)) for x in examples]


def among(labels: Iterable[str]) -> str:
    """Return the end of an error about an unknown label: the first eight known labels.

    >>> among(["neg", "pos"])
    '; labels: neg, pos'
    """
    names = list(labels)
    return f"; labels: {', '.join(names[:8])}" + (", …" if len(names) > 8 else "")


def meant(label: str, labels: Iterable[str]) -> str:
    """Return a hint about a known label that differs only in case, whitespace or number format.

    >>> meant("Pos", ["neg", "pos"]), meant("other", ["neg", "pos"])
    ("; did you mean 'pos'? labels=Pos:pos renames it (--labels for data check and evaluate)", '')
    """
    near = next((known for known in labels if spelt(known) == spelt(label)), None)
    if near is None:
        return ""
    return f"; did you mean {near!r}? {advice(label, near)}"


def advice(label: str, near: str) -> str:
    """Return how to rename a label: with ``labels=`` where its syntax allows it.

    >>> advice("a,b", "A,b")
    'use one spelling in the file'
    """
    renaming = f"{label}:{near}"
    try:
        parses = parse_labels(renaming) == {label: near}
    except RegardError:
        parses = False
    if not parses:
        return "use one spelling in the file"
    word = shlex.quote(f"labels={renaming}")
    return f"{word} renames it (--labels for data check and evaluate)"


def look_over(examples: Sequence[Example]) -> list[str]:
    """Return warnings about suspicious labels, each with its first row.

    These are labels that differ only in case, whitespace or number format, and markers of missing
    values.
    """
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.label, []).append(example)
    notes = []
    usual_of: dict[str, str] = {}
    for label in sorted(rows, key=lambda label: -len(rows[label])):
        usual = usual_of.setdefault(spelt(label), label)
        count = counted(len(rows[label]), "row")
        if usual != label:
            notes.append(
                f"{label!r} ({count}, first {rows[label][0].source}) and "
                f"{usual!r} differ only in case, whitespace or number format but are two labels; "
                f"{advice(label, usual)}"
            )
        if label in NONE:
            has = "has" if len(rows[label]) == 1 else "have"
            notes.append(
                f"{count} {has} the label {label!r}, first "
                f"{rows[label][0].source}: it is learned as a label; if it means a missing label, "
                "remove these rows"
            )
    return notes


def spelt(label: str) -> str:
    """Return the key under which two labels are nearly equal: their number, or `likeness`.

    >>> spelt(" Pos") == spelt("pos"), spelt("1.0") == spelt("1"), spelt("1e7") == spelt("10000001")
    (True, True, False)
    """
    if (number := number_of(label)) is not None:
        return repr(number)
    return likeness(label)
