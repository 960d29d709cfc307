"""Loading of labelled texts by name or from files, split into train and test."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.names import short
from regard.lab.data import imdb
from regard.lab.data.class_files import name_of
from regard.lab.data.data_source import Columns, DataSource, Splits, refuse
from regard.lab.data.examples import Example
from regard.lab.data.fetch import Show, fetch, folders
from regard.lab.data.files import Read, is_folder, read
from regard.lab.data.frames import Frame
from regard.lab.data.label_lists import (
    labels_in,
    looks_like_lists,
    separator_of,
    with_lists,
)
from regard.lab.data.labels import look_over, meant, parse_labels, rename, too_many
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA, examples_of, must_be_found
from regard.lab.data.near_copies import leak
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import Side, fingerprint, split_by_hash, without_later
from regard.lab.data.titles import listed

TEST_SHARE = 0.2


@dataclass(frozen=True)
class Corpus:
    """Labelled texts. `labels` are the classes, in the order of a model's outputs.

    `validation` is None without a validation file. If texts have several labels, `separator` stood
    between them in the file, and `label_lists.labels_in` returns those of an example.
    """

    name: str
    train: list[Example]
    test: list[Example]
    labels: tuple[str, ...]
    notes: tuple[str, ...]  # sentences on what was dropped or split off
    fingerprint: str  # sha256 over all texts and labels, in order
    validation: list[Example] | None = None
    separator: str = ""


def load_corpus(source: Any, *, numbers: bool = False, show: Show | None = None) -> Corpus:
    """Return labelled texts by name ("reviews", "imdb") or from a file, with a test part.

    A DataFrame of pandas, polars or pyarrow is read like a file.
    Without a test file a fifth is split off by a hash of each text (and of the seed), so that
    duplicates stay together, or with a group column all texts of a group. Without a validation
    file nothing is split off here (see `regard.lab.data.splits.hold_out`). Texts in two parts are
    dropped from the earlier of train, validation and test, unless ``duplicates`` is "keep", which
    reproduces published evaluations that kept them. An aclImdb folder or archive may be given by
    its path. With ``numbers`` the labels are finite numbers, which may differ between parts
    ("ratings" by name); a corpus then has no `labels`. With a separator in the columns each text
    has several labels, or none. "imdb" is looked for in ``data_dir``, ``REGARD_DATA`` and the
    cache, then downloaded. ``FILE.py:NAME`` is a `DataSet` of the user's own.

    Raises: as `regard.lab.data.files.read`; a single label; a label that train does not have;
    a different label in nearly every row; labels that look like several, unless the separator is
    "none"; no several labels, with the separator "any".

    >>> corpus = load_corpus("reviews")
    >>> len(corpus.train), len(corpus.test), corpus.labels
    (4000, 1000, ('negative', 'positive'))
    """
    source = DataSource.of(source)
    data, columns, splits = source.name, source.columns, source.splits
    known = None if isinstance(source.data, Frame) else _known(source, numbers, show)
    if known is not None:
        return known
    parts, notes = read_parts(source, read)
    names = parse_labels(columns.labels)
    rename([example for part in parts.values() for example in part], names)  # errors
    parts = {part: rename(rows, names, must_occur=False) for part, rows in parts.items()}
    by = columns.group or ("first text" if columns.second else "text")
    return _from_parts(data, parts, by, splits, numbers, columns.separator, notes)


def _known(source: DataSource, numbers: bool, show: Show | None) -> Corpus | None:
    """Return a corpus that has a name or is IMDB's; None for other files, which must exist."""
    data, columns, splits = source.name, source.columns, source.splits
    task, rows = ("regression", "numbers") if numbers else ("classification", "texts with labels")
    if columns.several:
        task, rows = "multilabel", "texts with several labels"
    own_parts = examples_of(data, task, rows)
    path = path_of(data)
    place = imdb.find(path)
    if own_parts is not None or data == "imdb" or place:
        refuse(data, "has its own parts", **splits.files)
        refuse(data, "has no columns", **{**vars(columns), "separator": ""})
    if own_parts is not None:
        return _from_parts(data, own_parts, "text", splits, numbers, columns.separator)
    if data == "imdb":
        return _imdb("imdb", find_imdb(source.data_dir, show=show), splits)
    must_be_found(data, task, rows)
    if place is not None:
        return _imdb(path.name, place, splits)
    if path.is_dir() and not is_folder(path):
        raise RegardError(
            f"{path}: the folder is neither aclImdb (train/pos, train/neg, test/pos, test/neg) nor "
            "one with a .txt file or a folder of .txt files per label (neg.txt, pos.txt; "
            "neg/1.txt, pos/1.txt); use one of these, or a .csv, .tsv or .jsonl file"
        )
    return None


