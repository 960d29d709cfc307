"""Text pairs from files too large for memory: the training pairs stay on the disk.

One pass over the files loads validation and test into memory, and counts the rest. Training then
reads tokens that were written to the disk once: Multi30k's 29,000 pairs take 2 MB, a million pairs
70 MB.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np

from regard.core.errors import RegardError
from regard.lab.data.fetch import cache
from regard.lab.data.pair_files import PairStream
from regard.lab.data.pairs import Pair, PairCorpus, StreamedPairs
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
SIDES: Final = ("source", "target")
CHUNK = 4_096  # pairs tokenised at once

Split = Callable[[str], str]


def share_of(size: int, usual: float) -> float:
    """Return the fraction to hold out: `usual`, or for a large file about `HELD` pairs.

    >>> share_of(1_000_000, 0.05), share_of(1_000_000_000, 0.05)
    (0.05, 0.0005)
    """
    return min(usual, HELD * BYTES / max(size, 1))


def stream_corpus(
    name: str,
    stream: PairStream,
    paths: Sequence[Path],
    *,
    side_of: Callable[[str], str],
    key: Callable[[str], str],
    given: Mapping[str, Sequence[Pair]],
    notes: Iterable[str],
    examples: int,
    seed: int,
    says: str,
    languages: tuple[str, str],
) -> PairCorpus:
    """Return a corpus whose training pairs stay on the disk.

    `side_of` returns the split of a source text; `key` is the same for equivalent sources. `given`
    are the pairs of validation and test files, with their `notes`: they are dropped from train, and
    test pairs also from validation. `says` has the settings that enter the fingerprint in addition
    to the files. Raises: a split without pairs.
    """
    tested = {key(pair.source) for pair in given.get("test", ())}
    checked = [pair for pair in given.get("validation", ()) if key(pair.source) not in tested]
    later = tested | {key(pair.source) for pair in checked}
    held: dict[str, list[Pair]] = {"validation": checked, "test": list(given.get("test", ()))}
    count = dropped = 0
    for pair in stream:
        side = side_of(pair.source)
        if later and key(pair.source) in later:
            dropped += 1
        elif side == "train":
            count += 1
        else:
            held[side].append(pair)
    for side, pairs_count in (
        ("train", count),
        *((side, len(some)) for side, some in held.items()),
    ):
        if not pairs_count:
            raise RegardError(
                f"{name}: no pairs for {side}; "
                + ("set a larger fraction, validation=0.1" if side == "validation" else "")
                + ("give a test file with test=FILE" if side == "test" else "")
                + ("add pairs" if side == "train" else "")
            )
    chosen = _chosen(count, examples, seed)

    def read() -> Iterator[Pair]:
        place = 0
        wanted = iter(chosen if chosen is not None else ())
        next_ = next(wanted, None)
        for pair in stream:
            if side_of(pair.source) != "train" or (later and key(pair.source) in later):
                continue
            if chosen is None:
                yield pair
            elif place == next_:
                yield pair
                next_ = next(wanted, None)
                if next_ is None:
                    return
            place += 1

    digest = hashlib.sha256(f"{fingerprint_of(*paths)} {says} {examples} {seed}".encode())
    for side, pairs in given.items():
        digest.update(f"{side} {len(pairs)}".encode())
        for pair in pairs:
            digest.update(repr((pair.source, pair.target)).encode())
    used = len(chosen) if chosen is not None else count
    all_notes = [
        *stream.notes,
        *notes,
        f"{used:,} pairs of train are streamed from the disk",
    ]
    all_notes += [
        f"{len(some):,} pairs split off as {side}, by a hash of the source"
        for side, some in held.items()
        if side not in given
    ]
    if dropped:
        others = " or ".join(given)
        all_notes.append(f"{dropped:,} pairs of train dropped: source also in {others}")
    if many := len(given.get("validation", ())) - len(checked):
        all_notes.append(f"{many:,} pairs of validation dropped: source also in test")
    return PairCorpus(
        name,
        StreamedPairs(used, digest.hexdigest(), read),
        held["validation"],
        held["test"],
        digest.hexdigest(),
        tuple(all_notes),
        languages,
    )


def _chosen(
    count: int, examples: int, seed: int
) -> "np.ndarray[tuple[int], np.dtype[np.int64]] | None":
    """Return the indexes of the selected pairs, in order; None for all."""
    if not 0 < examples < count:
        return None
    random = np.random.Generator(np.random.PCG64(seed))
    return np.sort(random.permutation(count)[:examples])


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
        with closing(ShardWriter(place, 0, fingerprint, end, SIDES)) as writer:
            while some := list(islice(left, CHUNK)):
                for side in SIDES:
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
    source, target = (StoredTexts.open(folder, index, side) for side in SIDES)
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
