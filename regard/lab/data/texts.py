"""Texts without labels for pretraining, by name or from a file."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from regard.core.errors import RegardError
from regard.core.names import short
from regard.lab.data import biographies, synthetic
from regard.lab.data.archives import tar_files
from regard.lab.data.birthplaces import load_birthplaces
from regard.lab.data.data_source import DataSource
from regard.lab.data.examples import texts_of
from regard.lab.data.files import read_examples
from regard.lab.data.imdb import decoded, find, load
from regard.lab.data.lines import FILE_LIMIT, LINE_LIMIT, open_binary, path_of
from regard.lab.data.named import DATA, SEED_OF_REVIEWS, must_be_found, parts_of
from regard.lab.data.records import table_kind
from regard.lab.data.sources import find_imdb, load_corpus
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import chosen, in_three
from regard.lab.data.text_files import files_at, is_address, is_pattern
from regard.lab.data.text_rows import documents, is_plain, text_rows

NAMES: Final = ("pydoc", "biographies", "birthplaces", "reviews", "imdb")
REVIEWS = 20_000  # generated reviews, in addition to the labelled ones
TEST_SHARE, VALIDATION_SHARE = 0.05, 0.05

_more = re.compile(r"(?:\./)?aclImdb/train/unsup/\d{1,9}_\d{1,2}\.txt")


@dataclass(frozen=True)
class TextCorpus:
    """Documents in three splits; no document is in two of them, unless nothing is held out.

    The fingerprint is a sha256 over all texts in order; ``notes`` describe what was dropped.
    """

    name: str
    train: Sequence[str]
    validation: Sequence[str]
    test: Sequence[str]
    notes: tuple[str, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Return a sha256 over all texts, in order."""
        digest = hashlib.sha256()
        for part in (self.train, self.validation, self.test):
            digest.update(f"{len(part)}\n".encode())
            for text in part:
                digest.update(f"{len(text)} {text}\n".encode(errors="replace"))
        return digest.hexdigest()


def load_texts(source: DataSource | Path | str = "pydoc") -> TextCorpus:
    """Return documents by name or from a file, in train, validation and test.

    * "pydoc": Python's own help text; "biographies": invented people; "reviews": 20,000 generated
      film reviews, without those of the labelled test part;
    * "birthplaces": the 2,937 lines of ``wiki.txt``; "imdb": the 75,000 reviews outside the test
      part, without labels and without duplicates of test;
    * a ``.txt`` file: passages separated by empty lines, or one per line if no line is empty;
      ``.jsonl``, ``.csv``, ``.tsv``: the column text (by common names if not given). All may be
      .gz. Also ``.parquet``, a pattern (``texts/*.jsonl``) and an address (``s3://…``).

    A share for validation (default: a twentieth) is held out by a hash of each text, and a
    twentieth for test; with ``validation=0`` nothing is held out and each split has all documents:
    for a corpus of facts to memorise. Texts of ``without`` are excluded first: all texts of a file,
    for "reviews" and "imdb" their test part.

    >>> from regard.lab.data.data_source import Splits
    >>> corpus = load_texts(DataSource("biographies", splits=Splits(validation=0)))
    >>> len(corpus.train), corpus.test[0]
    (360, 'Lena Cormann was born in Harlem and became a singer in later years .')
    """
    source = DataSource.of(source)
    data, seed, examples = source.name, source.splits.seed, source.limits.examples
    texts, notes = read_texts(source)
    if source.without:
        known, others = labelled_texts(source.without), Path(source.without.name).name
        texts, more = _excluding(texts, known, others)
        notes += more
    order = chosen(examples, len(texts), seed)
    if order is not None:
        texts = [texts[i] for i in order]
        notes.append(f"{examples:,} documents used, chosen by seed")
    name = short(data) if data in DATA else Path(data).name
    share = VALIDATION_SHARE if source.splits.share is None else source.splits.share
    if not share:
        return TextCorpus(name, texts, texts, texts, tuple(notes))
    parts = in_three(texts, str, test=TEST_SHARE, validation=share, seed=seed)
    if empty := [split for split, documents in parts.items() if not documents]:
        raise RegardError(
            f"{data}: {len(texts)} documents are too few to hold some out for {empty[0]}; add "
            "documents, or set validation=0 to hold out none"
        )
    return TextCorpus(name, parts["train"], parts["validation"], parts["test"], tuple(notes))


