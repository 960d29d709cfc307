"""Loading of labelled texts by name or from files, split into train and test."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.core.errors import RegardError, look_up
from regard.core.names import short
from regard.lab.data import imdb
from regard.lab.data.class_files import name_of
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import BadRow, Example
from regard.lab.data.fetch import Show, fetch, folders
from regard.lab.data.files import is_folder, read
from regard.lab.data.labels import look_over, meant, parse_labels, rename, too_many
from regard.lab.data.lines import path_of
from regard.lab.data.named import DATA, examples_of
from regard.lab.data.near_copies import leak
from regard.lab.data.spelling import likeness
from regard.lab.data.titles import listed

__all__ = ["Corpus", "fetch", "hold_out", "load_corpus", "shared_texts"]


LABELLED = ("reviews", "imdb")  # the names that load_corpus knows
TEST_SHARE = 0.2


@dataclass(frozen=True)
class Corpus:
    """Labelled texts. `labels` are the classes, in the order of a model's outputs.

    `validation` is None without a validation file.
    """

    name: str
    train: list[Example]
    test: list[Example]
    labels: tuple[str, ...]
    notes: tuple[str, ...]  # sentences on what was dropped or split off
    fingerprint: str  # sha256 over all texts and labels, in order
    validation: list[Example] | None = None


def load_corpus(
    data: str,
    *,
    data_dir: Path | str | None = None,
    test: str | None = None,
    validation: str | None = None,
    text: str | None = None,
    label: str | None = None,
    group: str | None = None,
    labels: str = "",
    seed: int = 0,
    duplicates: str = "drop",
    numbers: bool = False,
    show: Show | None = None,
) -> Corpus:
    """Return labelled texts by name ("reviews", "imdb") or from a file, with a test part.

    Without a `test` file a fifth is split off by a hash of each text (and of `seed`), so that
    duplicates stay together, or with a `group` column all texts of a group. `validation` is also a
    file; without it nothing is split off here (see `hold_out`). Texts in two parts are dropped from
    the earlier of train, validation and test, unless `duplicates` is "keep", which reproduces
    published evaluations that kept them. `labels` renames labels of the files: "neg:0,pos:1". An
    aclImdb folder or archive may be given by its path. With ``numbers`` the labels are finite
    numbers, which may differ between parts ("ratings" by name); a corpus then has no `labels`.
    "imdb" is looked for in `data_dir`, ``REGARD_DATA`` and the cache, then downloaded.
    ``FILE.py:NAME`` is a `DataSet` of the user's own.

    Raises: as `regard.lab.data.files.read`; a single label; a label that train does not have;
    a different label in nearly every row; lists of labels.

    >>> corpus = load_corpus("reviews")
    >>> len(corpus.train), len(corpus.test), corpus.labels
    (4000, 1000, ('negative', 'positive'))
    """
    task, rows = ("regression", "numbers") if numbers else ("classification", "texts with labels")
    own_parts = examples_of(data, task, rows)
    path = path_of(data)
    place = imdb.find(path) if path.is_dir() else path if imdb.is_packed(path) else None
    own = own_parts is not None or data == "imdb" or place
    if own and test:
        raise RegardError(f"{data} has its own test part; test=FILE needs data=FILE")
    if own and validation:
        raise RegardError(f"{data} has its own validation part; validation=FILE needs data=FILE")
    if own and (text or label or group or labels):
        raise RegardError(f"{data} has no columns; remove text, label, group and labels")
    if own_parts is not None:
        return _from_parts(data, own_parts, "text", seed, duplicates, numbers)
    if data == "imdb":
        return _imdb("imdb", find_imdb(data_dir, show=show), duplicates)
    if not path.exists() and not path.suffix and len(path.parts) == 1 and "," not in data:
        if data in DATA and data not in LABELLED:
            raise RegardError(
                f"{data} has no texts with labels; it is for {DATA[data].used_for}. Data with "
                f"labels: {', '.join(LABELLED)}"
            )
        look_up(dict.fromkeys(LABELLED), data, "data set or file")
    if place is not None:
        return _imdb(path.name, place, duplicates)
    if path.is_dir() and not is_folder(path):
        raise RegardError(
            f"{path}: the folder is neither aclImdb (train/pos, train/neg, test/pos, test/neg) nor "
            "one with a .txt file or a folder of .txt files per label (neg.txt, pos.txt; "
            "neg/1.txt, pos/1.txt); use one of these, or a .csv, .tsv or .jsonl file"
        )
    columns = Columns(text or "", label or "", group or "")
    paths = {"train": path}
    paths |= {"validation": path_of(validation)} if validation else {}
    paths |= {"test": path_of(test)} if test else {}
    return _from_files(paths, columns, parse_labels(labels), seed, duplicates, numbers)


def hold_out(
    examples: Sequence[Example], fraction: float = 0.1, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split examples into (train, validation) by a hash of the group, or else of the text.

    Texts of one group stay together, and so do duplicates, ignoring case and whitespace. Whether a
    text is held out depends only on that and the seed, not on other texts. A duplicate of a
    held-out text in another group is in neither part.
    """
    train, held = split_by_hash(examples, fraction, f"validation {seed}")
    if any(example.group for example in examples):
        known = {likeness(example.text) for example in held}
        train = [example for example in train if likeness(example.text) not in known]
    return train, held


