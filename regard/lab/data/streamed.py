"""Text pairs from files too large for memory: the training pairs stay on the disk.

One pass over the files loads validation and test into memory, and counts the rest. Training then
reads tokens that were written to the disk once: Multi30k's 29,000 pairs take 2 MB, a million pairs
70 MB.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from regard.core.errors import RegardError
from regard.lab.data.data_source import DataSource
from regard.lab.data.fetch import cache
from regard.lab.data.pair_files import collect, files_of, iterate_pairs, member_of
from regard.lab.data.pairs import Pair, PairCorpus, StreamedPairs
from regard.lab.data.spelling import likeness
from regard.lab.data.splits import SIDES, Side, chosen, moved, side_of, without_later
from regard.lab.data.token_store import (
    ShardWriter,
    StoredTexts,
    open_index,
    write_index,
    written_once,
)
from regard.lab.data.tokenizers import Tokenizer

LARGE = 200_000_000  # bytes of text above which train is not kept in memory
HELD = 5_000  # approximate pairs of validation and of test
BYTES = 100  # approximate bytes of a pair
PAIR: Final = ("source", "target")
SHARE = 0.05  # of the pairs, held out for validation and for test
CHUNK = 4_096  # pairs tokenised at once


def share_of(size: int, usual: float) -> float:
    """Return the fraction to hold out: `usual`, or for a large file about `HELD` pairs.

    >>> share_of(1_000_000, 0.05), share_of(1_000_000_000, 0.05)
    (0.05, 0.0005)
    """
    return min(usual, HELD * BYTES / max(size, 1))


def held_pairs(source: DataSource) -> tuple[dict[Side, list[Pair]], list[str]]:
    """Return the pairs of the files of validation and test, and notes."""
    streams = {side: iterate_pairs(source.at(file)) for side, file in source.splits.files.items()}
    pairs: dict[Any, list[Pair]] = {side: collect(stream) for side, stream in streams.items()}
    return pairs, [note for stream in streams.values() for note in stream.notes]


def stream_corpus(source: DataSource, size: int) -> PairCorpus:
    """Return a corpus whose training pairs stay on the disk; small parts are held out.

    `size`: bytes of the files. Pairs of validation and test files are dropped from train, and test
    pairs also from validation. Raises: a split without pairs.
    """
    stream, splits, names = iterate_pairs(source), source.splits, source.columns
    given, notes = held_pairs(source)
    test = 0.0 if "test" in given else share_of(size, SHARE)
    validation = 0.0 if "validation" in given else splits.share or share_of(size, SHARE)
    kept, twice = without_later(given, lambda pair: pair.source, row="pair", what="source")
    later = {likeness(pair.source) for pairs in kept.values() for pair in pairs}

    def sides() -> Iterator[tuple[Side | None, Pair]]:
        """Yield the split of each pair; None if its source is in a given split."""
        for pair in stream:
            known = later and likeness(pair.source) in later
            shares = {"test": test, "validation": validation}
            yield None if known else side_of(pair.source, seed=splits.seed, **shares), pair

    counts: Counter[Side | None] = Counter()
    held: dict[Any, list[Pair]] = {"validation": [], "test": [], **kept}
    for side, pair in sides():
        counts[side] += 1
        if side in held:
            held[side].append(pair)
    for side, count, remedy in (
        ("train", counts["train"], "add pairs"),
        ("validation", len(held["validation"]), "set a larger fraction, validation=0.1"),
        ("test", len(held["test"]), "give a test file with test=FILE"),
    ):
        if not count:
            raise RegardError(f"{source.name}: no pairs for {side}; {remedy}")
    order = chosen(source.limits.examples, counts["train"], splits.seed)

    def read() -> Iterator[Pair]:
        train = (pair for side, pair in sides() if side == "train")
        if order is None:
            yield from train
            return
        last = -1
        for place in order.tolist():
            yield next(islice(train, place - last - 1, None))
            last = place

    paths = files_of(source)
    places = {path: member_of(path) for path in paths}
    kinds = [places[path][1] or "".join(path.suffixes).lower() for path in paths]
    says = f"{(names.text, names.label)} {(test, validation)} {source.limits.longest} "
    says += f"{kinds} {source.limits.examples} {splits.seed}"
    digest = hashlib.sha256(
        f"{fingerprint_of(*(places[path][0] for path in paths))} {says}".encode()
    )
    for side, pairs in given.items():
        digest.update(f"{side} {len(pairs)}".encode())
        for pair in pairs:
            digest.update(repr((pair.source, pair.target)).encode())
    used = counts["train"] if order is None else len(order)
    notes = [*stream.notes, *notes, f"{used:,} pairs of train are streamed from the disk"]
    notes += [
        f"{len(held[side]):,} pairs split off as {side}, by a hash of the source"
        for side in SIDES[1:]
        if side not in given
    ]
    if counts[None]:
        notes.append(moved(counts[None], "train", given, "pair", "source"))
    return PairCorpus(
        source.name,
        StreamedPairs(used, digest.hexdigest(), read),
        held["validation"],
        held["test"],
        digest.hexdigest(),
        (*notes, *twice),
        (names.text, names.label),
    )


@dataclass(frozen=True)
class StoredPairs:
    """Tokens of both sides, pair i at index i."""

    source: StoredTexts
    target: StoredTexts
    folder: Path

    def __len__(self) -> int:
        return len(self.source)


def store_pairs(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    *,
    fingerprint: str,
    folder: Path | str | None = None,
) -> StoredPairs:
    """Return the tokens of the pairs from the disk, where they are written first if missing.

    They are stored in `folder` (or the cache) under a name derived from the texts' `fingerprint`
    (see `fingerprint_of`) and the tokenizer's hash. `pairs` is only read if necessary.

    Raises: no pairs; no space on the disk; a damaged folder.
    """
    name = hashlib.sha256(f"{fingerprint} {tokenizer.sha256}".encode()).hexdigest()[:32]
    place = (Path(folder) if folder is not None else cache() / "pairs") / name
    end, left = len(tokenizer), iter(pairs)

    def write() -> None:
        with closing(ShardWriter(place, 0, fingerprint, end, PAIR)) as writer:
            while some := list(islice(left, CHUNK)):
                for side in PAIR:
                    writer.add(side, tokenizer.encode([getattr(pair, side) for pair in some]))
            if not writer.documents["source"]:
                raise RegardError(f"{place}: no pairs to store")
            write_index(place, end, [writer.finish()])

    written_once(place, write)
    return open_stored(place)


def open_stored(folder: Path | str) -> StoredPairs:
    """Return pairs stored by `store_pairs`. Raises: no such folder, files of a wrong length."""
    folder = Path(folder)
    index = open_index(folder)
    source, target = (StoredTexts.open(folder, index, side) for side in PAIR)
    return StoredPairs(source, target, folder)


def fingerprint_of(*paths: Path | str) -> str:
    """Return a sha256 over the bytes of files, read in blocks."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
    return digest.hexdigest()