def read_texts(source: DataSource | Path | str) -> tuple[list[str], list[str]]:
    """Return all documents by name or of a file, and notes on what was dropped."""
    source = DataSource.of(source)
    data, column, data_dir = source.name, source.columns.text, source.data_dir
    if column and (is_plain(data) or data in DATA):
        raise RegardError(f"{data} has no columns; remove text={column}")
    if data == "biographies":
        return biographies.passages(), []
    if data == "birthplaces":
        return list(load_birthplaces("birthplaces", data_dir=data_dir or None).texts), []
    if data == "reviews":
        tested = {example.text for example in load_corpus("reviews").test}
        generated = synthetic.reviews(REVIEWS, SEED_OF_REVIEWS + 1)
        return [example.text for example in generated if example.text not in tested], []
    if data == "imdb":
        return imdb_texts(find_imdb(data_dir))
    if (parts := parts_of(data, "pretraining", "texts to pretrain on")) is not None:
        return [str(text) for rows in parts.values() for text in rows], []
    if not (is_address(data) or is_pattern(data)):
        must_be_found(data, "pretraining", "texts to pretrain on", NAMES)
    files = files_at(data)
    if (size := sum(file.text_bytes for file in files)) > FILE_LIMIT:
        raise RegardError(
            f"{data}: about {size:,} bytes of text; this task keeps its texts in memory, at most "
            f"{FILE_LIMIT:,}: name fewer files, or train language-modeling, which reads tokens "
            "from the disk"
        )
    texts = [text for file in files for text in documents(file, column)]
    if not texts:
        raise RegardError(f"{data}: contains no text")
    return texts, []


def labelled_texts(source: DataSource) -> set[str]:
    """Return the `likeness` of texts reserved for evaluation: all of a file, or the test part of
    named data and of an IMDB folder or archive.
    """
    path = path_of(source.name)
    if source.name in ("reviews", "imdb") or find(path):
        return {likeness(example.text) for example in load_corpus(source).test}
    if path.is_dir() or table_kind(path) is None:
        examples = read_examples(path, source.columns)
        return {likeness(text) for example in examples for text in texts_of(example.text)}
    return {likeness(text) for column in source.columns.texts for text in text_rows(path, column)}


def imdb_texts(place: Path) -> tuple[list[str], list[str]]:
    """Return all reviews outside the test part, without duplicates of test, and a note."""
    train, test = ([example.text for example in part] for part in load(place))
    return _excluding([*train, *_unlabelled(place)], {likeness(text) for text in test}, "test")


def _excluding(texts: list[str], known: set[str], others: str) -> tuple[list[str], list[str]]:
    """Return the texts whose `likeness` is not ``known``, as that of ``others`` is, and a note."""
    kept = [text for text in texts if likeness(text) not in known]
    return kept, [f"{len(texts) - len(kept):,} texts excluded that also occur in {others}"]


def _unlabelled(place: Path) -> Iterator[str]:
    if place.is_dir():
        lines, folder = place / "unsup.jsonl.gz", place / "train" / "unsup"
        if lines.is_file():
            yield from text_rows(lines, "text")
        elif folder.is_dir():
            for path in sorted(folder.glob("*.txt"), key=_number):
                with open_binary(path) as file:
                    yield decoded(file.read(LINE_LIMIT), str(path))
        return
    reviews: dict[Path, str] = {}
    for name, content in tar_files(place, lambda name: LINE_LIMIT * bool(_more.fullmatch(name))):
        reviews[Path(name)] = decoded(content, name)
    yield from (reviews[path] for path in sorted(reviews, key=_number))


def _number(path: Path) -> tuple[int, str]:
    """Return a review's sort key: 12 for 12_0.txt, the same in every format."""
    digits = path.stem.partition("_")[0]
    return int(digits) if digits.isdecimal() else -1, path.name
