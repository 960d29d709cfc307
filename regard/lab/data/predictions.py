"""Prediction files of any program: JSON lines or a table, with true label and prediction.

A row has ``label`` (the truth; for texts also ``target`` or ``reference``) and ``predicted``, and
optionally ``probabilities`` ({label: p}), ``id``, ``source`` and ``text`` (which match the rows of
several files) and ``group``. The predictions.jsonl of regard's runs are such files.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.lab.data.lines import Lines, open_binary
from regard.lab.data.records import Record, kind_of, records, sound
from regard.lab.data.spelling import repeats
from regard.lab.data.titles import listed, must_be_distinct, place_of

TRUTH = ("label", "target", "reference")
KEYS = ("id", "source", "text")  # possible row identifiers, the most reliable first
NAMES = (*TRUTH, *KEYS, "predicted", "probabilities", "group")
MOST = 1_000_000_000  # bytes of a file
SUMS_TO = 0.02  # tolerance of the sum of probabilities, which are often rounded


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """One test example: its true label, its prediction and its location.

    `keys` are its id, source and text, "" where missing; `probabilities` are empty where missing.
    """

    label: str
    predicted: str
    where: str
    keys: tuple[str, ...]
    group: str
    probabilities: Mapping[str, float]


def read_predictions(path: Path, *, blind: bool = False) -> list[PredictedRow]:
    """Return all rows of a .jsonl, .csv or .tsv file (plain or .gz), in order.

    A program that is ``blind`` has not seen the true labels, which are "" then, and may write its
    answers as ``label``; a file that begins with { has JSON lines.

    Raises, with file:line: a row without true label or prediction, or with values that are neither
    strings nor numbers; probabilities that are not numbers from 0 to 1, do not sum to 1 or lack a
    label; a file without rows or over 1 GB.
    """
    kind = kind_of(path)
    if blind:
        with path.open("rb") as file:
            kind = "jsonl" if file.read(64).lstrip().startswith(b"{") else kind
    with open_binary(path) as file:
        lines = Lines(file, path.name, most=MOST)
        rows = _with_usual_names(_named(records(lines, kind)))
        predictions = [_row(here, row, blind) for here, row in rows]
    if not predictions:
        raise RegardError(f"{path}: contains no predictions")
    return predictions


def _named(rows: Iterator[Record]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows as dictionaries; those of a table are keyed by its header."""
    names: Sequence[str] = ()
    for here, row in sound(rows):
        if isinstance(row, dict):
            yield here, row
        elif not names:
            names = row
            must_be_distinct(here, names)
        elif len(row) != len(names):
            raise RegardError(f"{here}: {len(row)} fields, but the first row has {len(names)}")
        elif not repeats(row, names):
            named = zip(names, row, strict=True)
            yield here, {name: x for name, x in named if name.strip().casefold() != "probabilities"}


def _with_usual_names(rows: Iterator[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, Any]]:
    """Yield the rows with the names of `NAMES` where they are written in another case."""
    header: list[str] = []
    for here, row in rows:
        if header != (keys := list(row)):
            header = keys
            places = {place_of(here, header, name): name for name in NAMES}
            names = [places.get(place, name) for place, name in enumerate(header)]
        yield here, dict(zip(names, row.values(), strict=True))


def _row(here: str, row: Mapping[str, Any], blind: bool = False) -> PredictedRow:
    if blind:
        row = {**({"predicted": row["label"]} if "label" in row else {}), **row, "label": ""}
    truth = next((name for name in TRUTH if name in row), "")
    if not truth or not {"predicted", "probabilities"} & row.keys():
        lacks = "the true label ('label')" if not truth else "the prediction ('predicted')"
        raise RegardError(f"{here}: missing {lacks}; fields: {listed(list(row))}")
    chances = _probabilities(here, row.get("probabilities"))
    label = _written(here, truth, row[truth])
    if not (blind or label.strip()):
        raise RegardError(f"{here}: the true label ({truth!r}) is empty; remove the row from all")
    prediction = row["predicted"] if "predicted" in row else max(chances, key=chances.__getitem__)
    predicted = _written(here, "predicted", prediction)
    for name in (predicted if blind else label, predicted) if chances else ():
        if name not in chances:
            raise RegardError(f"{here}: 'probabilities' has no entry for the label {name!r:.60}")
    keys = tuple(_written(here, key, row.get(key, "")) for key in KEYS)
    return PredictedRow(
        label, predicted, here, keys, _written(here, "group", row.get("group", "")), chances
    )


def _written(here: str, name: str, value: Any) -> str:
    if value is None and name in (*KEYS, "group"):
        return ""
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return str(value)
    if not isinstance(value, str):
        raise RegardError(f"{here}: {name!r} must be a string or a number, not {value!r:.40}")
    return value.encode(errors="replace").decode()


def _probabilities(here: str, value: Any) -> dict[str, float]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not value:
        raise RegardError(
            f"{here}: 'probabilities' must be an object, {{label: probability}}, not {value!r:.40}"
        )
    for label, chance in value.items():
        number = isinstance(chance, int | float) and not isinstance(chance, bool)
        if not number or not 0 <= chance <= 1:  # which NaN is not either
            raise RegardError(
                f"{here}: the probability of {label!r:.40} must be a number from 0 to 1, not "
                f"{chance!r:.40}"
            )
    if abs(sum(value.values()) - 1) > SUMS_TO:
        raise RegardError(f"{here}: the probabilities sum to {sum(value.values()):.3f}, not to 1")
    return {str(label): float(chance) for label, chance in value.items()}


def align(
    rows: Sequence[PredictedRow], first: Sequence[PredictedRow], name: str, other: str
) -> list[PredictedRow]:
    """Return the rows of a file in the order of `first`, which has the same test examples.

    Rows are matched by ``id``, ``source`` or ``text``, the first of these that is unique in both
    files, else line by line. Raises: different examples or true labels.
    """
    place = next((k for k in range(len(KEYS)) if _tells(rows, k) and _tells(first, k)), None)
    if place is None:
        if len(rows) != len(first):
            raise RegardError(
                f"{name} has {len(rows):,} predictions, but {other} has {len(first):,}; compare "
                "files with the same test examples"
            )
        aligned = list(rows)
    else:
        known = {row.keys[place]: row for row in rows}
        missing = [row for row in first if row.keys[place] not in known]
        surplus = known.keys() - {row.keys[place] for row in first}
        if missing or surplus:
            lacks, has, what = (name, other, missing[0].keys[place]) if missing else (
                other, name, min(surplus))  # fmt: skip
            raise RegardError(
                f"{lacks} has no test example with {KEYS[place]} {what!r:.60}, but {has} does; "
                "compare files with the same test examples"
            )
        aligned = [known[row.keys[place]] for row in first]
    for row, reference in zip(aligned, first, strict=True):
        for key, own, its in zip(KEYS, row.keys, reference.keys, strict=True):
            if place is None and own and its and own != its:
                raise RegardError(
                    f"{row.where}: the {key} is {own!r:.60}, but {its!r:.60} in {reference.where} "
                    f"({other}); give each row an id, or write both files in one order"
                )
        if row.label != reference.label:
            raise RegardError(
                f"{row.where}: the label is {row.label!r:.60}, but {reference.label!r:.60} in "
                f"{reference.where} ({other}); compare files with the same test examples"
            )
    return aligned


def _tells(rows: Sequence[PredictedRow], place: int) -> bool:
    values = {row.keys[place] for row in rows}
    return "" not in values and len(values) == len(rows)
