"""Answers of ``regard predict`` written to a file: JSON, CSV, or the lines that are printed."""

import csv
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError

Answer = tuple[list[str], dict[str, Any]]  # the lines of an answer, and its JSON
FORMATS = (".csv", ".jsonl", ".tsv", ".txt", "")


def must_be_known(path: Path) -> None:
    """Raise an error unless the file name ends in a supported format."""
    if path.suffix.lower() not in FORMATS:
        raise RegardError(
            f"--out {path}: unknown format; give a name that ends in .csv (a table with the "
            "texts), .jsonl (one object per text), or .tsv or .txt (lines as printed)"
        )


def write(path: Path, answers: Iterable[Answer], *, first: bool = True) -> int:
    """Write answers to a file as they come, and return their number.

    The file replaces an older one when all are written. Only the ``first`` of several processes
    writes.
    """
    from regard.core import atomic_io

    count = 0
    if not first:
        return sum(1 for _ in answers)
    kind = path.suffix.lower()
    with (
        atomic_io.replacing(path) as aside,
        aside.open("w", encoding="utf-8", newline="\n") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        for printed, values in answers:
            if kind == ".csv":
                rows = table_rows(values)
                table.writerows([*([] if count else [list(rows[0])]), *(r.values() for r in rows)])
            else:
                text = [json.dumps(values, ensure_ascii=False)] if kind == ".jsonl" else printed
                file.write("".join(f"{line}\n" for line in text))
            count += 1
        file.flush()
        os.fsync(file.fileno())
    return count


def unknown_of(values: Mapping[str, Any]) -> list[str]:
    """Return the words of a text that the model does not know, from the JSON of its answer."""
    first: Mapping[str, Any] = values["best"][0] if values.get("best") else values
    return list(first.get("unknown", []))


def table_rows(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the JSON of an answer as rows of a table: column, value.

    A label is followed by its probability; additional labels (``--top``) have numbered columns.
    Several labels of a text are one column, and the probability of each label is another.
    Each of several outputs (``--best``) is a row with its rank. Words, tags and unknown words are
    joined by spaces.

    >>> table_rows({"text": "a", "label": "x", "probabilities": {"x": 0.75, "y": 0.25}})
    [{'text': 'a', 'label': 'x', 'probability': 0.75, 'unknown': ''}]
    >>> table_rows({"text": "a", "words": ["A", "b"], "tags": ["X", "O"], "spans": [{"kind": "X"}]})
    [{'text': 'a', 'words': 'A b', 'tags': 'X O', 'unknown': ''}]
    """
    unknown = {} if "target" in values else {"unknown": " ".join(unknown_of(values))}
    if "best" in values:
        return [
            {"text": values["text"], "rank": rank, **one, **unknown}
            for rank, one in enumerate(values["best"], 1)
        ]
    row: dict[str, Any] = {key: values[key] for key in ("text", "second") if key in values}
    row |= values.get("columns", {})
    if "labels" in values and "top" not in values:
        chances = {f"probability of {name}": p for name, p in values["probabilities"].items()}
        return [row | {"labels": "; ".join(values["labels"])} | chances | unknown]
    if "probabilities" in values:
        likely = values.get("top") or [
            {"label": values["label"], "probability": values["probabilities"][values["label"]]}
        ]
        for place, one in enumerate(likely, 1):
            row |= {f"{key}_{place}" if place > 1 else key: cell for key, cell in one.items()}
        return [row | unknown]
    for key, value in values.items():
        if not isinstance(value, list | dict):
            row[key] = value
        elif isinstance(value, list) and all(isinstance(each, str) for each in value):
            row[key] = " ".join(value)
    return [row | unknown]