def find_imdb(data_dir: Path | str = "", *, show: Show | None = None) -> Path:
    """Return the folder or archive of the IMDB reviews, downloaded if there is neither."""
    for folder in folders("imdb", data_dir or None):
        if (place := imdb.find(folder)) is not None:
            return place
    return fetch("imdb", data_dir or None, show=show)[0]


def _imdb(name: str, place: Path, splits: Splits) -> Corpus:
    train, test = imdb.load(place)
    return corpus_of(name, {"train": train, "test": test}, [], splits.duplicates, imdb.LABELS)


def _from_parts(
    path: str,
    parts: dict[Side, list[Example]],
    by: str,
    splits: Splits,
    numbers: bool,
    separator: str,
    notes: Sequence[str] = (),
) -> Corpus:
    """Return the corpus of examples by part, with a test part split off if there is none.

    ``by``: the column whose hash splits. Raises: a single label; a label in nearly every row; too
    few rows; as `must_be_single` and `separated`.
    """
    if separator not in ("", "none"):
        told, separator = separated(path, parts.values(), separator)
        parts = dict(zip(parts, told, strict=True))
        notes = [*notes, *split_off_test(path, parts, None, splits.seed, by)]
        name = short(path) if path in DATA else name_of(Path(path))
        corpus = corpus_of(name, parts, notes, splits.duplicates, several=True)
        return replace(corpus, separator=separator)
    notes, rows = [*notes], parts["train"]
    counts = Counter(example.label for example in rows)
    if len(counts) == 1:
        raise RegardError(
            f"{path}: all {len(rows)} rows have the label {rows[0].label!r}; two labels are needed"
        )
    if not numbers:
        if not separator:
            must_be_single(path, rows)
        must_be_classes(path, rows)
    notes += [] if numbers else look_over(rows)
    known = {} if numbers else counts
    notes += split_off_test(path, parts, known, splits.seed, by)
    name = short(path) if path in DATA else name_of(Path(path))
    return corpus_of(name, parts, notes, splits.duplicates, numbers=numbers)


def read_parts(
    source: DataSource, read: Callable[[Any, Columns], Read]
) -> tuple[dict[Side, list[Example]], list[str]]:
    """Return the examples of the files of a source by part, and notes."""
    files = {"train": source.data, **source.splits.files}
    loaded: dict[Any, Read] = {
        part: read(file if isinstance(file, Frame) else path_of(str(file)), source.columns)
        for part, file in files.items()
    }
    notes = [note for each in loaded.values() for note in each.notes]
    return {part: each.examples for part, each in loaded.items()}, notes


def split_off_test(
    path: str,
    parts: dict[Side, list[Example]],
    counts: Mapping[str, int] | None,
    seed: int,
    by: str,
    what: str = "texts",
) -> list[str]:
    """Split off a test part if there is none, as `split_test`, and return notes."""
    if "test" in parts:
        return []
    rows = parts["train"]
    parts["train"], parts["test"] = split_test(path, rows, counts, seed)
    note = f"{len(parts['test']):,} of {len(rows):,} {what} split off as the test part, by a hash "
    return [f"{note}of the {by}", *leak(parts["train"], parts["test"], "test", "test=FILE")]


def must_be_single(path: str, rows: Sequence[Example]) -> None:
    """Raise an error if labels look like several labels each."""
    if sign := separator_of(example.label for example in rows):
        raise RegardError(
            f"{path}: {looks_like_lists(rows, sign)}; learn them with regard train multilabel, or "
            "set separator=none (--separator none for data check) to keep each combination as one "
            "label"
        )


def separated(
    path: str, parts: Iterable[list[Example]], separator: str
) -> tuple[list[list[Example]], str]:
    """Return the parts, train first, with several labels for each text, and their separator.

    Raises: no separator found for "any"; as `with_lists`.
    """
    parts = list(parts)
    if separator == "any":
        separator = separator_of(example.label for example in parts[0] if example.label)
        if not separator:
            raise RegardError(
                f"{path}: the label column does not look like several labels for each text; set "
                "separator= to the sign between them, or use regard train classification"
            )
    return [with_lists(rows, separator) for rows in parts], separator