def split_by_hash(
    examples: Sequence[Example], fraction: float, salt: str
) -> tuple[list[Example], list[Example]]:
    """Split examples into the kept and the split-off part, by a hash of the group or the text."""
    stay: list[Example] = []
    leave: list[Example] = []
    for example in examples:
        unit = example.group or likeness(example.text)
        (leave if leaves(unit, fraction, salt) else stay).append(example)
    return stay, leave


def leaves(unit: str, fraction: float, salt: str) -> bool:
    """Return whether a unit is split off, by a hash with the salt."""
    digest = hashlib.sha256(f"{salt}\n{unit}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8]) < fraction * 2**64


def find_imdb(data_dir: Path | str | None = None, *, show: Show | None = None) -> Path:
    """Return the folder or archive of the IMDB reviews, downloaded if there is neither."""
    for folder in folders("imdb", data_dir):
        if (place := imdb.find(folder)) is not None:
            return place
    return fetch("imdb", data_dir, show=show)[0]


def _imdb(name: str, place: Path, duplicates: str) -> Corpus:
    train, test = imdb.load(place)
    return corpus_of(name, {"train": train, "test": test}, [], imdb.LABELS, duplicates)


def _from_files(
    paths: Mapping[str, Path],
    columns: Columns,
    names: Mapping[str, str],
    seed: int,
    duplicates: str,
    numbers: bool = False,
) -> Corpus:
    notes: list[str] = []
    parts: dict[str, list[Example]] = {}
    for part, place in paths.items():
        loaded = read(place, columns)
        parts[part] = loaded.examples
        notes += [*loaded.remarks, *_empty_note(loaded.empty)]
    rename([example for part in parts.values() for example in part], names)  # errors
    parts = {part: rename(rows, names, must_occur=False) for part, rows in parts.items()}
    by = columns.group or "text"
    return _from_parts(str(paths["train"]), parts, by, seed, duplicates, numbers, notes)


def _from_parts(
    path: str,
    parts: dict[str, list[Example]],
    by: str,
    seed: int,
    duplicates: str,
    numbers: bool,
    notes: Sequence[str] = (),
) -> Corpus:
    """Return the corpus of examples by part, with a test part split off if there is none.

    ``by``: the column whose hash splits. Raises: a single label; a label in nearly every row; too
    few rows.
    """
    notes, rows = [*notes], parts["train"]
    counts = Counter(example.label for example in rows)
    if len(counts) == 1:
        raise RegardError(
            f"{path}: all {len(rows)} rows have the label {rows[0].label!r}; two labels are needed"
        )
    if not numbers:
        must_be_classes(path, rows)
    notes += [] if numbers else look_over(rows)
    if "test" not in parts:
        parts["train"], parts["test"] = split_test(path, rows, {} if numbers else counts, seed)
        notes.append(
            f"{len(parts['test']):,} of {len(rows):,} texts split off as the test part, by a hash "
            f"of the {by}"
        )
        notes += leak(parts["train"], parts["test"], "test", "test=FILE")
    name = short(path) if path in DATA else name_of(Path(path))
    return corpus_of(name, parts, notes, None, duplicates, numbers)


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
    path: str, rows: Sequence[Example], counts: Mapping[str, int], seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split off a test part by a hash of the group or text; `counts` are the rows of each label.

    Raises: a label that would only be in the test part; an empty test part.
    """
    train, test = split_by_hash(rows, TEST_SHARE, f"test {seed}")
    if missing := sorted(set(counts) - {example.label for example in train}):
        count = counts[missing[0]]
        which = f"all {count:,} rows" if count > 1 else "the only row"
        raise RegardError(
            f"{path}: {which} with the label {missing[0]!r} would be in the test part, so training "
            "would not see it; add rows of it or remove it, or give a test file with test=FILE"
        )
    if not test:
        raise RegardError(
            f"{path}: {len(rows)} rows are too few to split off a test part; give test=FILE"
        )
    return train, test


def _empty_note(empty: list[BadRow]) -> list[str]:
    if not empty:
        return []
    return [f"{_rows(len(empty))} skipped, without text or label, first {empty[0].source}"]


def _texts(shared: set[str]) -> str:
    return "text" if len(shared) == 1 else "texts"


def _rows(count: int) -> str:
    return f"{count:,} row" + ("s" if count != 1 else "")


def shared_texts(train: Iterable[Example], test: Iterable[Example]) -> set[str]:
    """Return the `likeness` of each text that occurs in both parts."""
    return {likeness(x.text) for x in train} & {likeness(x.text) for x in test}


def corpus_of(
    name: str,
    parts: Mapping[str, list[Example]],
    notes: list[str],
    order: tuple[str, ...] | None = None,
    duplicates: str = "drop",
    numbers: bool = False,
) -> Corpus:
    """Return the corpus of these parts; texts in two of them are dropped from the earlier.

    ``order``: the labels, in the order of a model's outputs. With ``numbers`` labels are not
    classes, and are not checked.
    """
    parts = dict(parts)
    for part, later in (("validation", "test"), ("train", "test"), ("train", "validation")):
        if part in parts and later in parts:
            parts[part], more = _without(parts[part], parts[later], (part, later), duplicates)
            notes = [*notes, *more]
    train, test, validation = parts["train"], parts["test"], parts.get("validation")
    if validation is not None and not validation:
        raise RegardError(f"{name}: all validation texts also occur in test; use other texts")
    held = [] if validation is None else [validation]
    digest = _fingerprint(train, test, *held)
    if numbers:
        return Corpus(name, train, test, (), tuple(notes), digest, validation)
    labels = order or in_order({example.label for example in train})
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "no rows"
        others = " and ".join(part for part in ("validation", "test") if part in parts)
        shared = any(" of train dropped" in note for note in notes)
        raise RegardError(
            f"{name}: train has {only}" + (f" not also in {others}" if shared else "")
        )
    known = set(labels)
    for part in ("validation", "test"):
        for example in parts.get(part, []):
            if example.label not in known:
                raise RegardError(
                    f"{example.source}: the label {example.label!r:.80} occurs only in {part}; "
                    f"train has {listed(labels)}"
                    + (meant(example.label, labels) or "; regard data check reports likely causes")
                )
    return Corpus(name, train, test, labels, tuple(notes), digest, validation)


def _without(
    earlier: list[Example], later: list[Example], names: tuple[str, str], duplicates: str
) -> tuple[list[Example], list[str]]:
    """Return the rows of a part without the texts of a later part, and a note about them."""
    shared = shared_texts(earlier, later)
    if not shared:
        return earlier, []
    shared_note = f"{len(shared):,} {_texts(shared)} in {names[0]} and {names[1]}"
    if duplicates == "keep":
        return earlier, [f"{shared_note}: kept"]
    rest = [example for example in earlier if likeness(example.text) not in shared]
    return rest, [f"{shared_note}: {_rows(len(earlier) - len(rest))} of {names[0]} dropped"]


def in_order(labels: set[str]) -> tuple[str, ...]:
    """Return the classes sorted as numbers if all are numbers, else alphabetically."""
    try:
        numbers = {label: float(label) for label in labels}
    except ValueError:
        return tuple(sorted(labels))
    if not all(map(math.isfinite, numbers.values())):
        return tuple(sorted(labels))
    return tuple(sorted(labels, key=lambda label: (numbers[label], label)))


def _fingerprint(*parts: list[Example]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}\n".encode())
        for example in part:
            text, label = example.text.encode(), example.label.encode()
            digest.update(b"%d %d\n%b%b" % (len(text), len(label), text, label))
            if example.parents is not None:
                digest.update(f"{example.parents}\n".encode())
    return digest.hexdigest()
