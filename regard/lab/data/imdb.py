"""The Large Movie Review Dataset (Maas et al. 2011) in each of its distributed formats.

A review's group is its film, if the format has it: no film of test is in train (except tt0406816,
of which train has two reviews), so a validation split should share none with train either.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from regard.core.errors import RegardError
from regard.lab.data.archives import tar_files
from regard.lab.data.data_source import Columns
from regard.lab.data.examples import Example
from regard.lab.data.files import read_examples
from regard.lab.data.lines import LINE_LIMIT, open_binary

LIST_LIMIT = 10_000_000  # bytes of a list of addresses
LABELS = ("negative", "positive")
ARCHIVE = "aclImdb_v1.tar.gz"
NAMES = {"0": "negative", "1": "positive", "neg": "negative", "pos": "positive"}
PARTS = [(split, kind) for split in ("train", "test") for kind in ("neg", "pos")]

_member = re.compile(r"(?:\./)?aclImdb/(train|test)/(neg|pos)/(\d{1,9}_\d{1,2})\.txt")
_films = re.compile(r"(?:\./)?aclImdb/(train|test)/urls_(neg|pos)\.txt")
_film = re.compile(r"tt\d{5,9}")
_file = re.compile(r"(\d{1,9})_(\d{1,2})\.txt")


def find(folder: Path) -> Path | None:
    """Return the folder or archive at or under a path that contains the reviews, or None."""
    packed = folder.name.endswith((".tar.gz", ".tgz"))
    if packed or not folder.is_dir():
        return folder if packed else None
    for place in (folder, folder / "aclImdb"):
        if is_folder(place):
            return place
    archive = folder / ARCHIVE
    return archive if archive.is_file() else None


def is_folder(folder: Path) -> bool:
    """Return whether this is an unpacked aclImdb, or has train.jsonl.gz and test.jsonl.gz."""
    unpacked = all((folder / split / kind).is_dir() for split, kind in PARTS)
    return unpacked or all((folder / f"{split}.jsonl.gz").is_file() for split in ("train", "test"))


def load(place: Path) -> tuple[list[Example], list[Example]]:
    """Return train and test, negative reviews first, by number: the same from every format.

    Archives are streamed, never unpacked to the disk; members with other names, and links, are
    skipped.
    """
    if (place / "train.jsonl.gz").is_file():
        return _from_lines(place / "train.jsonl.gz"), _from_lines(place / "test.jsonl.gz")
    films: Films = {}
    shape = _from_folder if place.is_dir() else _from_archive
    return _gather(shape(place, films), films, place)


def _from_lines(path: Path) -> list[Example]:
    with open_binary(path) as file:
        films = b'"movie"' in file.readline(LINE_LIMIT)
    examples = read_examples(path, Columns("text", "label", "movie" if films else ""))
    for example in examples:
        if example.label not in NAMES:
            raise RegardError(
                f"{example.source}: the label must be 0 (negative) or 1, not {example.label!r}"
            )
    return [Example(e.text, NAMES[e.label], e.source, e.group) for e in examples]


Review = tuple[str, str, str, Example]  # split, neg or pos, number_rating, the example
Films = dict[tuple[str, str], list[str]]  # of split and neg or pos: the film of each number


def _gather(
    reviews: Iterator[Review], films: Films, place: Path
) -> tuple[list[Example], list[Example]]:
    parts: dict[tuple[str, str], list[tuple[list[int], Example]]] = {part: [] for part in PARTS}
    for split, kind, name, example in reviews:
        parts[split, kind].append(([int(number) for number in name.split("_")], example))
    sides: dict[str, list[Example]] = {"train": [], "test": []}
    for (split, kind), numbered in parts.items():
        if not numbered:
            raise RegardError(f"{place}: no reviews in aclImdb/{split}/{kind}")
        known = dict(enumerate(films.get((split, kind), [])))
        for numbers, example in sorted(numbered, key=lambda item: item[0]):
            sides[split].append(replace(example, group=known.get(numbers[0], "")))
    return sides["train"], sides["test"]


def _from_archive(path: Path, films: Films) -> Iterator[Review]:
    def most_of(name: str) -> int:
        return (
            LINE_LIMIT if _member.fullmatch(name) else LIST_LIMIT if _films.fullmatch(name) else 0
        )

    for member, content in tar_files(path, most_of):
        if listed := _films.fullmatch(member):
            films[listed[1], listed[2]] = _numbers_of_films(content)
        elif match := _member.fullmatch(member):
            split, kind, name = match.groups()
            yield split, kind, name, _review(content, kind, f"{path.name}:{member}")


def _from_folder(folder: Path, films: Films) -> Iterator[Review]:
    for split, kind in PARTS:
        listed = folder / split / f"urls_{kind}.txt"
        if listed.is_file():
            with open_binary(listed) as file:
                films[split, kind] = _numbers_of_films(file.read(LIST_LIMIT))
        for path in (folder / split / kind).glob("*"):
            if not _file.fullmatch(path.name):
                continue
            here = f"{split}/{kind}/{path.name}"
            with open_binary(path) as file:
                content = file.read(LINE_LIMIT + 1)
            if len(content) > LINE_LIMIT:
                raise RegardError(f"{here}: larger than {LINE_LIMIT:,} bytes")
            yield split, kind, path.stem, _review(content, kind, here)


def _numbers_of_films(content: bytes) -> list[str]:
    """Return the film of each review by number: line 8 of urls_pos.txt belongs to 7_10.txt."""
    lines = content.decode(errors="replace").splitlines()
    return [match[0] if (match := _film.search(line)) else "" for line in lines]


def _review(content: bytes, kind: str, here: str) -> Example:
    text = decoded(content, here)
    if not text.strip():
        raise RegardError(f"{here}: the review is empty")
    return Example(text, NAMES[kind], here)


def decoded(content: bytes, here: str) -> str:
    """Return the text of a review. Raises: it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise RegardError(f"{here}: not UTF-8 (byte {error.start + 1})") from None
