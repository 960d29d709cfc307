"""Several labels in one value: "a;b", "a|b", "a,b", or a list in JSON or Python notation."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.numbers import parse_number, remedy
from regard.lab.data.spelling import counted, label_of

LISTS = "[]"  # the separator of lists in brackets
SIGNS = (LISTS, ";", "|", ",")  # separators that are found without being named
JOINT = "; "  # separates the labels in `Example.label` of a `with_lists` example
SHARED = 0.75  # fraction of the parts of lists that must occur in several values


def labels_in(label: str) -> list[str]:
    """Return the labels of an example that `with_lists` returned.

    >>> labels_in("acting; plot"), labels_in("")
    (['acting', 'plot'], [])
    """
    return label.split(JOINT) if label else []


def joined(labels: Iterable[str]) -> str:
    """Return labels as one text, sorted, each once."""
    return JOINT.join(sorted(set(labels)))


def separator_of(labels: Iterable[str]) -> str:
    """Return the separator by which values look like several labels each, or "" if they do not.

    A sign separates labels if at least three quarters of the parts that it yields, weighted by
    rows, occur in several distinct values. Numbers with a decimal comma are not lists.

    >>> separator_of(["plot", "acting;plot", "music;acting"]), separator_of(["Paris, France"])
    (';', '')
    >>> separator_of(['["plot", "acting"]', "[]"])
    '[]'
    """
    counts = Counter(labels)
    if 2 * sum(counts[label] for label in counts if _in_brackets(label)) > counts.total():
        return LISTS
    for sign in SIGNS:
        parts = {label: set(split(label, sign)) for label in counts}
        holders = Counter(part for each in parts.values() for part in each)
        several = {label: each for label, each in parts.items() if len(each) > 1}
        if sign == "," and all(parse_number(x) is not None or remedy(x) for x in counts):
            continue
        every = sum(counts[label] * len(each) for label, each in several.items())
        shared = (counts[x] * sum(holders[p] > 1 for p in each) for x, each in several.items())
        if several and sum(shared) >= SHARED * every:
            return sign
    return ""


def split(label: str, separator: str) -> list[str]:
    """Return the labels of a value, without empty ones.

    >>> split("plot; acting;", ";"), split("['plot', 'acting']", "[]"), split("plot", "[]")
    (['plot', 'acting'], ['plot', 'acting'], ['plot'])
    """
    if separator != LISTS:
        parts = label.split(separator)
    elif not _in_brackets(label):
        parts = [label]
    else:
        try:
            parts = [str(part) for part in json.loads(label)]
        except (ValueError, RecursionError):  # Python's notation
            parts = [part.strip(" '\"") for part in label[1:-1].split(",")]
    return [part for part in map(label_of, parts) if part]


def with_lists(examples: Sequence[Example], separator: str) -> list[Example]:
    """Return the examples with their labels told apart, sorted and joined by `JOINT`.

    Raises: a label that contains "; ", by file:line.
    """
    told = []
    for example in examples:
        labels = split(example.label, separator)
        if wrong := next((label for label in labels if JOINT in label), ""):
            raise RegardError(f"{example.source}: the label {wrong!r:.60} contains {JOINT!r}")
        told.append(replace(example, label=joined(labels)))
    return told


def looks_like_lists(examples: Sequence[Example], separator: str) -> str:
    """Return the sentence about labels that look like lists."""
    several = [example for example in examples if len(split(example.label, separator)) > 1]
    first = (several or examples)[0]
    shown = (
        "lists in brackets" if separator == LISTS else f"several labels separated by {separator!r}"
    )
    return (
        f"the label column looks like {shown}, as in {counted(len(several), 'row')} of "
        f"{len(examples):,} (first {first.source}: {first.label!r:.60})"
    )


def _in_brackets(label: str) -> bool:
    return label.startswith("[") and label.endswith("]")
