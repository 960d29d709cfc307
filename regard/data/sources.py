"""From a name or a file to labelled texts, split into train and test."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from regard.data import imdb, synthetic
from regard.data.class_files import name_of
from regard.data.fetch import SOURCES, RemoteFile, Show, Source, fetch, folders
from regard.data.files import BadRow, Example, is_folder, path_of, read
from regard.data.labels import look_over, meant, parse_labels, rename
from regard.data.near_copies import leak
from regard.data.titles import listed
from regard.errors import RegardError, look_up

__all__ = [
    "BUILT_IN",
    "SOURCES",
    "Corpus",
    "RemoteFile",
    "Source",
    "fetch",
    "hold_out",
    "load_corpus",
    "shared_texts",
]


class BuiltIn(NamedTuple):
    """Data that regard makes from a seed: what it is and for what."""

    what: str
    used_for: str


BUILT_IN = {
    "reviews": BuiltIn(
        "4,000 + 1,000 film reviews from a grammar; word order and negation decide",
        "classification",
    ),
    "reverse": BuiltIn("random strings of A … Z and the same from behind", "translation"),
    "biographies": BuiltIn(
        "120 invented people, three passages and a question about each", "birthplace"
    ),
    "pydoc": BuiltIn("Python's own help text, 340,000 characters of English", "pretraining"),
    "dates": BuiltIn("dates as people write them in 48 locales, and in ISO 8601", "translation"),
    "ratings": BuiltIn(
        "4,000 + 1,000 film reviews of one to five sentences from the grammar, with 0 to 10 points",
        "regression",
    ),
    "entities": BuiltIn(
        "2,400 + 600 sentences from a grammar, people, places and organisations tagged; the same "
        "name is any of them, by its context",
        "tagging",
    ),
}
LABELLED = ("reviews", "imdb")  # the names that load_corpus knows
TEST_SHARE = 0.2
SEED_OF_REVIEWS = 2024


@dataclass(frozen=True)
class Corpus:
    """Labelled texts. The classes are `labels`, in the order of a model's outputs.

    `validation` is None where no file was given for it.
    """

    name: str
    train: list[Example]
    test: list[Example]
    labels: tuple[str, ...]
    notes: tuple[str, ...]  # what was left out or split off, in words
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
    """Labelled texts by name ("reviews", "imdb") or from a file, with a test part.

    A file comes with its own `test` file, or a fifth is split off by a hash of each text (and of
    `seed`), so that copies of a text stay on one side; with a column named as `group`, all texts
    of a group do. `validation` is a file as well; without it none is split off here (see
    `hold_out`). Texts that stand in two parts are dropped from the earlier of train, validation
    and test, unless `duplicates` is "keep", which repeats published evaluations that kept them.
    `labels` renames those of the files: "neg:0,pos:1". An aclImdb folder or archive may be named
    by its path. With ``numbers`` the labels are finite numbers, of which any may stand in any part
    ("ratings" by name); a corpus then has no `labels`. "imdb" is looked for in `data_dir`,
    ``REGARD_DATA`` and the cache, then downloaded.

    Errors: what `regard.data.files.read` says of a file; one label only; a label that train does
    not have; a label in nearly every row; several labels in one.

    >>> corpus = load_corpus("reviews")
    >>> len(corpus.train), len(corpus.test), corpus.labels
    (4000, 1000, ('negative', 'positive'))
    """
    if numbers:
        if data in (*LABELLED, *BUILT_IN) and data != "ratings":
            raise RegardError(f"{data} has no numbers to be foretold; ratings has, or give a file")
    elif data == "ratings":
        raise RegardError("ratings has numbers for labels: regard train regression")
    path = path_of(data)
    place = imdb.find(path) if path.is_dir() else path if imdb.is_packed(path) else None
    if (data in LABELLED or place) and test:
        raise RegardError(f"{data} has its own test part; test=FILE goes with a file of your own")
    if (data in LABELLED or place) and validation:
        raise RegardError(
            f"{data} is split by regard; validation=FILE goes with a file of your own"
        )
    if (data in LABELLED or place) and (text or label or group or labels):
        raise RegardError(
            f"{data} has no columns to be named: leave text, label, group and labels out"
        )
    if data == "reviews":
        examples = synthetic.reviews(5000, SEED_OF_REVIEWS)
        made = {"train": examples[:4000], "test": examples[4000:]}
        return corpus_of(data, made, [], imdb.LABELS)
    if data == "ratings":
        examples = synthetic.ratings(5000, SEED_OF_REVIEWS)
        made = {"train": examples[:4000], "test": examples[4000:]}
        return corpus_of(data, made, [], numbers=True)
    if data == "imdb":
        return _imdb("imdb", find_imdb(data_dir, show=show), duplicates)
    if not path.exists() and not path.suffix and len(path.parts) == 1 and "," not in data:
        if (data in BUILT_IN or data in SOURCES) and data not in LABELLED:
            used_for = (BUILT_IN.get(data) or SOURCES[data]).used_for
            raise RegardError(
                f"{data} holds no texts with labels; it is for {used_for}. With labels there are: "
                f"{', '.join(LABELLED)}"
            )
        look_up(dict.fromkeys(LABELLED), data, "data set or file")
    if place is not None:
        return _imdb(path.name, place, duplicates)
    if path.is_dir() and not is_folder(path):
        raise RegardError(
            f"{path}: is a folder, but no aclImdb with train/pos, train/neg, test/pos and "
            "test/neg, and holds no file or folder of .txt texts for each label (neg.txt, pos.txt; "
            "neg/1.txt, pos/1.txt); give one of these, or a .csv, .tsv or .jsonl file"
        )
    columns = {"text": text, "label": label, "group": group}
    paths = {"train": path}
    paths |= {"validation": path_of(validation)} if validation else {}
    paths |= {"test": path_of(test)} if test else {}
    return _from_files(paths, columns, parse_labels(labels), seed, duplicates, numbers)


def hold_out(
    examples: Sequence[Example], fraction: float = 0.1, seed: int = 0
) -> tuple[list[Example], list[Example]]:
    """Split examples into (train, validation) by a hash of the group, or else of the text.

    Texts of one group stay together, and so do copies: case and spaces do not count. Whether a
    text is held out depends on that and the seed alone, so it stays out when others join or leave.
    A copy in another group than a text that is held out is in neither.
    """
    train, held = split_by_hash(examples, fraction, f"validation {seed}")
    if any(example.group for example in examples):
        known = {likeness(example.text) for example in held}
        train = [example for example in train if likeness(example.text) not in known]
    return train, held


def split_by_hash(
    examples: Sequence[Example], fraction: float, salt: str
) -> tuple[list[Example], list[Example]]:
    """Return what stays and what leaves, by a hash of each group, or of a text without one."""
    stay: list[Example] = []
    leave: list[Example] = []
    for example in examples:
        unit = example.group or likeness(example.text)
        (leave if leaves(unit, fraction, salt) else stay).append(example)
    return stay, leave


def leaves(unit: str, fraction: float, salt: str) -> bool:
    """Whether this unit is among the fraction that is split off: by its hash and the salt alone."""
    digest = hashlib.sha256(f"{salt}\n{unit}".encode(errors="replace")).digest()
    return int.from_bytes(digest[:8]) < fraction * 2**64


def likeness(text: str) -> str:
    """What copies of a text have in common: case and spaces do not count."""
    return " ".join(text.casefold().split())


def find_imdb(data_dir: Path | str | None = None, *, show: Show | None = None) -> Path:
    """Where the IMDB reviews lie: a folder or the archive, downloaded if there is neither."""
    for folder in folders("imdb", data_dir):
        if (place := imdb.find(folder)) is not None:
            return place
    return fetch("imdb", data_dir, show=show)[0]


def _imdb(name: str, place: Path, duplicates: str) -> Corpus:
    train, test = imdb.load(place)
    return corpus_of(name, {"train": train, "test": test}, [], imdb.LABELS, duplicates)


def _from_files(
    paths: Mapping[str, Path],
    columns: Mapping[str, str | None],
    names: Mapping[str, str],
    seed: int,
    duplicates: str,
    numbers: bool = False,
) -> Corpus:
    notes: list[str] = []
    parts: dict[str, list[Example]] = {}
    for part, place in paths.items():
        found = read(place, **columns)
        parts[part] = found.examples
        notes += [*found.remarks, *_empty_note(found.empty)]
    rename([example for part in parts.values() for example in part], names)  # errors
    parts = {part: rename(rows, names, must_occur=False) for part, rows in parts.items()}
    path, rows = paths["train"], parts["train"]
    counts = Counter(example.label for example in rows)
    if len(counts) == 1:
        raise RegardError(f"{path}: all {len(rows)} rows have the label {rows[0].label!r}")
    if len(counts) > 50 and len(counts) > len(rows) / 4 and not numbers:
        raise RegardError(
            f"{path}: {len(counts):,} different labels in {len(rows):,} rows; is the label in "
            "another column? Name it by label=NAME, or by number, from 1: label=2; numbers are "
            "learned by regard train regression"
        )
    notes += [] if numbers else look_over(rows)
    if "test" not in parts:
        parts["train"], parts["test"] = _split_test(path, rows, {} if numbers else counts, seed)
        notes.append(
            f"{len(parts['test']):,} of {len(rows):,} texts split off as the test part, by a hash "
            f"of the {columns['group'] or 'text'}"
        )
        notes += leak(parts["train"], parts["test"], "test", "test=FILE")
    return corpus_of(name_of(path), parts, notes, None, duplicates, numbers)


def _split_test(
    path: Path, rows: Sequence[Example], counts: Mapping[str, int], seed: int
) -> tuple[list[Example], list[Example]]:
    train, test = split_by_hash(rows, TEST_SHARE, f"test {seed}")
    if missing := sorted(set(counts) - {example.label for example in train}):
        raise RegardError(
            f"{path}: all {_rows(counts[missing[0]])} with the label {missing[0]!r} fell into the "
            "test part; add rows of it, or give a test file by test=FILE"
        )
    if not test:
        raise RegardError(f"{path}: {len(rows)} rows are too few to split a test part off")
    return train, test


def _empty_note(empty: list[BadRow]) -> list[str]:
    if not empty:
        return []
    return [f"{_rows(len(empty))} skipped, without text or label, first {empty[0].source}"]


def _texts(shared: set[str]) -> str:
    return "text stands" if len(shared) == 1 else "texts stand"


def _rows(count: int) -> str:
    return f"{count:,} row" + ("s" if count != 1 else "")


def shared_texts(train: Iterable[Example], test: Iterable[Example]) -> set[str]:
    """The likenesses of texts that stand in both parts."""
    return {likeness(x.text) for x in train} & {likeness(x.text) for x in test}


def corpus_of(
    name: str,
    parts: Mapping[str, list[Example]],
    notes: list[str],
    order: tuple[str, ...] | None = None,
    duplicates: str = "drop",
    numbers: bool = False,
) -> Corpus:
    """Return the corpus of these parts, texts that stand in two of them dropped from the earlier.

    ``order``: the labels, in the order of a model's outputs. With ``numbers`` an example's label is
    not one of a few classes, and nothing is asked of it.
    """
    parts = dict(parts)
    for part, later in (("validation", "test"), ("train", "test"), ("train", "validation")):
        if part in parts and later in parts:
            parts[part], told = _without(parts[part], parts[later], (part, later), duplicates)
            notes = [*notes, *told]
    train, test, validation = parts["train"], parts["test"], parts.get("validation")
    if validation is not None and not validation:
        raise RegardError(f"{name}: validation holds nothing beside test; give other texts")
    held = [] if validation is None else [validation]
    digest = _fingerprint(train, test, *held)
    if numbers:
        return Corpus(name, train, test, (), tuple(notes), digest, validation)
    labels = order or in_order({example.label for example in train})
    if len(labels) < 2:
        only = f"only the label {labels[0]!r}" if labels else "nothing"
        others = " and ".join(part for part in ("validation", "test") if part in parts)
        shared = any(" of train dropped" in note for note in notes)
        raise RegardError(f"{name}: train holds {only}" + (f" beside {others}" if shared else ""))
    known = set(labels)
    for part in ("validation", "test"):
        for example in parts.get(part, []):
            if example.label not in known:
                raise RegardError(
                    f"{example.source}: the label {example.label!r:.80} stands in {part} only; "
                    f"train has {listed(labels)}"
                    + (meant(example.label, labels) or "; regard data check says what may be wrong")
                )
    return Corpus(name, train, test, labels, tuple(notes), digest, validation)


def _without(
    earlier: list[Example], later: list[Example], names: tuple[str, str], duplicates: str
) -> tuple[list[Example], list[str]]:
    """The rows of a part that a later one has not, and a note of those that it has."""
    shared = shared_texts(earlier, later)
    if not shared:
        return earlier, []
    stand = f"{len(shared):,} {_texts(shared)} in {names[0]} and {names[1]}"
    if duplicates == "keep":
        return earlier, [f"{stand}: kept"]
    kept = [example for example in earlier if likeness(example.text) not in shared]
    return kept, [f"{stand}: {_rows(len(earlier) - len(kept))} of {names[0]} dropped"]


def in_order(labels: set[str]) -> tuple[str, ...]:
    """The classes by number where all are numbers, by alphabet otherwise."""
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
