"""Tokens on the disk, written once in shards and read in slices or text by text.

A folder holds the ids of each source and part (a split, or a side of text pairs),
``00012.train.ids`` (uint16, or uint32 for vocabularies above 65,536), every text followed by an end
token; ``00012.json``, the counts and hashes of that source, written when its ids are complete; and
``index.json``, all of these, written when all sources are. A stream keeps no file open: there may
be more shards than a process may open.
"""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, overload

import numpy as np
from jaxtyping import Int32, Int64, UInt
from numpy.typing import NDArray

from regard.core.atomic_io import (
    locked,
    make_folder,
    one_line_errors,
    partial_path,
    remove_leftovers,
    sync_folder,
    write_json,
)
from regard.core.errors import RegardError
from regard.core.reading import checked, read_json

INDEX: Final = "index.json"
LOCK: Final = ".lock"
SPLITS: Final = ("train", "validation", "test")
BLOCK = 1 << 22  # tokens searched at once


@dataclass(frozen=True)
class Shard:
    """The tokens of a source: documents, tokens and a sha256 of the ids, by part."""

    number: int
    source: str
    documents: dict[str, int]
    tokens: dict[str, int]
    sha256: dict[str, str]


@dataclass(frozen=True)
class Index:
    """All shards of a folder, in order, and the end token, which is the largest id."""

    end: int
    shards: list[Shard]

    def total(self, what: Literal["documents", "tokens"], part: str) -> int:
        """Return the number of documents or tokens of a part."""
        return sum(getattr(shard, what)[part] for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Return a sha256 over the hashes of all ids, in order."""
        parts = [list(shard.sha256.values()) for shard in self.shards]
        kind = kind_of_token(self.end).name
        return hashlib.sha256(json.dumps([kind, parts]).encode()).hexdigest()


def ids_path(folder: Path, number: int, part: str) -> Path:
    """Return the file of the ids of a source, by its number."""
    return folder / f"{number:05}.{part}.ids"


def kind_of_token(largest: int) -> "np.dtype[Any]":
    """Return the smallest type that holds ids up to ``largest``.

    >>> kind_of_token(65_535).name, kind_of_token(65_536).name
    ('uint16', 'uint32')
    """
    return np.dtype("<u2" if largest < 1 << 16 else "<u4")


class ShardWriter:
    """Writes the ids of one source; `finish` makes them a complete shard.

    `close` removes what was not finished. Raises: no space, no permission.
    """

    def __init__(
        self, folder: Path, number: int, source: str, end: int, parts: Sequence[str] = SPLITS
    ) -> None:
        self.folder, self.number, self.source, self.end = folder, number, source, end
        self.kind = kind_of_token(end)
        self.paths = {part: ids_path(folder, number, part) for part in parts}
        self.documents, self.tokens = dict.fromkeys(parts, 0), dict.fromkeys(parts, 0)
        self.hashes = {part: hashlib.sha256() for part in parts}
        with ExitStack() as stack, one_line_errors(folder, 0):
            self.files = {
                part: stack.enter_context(partial_path(path).open("wb"))
                for part, path in self.paths.items()
            }
            self.stack = stack.pop_all()

    def add(self, part: str, documents: Sequence[Sequence[int]]) -> None:
        """Append documents to a part."""
        flat = [token for ids in documents for token in (*ids, self.end)]
        data = np.array(flat, self.kind).tobytes()
        with one_line_errors(self.paths[part], len(data)):
            self.files[part].write(data)
        self.hashes[part].update(data)
        self.documents[part] += len(documents)
        self.tokens[part] += len(flat)

    def finish(self) -> Shard:
        """Flush the ids to the disk, give them their names, and write their description."""
        with one_line_errors(self.folder, 0):
            for file in self.files.values():
                file.flush()
                os.fsync(file.fileno())
            self.stack.close()
            for path in self.paths.values():
                os.replace(partial_path(path), path)
            sync_folder(self.folder)
        digests = {part: digest.hexdigest() for part, digest in self.hashes.items()}
        shard = Shard(self.number, self.source, self.documents, self.tokens, digests)
        write_json(shard_path(self.folder, self.number), asdict(shard))
        return shard

    def close(self) -> None:
        """Close the files, and remove those that are incomplete."""
        with suppress(OSError):  # what is left to write, to a full disk
            self.stack.close()
        for path in self.paths.values():
            partial_path(path).unlink(missing_ok=True)


def shard_path(folder: Path, number: int) -> Path:
    """Return the description of a source's ids."""
    return folder / f"{number:05}.json"


def finished_shard(folder: Path, number: int, end: int) -> Shard | None:
    """Return the shard of a source; None if it is not complete."""
    try:
        shard = checked(Shard, read_json(shard_path(folder, number)), shard_path(folder, number))
        _must_have_its_sizes(folder, shard, kind_of_token(end))
    except RegardError:
        return None
    return shard


def write_index(folder: Path, end: int, shards: Sequence[Shard]) -> None:
    """Declare the folder complete."""
    write_json(folder / INDEX, asdict(Index(end, list(shards))))


def written_once(folder: Path, write: Callable[[], None]) -> Index:
    """Return the index of a folder, to which `write` is called first if it is not complete.

    One process at a time writes; others, such as another rank of a training, wait for it.
    """
    if not (folder / INDEX).is_file():
        make_folder(folder)
        with locked(folder / LOCK, wait=True):
            if not (folder / INDEX).is_file():  # else another process has just written it
                remove_leftovers(folder)
                write()
    return open_index(folder)


def open_index(folder: Path) -> Index:
    """Return the index of a complete folder. Raises: a missing file or a wrong size."""
    path = folder / INDEX
    try:
        index = checked(Index, read_json(path), path)
        for shard in index.shards:
            _must_have_its_sizes(folder, shard, kind_of_token(index.end))
    except (RegardError, KeyError) as error:
        raise RegardError(f"{error}; delete {folder} to tokenise the texts again") from None
    return index


def must_have_its_hashes(folder: Path, index: Index) -> None:
    """Read all ids and compare their hashes. Raises: a different hash."""
    for shard in index.shards:
        for part, expected in shard.sha256.items():
            path = ids_path(folder, shard.number, part)
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256")
            if digest.hexdigest() != expected:
                raise RegardError(
                    f"{path}: damaged: its sha256 differs from the one in {INDEX}; delete {folder} "
                    "to tokenise the texts again"
                )


def _must_have_its_sizes(folder: Path, shard: Shard, kind: "np.dtype[Any]") -> None:
    for part, tokens in shard.tokens.items():
        path, due = ids_path(folder, shard.number, part), tokens * kind.itemsize
        try:
            size = path.stat().st_size
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
        if size != due:
            raise RegardError(f"{path}: damaged: {size:,} bytes, not {due:,}")


class TokenStream:
    """The tokens of a part, one shard after another, read from the disk on access.

    A slice is an array in memory; only its own pages are read.
    """

    def __init__(self, folder: Path, index: Index, part: str) -> None:
        shards = [shard for shard in index.shards if shard.tokens[part]]
        self.paths = [ids_path(folder, shard.number, part) for shard in shards]
        self.kind = kind_of_token(index.end)
        self.ends = np.cumsum([shard.tokens[part] for shard in shards], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def __getitem__(self, place: slice) -> Int32[np.ndarray, " tokens"]:
        start, stop, step = place.indices(len(self))
        if step != 1:
            raise ValueError("a stream of tokens has no steps")
        parts = [np.zeros(0, np.int32)]
        number = int(np.searchsorted(self.ends, start, "right"))
        while start < stop:
            first = int(self.ends[number - 1]) if number else 0
            until = min(stop, int(self.ends[number]))
            parts.append(self._read(number, start - first, until - first))
            start, number = until, number + 1
        return np.concatenate(parts)

    def _read(self, number: int, start: int, stop: int) -> Int32[np.ndarray, " tokens"]:
        """Return tokens of one shard. Raises: an unreadable or shortened file."""
        path, count = self.paths[number], stop - start
        try:
            ids = np.fromfile(path, self.kind, count, offset=start * self.kind.itemsize)
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
        if len(ids) < count:
            raise RegardError(f"{path}: damaged: it has become shorter")
        return ids.astype(np.int32)


class StoredTexts(Sequence[NDArray[np.unsignedinteger]]):
    """The token ids of each text of a part, memory-mapped.

    The system loads only the pages that a batch needs. `select` chooses texts by index.
    """

    def __init__(
        self,
        ids: UInt[np.ndarray, " tokens"],
        starts: Int64[np.ndarray, " texts"],
        lengths: Int32[np.ndarray, " texts"],
    ) -> None:
        self.ids, self.starts, self.lengths = ids, starts, lengths

    @classmethod
    def open(cls, folder: Path, index: Index, part: str) -> "StoredTexts":
        """Return the texts of a part in the only shard of a folder. Raises: a damaged part."""
        (shard,) = index.shards
        path, count = ids_path(folder, shard.number, part), shard.documents[part]
        ids = np.memmap(path, kind_of_token(index.end), mode="r")
        blocks = range(0, len(ids), BLOCK)
        ends = [start + np.flatnonzero(ids[start : start + BLOCK] == index.end) for start in blocks]
        starts = np.concatenate([[-1], *ends]) + 1
        if len(starts) - 1 != count:
            raise RegardError(
                f"{path}: damaged: {len(starts) - 1:,} texts, not {count:,}; delete {folder} to "
                "tokenise the texts again"
            )
        lengths = (np.diff(starts) - 1).astype(np.int32)
        return cls(ids.view(np.ndarray), starts[:-1], lengths)  # a slice of a memmap is slow

    def select(self, rows: Int64[np.ndarray, " rows"]) -> "StoredTexts":
        """Return the texts with these indexes."""
        return StoredTexts(self.ids, self.starts[rows], self.lengths[rows])

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, place: int) -> NDArray[np.unsignedinteger]: ...
    @overload
    def __getitem__(self, place: slice) -> list[NDArray[np.unsignedinteger]]: ...
    def __getitem__(
        self, place: int | slice
    ) -> NDArray[np.unsignedinteger] | list[NDArray[np.unsignedinteger]]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        start = self.starts[place]
        return self.ids[start : start + self.lengths[place]]