def must_be_classes(path: str, rows: Sequence[Example]) -> None:
    """Raise an error if nearly every row has a label of its own."""
    kinds = len({example.label for example in rows})
    if too_many(kinds, len(rows)):
        raise RegardError(
            f"{path}: {kinds:,} different labels in {len(rows):,} rows; is the label in another "
            "column? Set label=NAME, or its number from 1: label=2; for number labels use regard "
            "train regression"
        )


def split_test(
    path: str, rows: Sequence[Example], counts: Mapping[str, int] | None, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split off a test part by a hash of the group or text; `counts` are the rows of each label.

    Without counts texts have several labels, and texts with a label that train would not have stay
    in train, with their group. Raises: a label that would only be in the test part; an empty test
    part.
    """
    train, test = split_by_hash(rows, TEST_SHARE, f"test {seed}")
    if counts is None:
        kept = {_unit(example) for example in lacking(train, test)}
        train += [example for example in test if _unit(example) in kept]
        test = [example for example in test if _unit(example) not in kept]
    elif missing := sorted(set(counts) - {example.label for example in train}):
        count = counts[missing[0]]
        which = f"all {count:,} rows" if count > 1 else "the only row"
        raise RegardError(
            f"{path}: {which} with the label {missing[0]!r} would be in the test part, so training "
            "would not see it; add rows of it or remove it, or give a test file with test=FILE"
        )
    if not train or not test:
        raise RegardError(
            f"{path}: {len(rows)} rows are too few to split off a test part; give test=FILE"
        )
    return train, test


def lacking(train: Iterable[Example], held: Iterable[Example]) -> list[Example]:
    """Return the held-out texts with one of several labels that no training text has."""
    known = {label for example in train for label in labels_in(example.label)}
    return [example for example in held if not known.issuperset(labels_in(example.label))]


def _unit(example: Example) -> str:
    return example.group or likeness(example.text)


def corpus_of(
    name: str,
    parts: Mapping[Side, list[Example]],
    notes: list[str],
    duplicates: str = "drop",
    order: tuple[str, ...] | None = None,
    *,
    numbers: bool = False,
    several: bool = False,
) -> Corpus:
    """Return the corpus of these parts; texts in two of them are dropped from the earlier.

    ``order``: the labels, in the order of a model's outputs. With ``numbers`` labels are not
    classes, and are not checked. ``several``: each text has several labels, or none.
    """
    parts, more = without_later(parts, lambda example: example.text, keep=duplicates == "keep")
    notes = [*notes, *more]
    train, test, validation = parts["train"], parts["test"], parts.get("validation")
    if validation is not None and not validation:
        raise RegardError(f"{name}: all validation texts also occur in test; use other texts")
    held = [] if validation is None else [validation]
    digest = fingerprint(
        *([_written(example) for example in part] for part in (train, test, *held))
    )
    if numbers:
        return Corpus(name, train, test, (), tuple(notes), digest, validation)

    def each(example: Example) -> list[str]:
        return labels_in(example.label) if several else [example.label]

    labels = order or in_order({label for example in train for label in each(example)})
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no rows"
        others = " and ".join(part for part in ("validation", "test") if part in parts)
        shared = any(" of train dropped" in note for note in more)
        raise RegardError(
            f"{name}: train has {only}" + (f" not also in {others}" if shared else "")
        )
    known = set(labels)
    for part, later in parts.items():
        for example in later:
            if new := [label for label in each(example) if label not in known]:
                raise RegardError(
                    f"{example.source}: the label {new[0]!r:.80} occurs only in {part}; "
                    f"train has {listed(labels)}"
                    + (meant(new[0], labels) or "; regard data check reports likely causes")
                )
    return Corpus(name, train, test, labels, tuple(notes), digest, validation)


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Return the classes sorted as numbers if all are numbers, else alphabetically."""
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    if not all(map(math.isfinite, numbers.values())):
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (numbers[label], label)))


def _written(example: Example) -> tuple[str, str, str]:
    parents = "" if example.parents is None else f"{example.parents}\n"
    return example.text, example.label, parents
