"""The tokens of text pairs that do not fit into memory, stored on the disk.

They are written in one pass over the texts and then memory-mapped, so that the system loads only
the pages that a batch needs: Multi30k's 29,000 pairs take 2 MB, a million pairs 70 MB.

A folder contains ``source.ids`` and ``target.ids``, all tokens concatenated (uint16, or uint32 for
vocabularies above 65,536), ``source.ends`` and ``target.ends``, the end of each text in them
(int64), and ``stored.json``, the counts and the type. It is written atomically.
"""

import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Final, overload

import numpy as np
from jaxtyping import Int32, Int64, UInt
from numpy.typing import NDArray

from regard.core.atomic_io import (
    PARTIAL,
    one_line_errors,
    remove_folder,
    sync_folder,
    write_through,
)
from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.lab.data.fetch import cache
from regard.lab.data.pairs import Pair
from regard.lab.data.tokenizers import Tokenizer

FACTS: Final = "stored.json"
SIDES: Final = ("source", "target")
CHUNK = 4_096  # pairs tokenised at once
BLOCK = 1_000_000  # lengths counted at once
FORGOTTEN = 86_400  # seconds after which files of a killed process are removed


class Rows(Sequence[NDArray[np.integer]]):
    """A selection of texts by index."""

    def __init__(
        self, texts: Sequence[NDArray[np.integer]], chosen: Int64[np.ndarray, " rows"]
    ) -> None:
        self.texts, self.chosen = texts, chosen

    def __len__(self) -> int:
        return len(self.chosen)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.integer]: ...
    @overload
    def __getitem__(self, place: slice) -> list[NDArray[np.integer]]: ...
    def __getitem__(self, place: int | slice) -> NDArray[np.integer] | list[NDArray[np.integer]]:
        if isinstance(place, slice):
            return [self.texts[int(i)] for i in self.chosen[place]]
        return self.texts[int(self.chosen[place])]


class Texts(Sequence[NDArray[np.unsignedinteger]]):
    """The token ids of each text of one side, read from the disk on access."""

    def __init__(self, ids: UInt[np.ndarray, " tokens"], ends: Int64[np.ndarray, " texts"]) -> None:
        self.ids, self.ends = ids, ends

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.unsignedinteger]: ...
    @overload
    def __getitem__(self, place: slice) -> list[NDArray[np.unsignedinteger]]: ...
    def __getitem__(
        self, place: int | slice
    ) -> NDArray[np.unsignedinteger] | list[NDArray[np.unsignedinteger]]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        place = range(len(self))[place]
        start = self.ends[place - 1] if place else 0
        return self.ids[start : self.ends[place]]

    @property
    def lengths(self) -> Int32[np.ndarray, " texts"]:
        """Return the number of tokens of each text."""
        sizes = np.empty(len(self.ends), np.int32)
        for start in range(0, len(sizes), BLOCK):  # the ends stay on the disk
            ends = self.ends[max(start - 1, 0) : start + BLOCK]
            sizes[start : start + BLOCK] = np.diff(ends, prepend=0) if not start else np.diff(ends)
        return sizes


@dataclass(frozen=True)
class StoredPairs:
    """Tokens of both sides, pair i at index i."""

    source: Texts
    target: Texts
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
    (see `fingerprint_of`) and the tokenizer's hash. `pairs` is only read if necessary. Two
    processes may write at the same time: the first to finish wins, with the same result.

    Raises: no pairs; no space on the disk; a damaged folder.
    """
    name = hashlib.sha256(f"{fingerprint} {tokenizer.sha256}".encode()).hexdigest()[:32]
    place = (Path(folder) if folder is not None else cache() / "pairs") / name
    if not (place / FACTS).is_file():
        _write(place, pairs, tokenizer)
    return open_stored(place)


def open_stored(folder: Path | str) -> StoredPairs:
    """Return pairs stored by `store_pairs`. Raises: no such folder, files of a wrong length."""
    folder = Path(folder)
    try:
        facts = read_json(folder / FACTS)
        sides = []
        for side in SIDES:
            count, tokens = int(facts["pairs"]), int(facts["tokens"][side])
            kind = np.dtype(facts["dtype"])
            if kind not in (np.uint16, np.uint32):
                raise ValueError(f"token type {kind}")
            paths = folder / f"{side}.ids", folder / f"{side}.ends"
            for path, size in zip(paths, (tokens * kind.itemsize, count * 8), strict=True):
                if path.stat().st_size != size:
                    raise ValueError(f"{path.name} does not have the expected {size:,} bytes")
            ids = np.memmap(paths[0], kind, mode="r") if tokens else np.zeros(0, kind)
            sides.append(Texts(ids, np.memmap(paths[1], np.int64, mode="r")))
    except (OSError, ValueError, KeyError, TypeError, RegardError) as error:
        raise RegardError(
            f"{folder}: damaged stored pairs ({error}); delete the folder to recreate it"
        ) from None
    return StoredPairs(sides[0], sides[1], folder)


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


def _write(place: Path, pairs: Iterable[Pair], tokenizer: Tokenizer) -> None:
    written = 0
    with one_line_errors(place, 0):
        place.parent.mkdir(parents=True, exist_ok=True)
        aside = place.parent / f".{place.name}.{secrets.token_hex(4)}{PARTIAL}"
        aside.mkdir()
    try:
        for old in place.parent.glob(f".*{PARTIAL}"):
            if time.time() - _touched(old) > FORGOTTEN:
                shutil.rmtree(old, ignore_errors=True)
        for size in _write_sides(aside, pairs, tokenizer):
            written = size
        if not written:
            raise RegardError(f"{place}: no pairs to store")
        sync_folder(aside)
        if place.is_dir() and not (place / FACTS).is_file():
            remove_folder(place)  # incomplete
        try:
            aside.rename(place)
        except OSError:
            if not (place / FACTS).is_file():  # unless another process was faster
                raise
        sync_folder(place.parent)
    except OSError:
        with one_line_errors(place, 2 * written):
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _touched(folder: Path) -> float:
    """Return the last modification time in a folder; now, if another process removes it."""
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return time.time()


def _write_sides(folder: Path, pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[int]:
    """Write both sides; yield the bytes written so far after each chunk."""
    kind = np.dtype(np.uint16 if len(tokenizer) <= 1 << 16 else np.uint32)
    tokens, count = dict.fromkeys(SIDES, 0), 0
    with ExitStack() as stack:
        files = {
            (side, what): stack.enter_context((folder / f"{side}.{what}").open("wb"))
            for side in SIDES
            for what in ("ids", "ends")
        }
        for some in _chunks(pairs):
            for side in SIDES:
                encoded = tokenizer.encode([getattr(pair, side) for pair in some])
                ends = tokens[side] + np.cumsum([len(ids) for ids in encoded])
                tokens[side] = int(ends[-1])
                files[side, "ids"].write(np.array(list(chain(*encoded)), kind).tobytes())
                files[side, "ends"].write(ends.astype(np.int64).tobytes())
            count += len(some)
            yield sum(tokens.values()) * kind.itemsize + 2 * count * 8
        for file in files.values():
            file.flush()
            os.fsync(file.fileno())
    facts = {"pairs": count, "tokens": tokens, "dtype": kind.name}
    write_through(folder / FACTS, json.dumps(facts).encode())


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    left = iter(pairs)
    while some := list(islice(left, CHUNK)):
        yield some
