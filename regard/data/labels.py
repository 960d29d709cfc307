"""Labels of a file as they are meant: renamed, spelt alike, several in one, or none."""

import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from regard.data.examples import Example
from regard.errors import RegardError

SEPARATORS = ",;|"
NONE = frozenset(
    {"None", "null", "NULL", "NA", "N/A", "n/a", "nan", "NaN", "NAN", "<NA>"}
)  # as programs write that there is none


MOST = 1e100  # a number that is foretold is smaller, so that squares of it are numbers too


def number_of(label: str) -> float | None:
    """Return a label as a number, None if it is none.

    >>> number_of("−2.5"), number_of("1e-3"), number_of("two"), number_of("nan")
    (-2.5, 0.001, None, None)
    """
    try:
        value = float(label.replace("−", "-"))
    except ValueError:
        return None
    return value if abs(value) < MOST else None


def parse_labels(asked: str) -> dict[str, str]:
    """Return what each label of a file is called instead, from ``labels=``.

    >>> parse_labels("neg:0, pos:1")
    {'neg': '0', 'pos': '1'}

    Errors: a pair without a colon or with an empty side; a label twice.
    """
    found: dict[str, str] = {}
    for pair in asked.split(",") if asked else ():
        old, colon, new = (part.strip() for part in pair.rpartition(":"))
        if not (colon and old and new):
            raise RegardError(f"labels={asked!r:.80}: give OLD:NEW,OLD:NEW, as neg:0,pos:1")
        if old in found:
            raise RegardError(f"labels={asked!r:.80}: {old!r} is renamed twice")
        found[old] = new
    return found


def rename(
    examples: Sequence[Example], names: Mapping[str, str], *, must_occur: bool = True
) -> list[Example]:
    """Return the examples with their labels renamed; a label that is not named stays.

    Errors: a name in `names` that no example has, unless `must_occur` is false.
    """
    if not names:
        return list(examples)
    known = dict.fromkeys(example.label for example in examples)
    if must_occur and (missing := [name for name in names if name not in known]):
        raise RegardError(f"labels=: no row has the label {missing[0]!r:.60}{among(known)}")
    return [replace(x, label=names.get(x.label, x.label)) for x in examples]


def among(labels: Iterable[str]) -> str:
    """The end of a sentence about a label that is none of these: the first eight.

    >>> among(["neg", "pos"])
    '; there are neg, pos'
    """
    names = list(labels)
    return f"; there are {', '.join(names[:8])}" + (", …" if len(names) > 8 else "")


def meant(label: str, labels: Iterable[str]) -> str:
    """What to add to an error about an unknown label: one that differs in case or spaces alone.

    >>> meant("Pos", ["neg", "pos"]), meant("other", ["neg", "pos"])
    ("; is 'pos' meant? labels=Pos:pos renames it (--labels for data check and evaluate)", '')
    """
    near = next((known for known in labels if _spelt(known) == _spelt(label)), None)
    if near is None:
        return ""
    return f"; is {near!r} meant? {advice(label, near)}"


def advice(label: str, near: str) -> str:
    """How to rename a label: by ``labels=`` where that can say it.

    >>> advice("a,b", "A,b")
    'write them alike in the file'
    """
    asked = f"{label}:{near}"
    try:
        said = parse_labels(asked) == {label: near}
    except RegardError:
        said = False
    if not said:
        return "write them alike in the file"
    word = shlex.quote(f"labels={asked}")
    return f"{word} renames it (--labels for data check and evaluate)"


def look_over(examples: Sequence[Example]) -> list[str]:
    """Return sentences about labels to learn that may not be meant, each with its first row.

    Told are labels that differ in case or spaces alone, and those that may stand for none.
    Errors: several labels in one ("a,b", where most rows have a or b alone).
    """
    rows: dict[str, list[Example]] = {}
    for example in examples:
        rows.setdefault(example.label, []).append(example)
    several = [label for label in rows if _parts(label) and _parts(label) <= {*map(_bare, rows)}]
    if 0 < 2 * sum(len(rows[label]) for label in several) < len(examples):
        first = rows[several[0]][0]
        count = sum(len(rows[label]) for label in several)
        raise RegardError(
            f"{first.source}: {first.label!r:.60} is several labels in one, in {_count(count)} of "
            f"{len(examples):,}; regard takes one label a text: keep one, or make a file for each "
            "label that says whether a text has it"
        )
    notes, spelt = [], dict[str, str]()
    for label in sorted(rows, key=lambda label: -len(rows[label])):
        usual = spelt.setdefault(_spelt(label), label)
        if usual != label:
            notes.append(
                f"{label!r} ({_count(len(rows[label]))}, first {rows[label][0].source}) and "
                f"{usual!r} differ in case or spaces alone and are two labels; "
                f"{advice(label, usual)}"
            )
        if label in NONE:
            has = "has" if len(rows[label]) == 1 else "have"
            notes.append(
                f"{_count(len(rows[label]))} {has} the label {label!r}, first "
                f"{rows[label][0].source}: it is learned as a label; if it stands for none, take "
                "them out"
            )
    return notes


def _parts(label: str) -> frozenset[str]:
    """The labels that one seems to be made of; none of a single one."""
    for sign in SEPARATORS:
        parts = frozenset(map(_bare, _bare(label).split(sign)))
        if len(parts) > 1:
            return parts
    return frozenset()


def _bare(label: str) -> str:
    """A label without brackets and quotes about it: a of ['a']."""
    return label.strip("[](){}'\" ")


def _spelt(label: str) -> str:
    """What labels that differ in case, spaces or composition of signs alone have in common."""
    return " ".join(unicodedata.normalize("NFC", label).casefold().split())


def _count(rows: int) -> str:
    return f"{rows:,} row" + ("s" if rows != 1 else "")
