"""Streams of tokens on the disk, written once in shards and read in slices.

A folder holds the ids of each source file and split, ``00012.train.ids`` (uint16, or uint32 for
vocabularies above 65,536), every document followed by an end token; ``00012.json``, the counts and
hashes of that source, written when its ids are complete; and ``index.json``, all of these, written
when all sources are. No file stays open: there may be more shards than a process may open.
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from jaxtyping import Int32

from regard.core.atomic_io import one_line_errors, partial_path, sync_folder, write_json
from regard.core.errors import RegardError
from regard.core.reading import checked, read_json

INDEX: Final = "index.json"
SPLITS: Final = ("train", "validation", "test")
BLOCK = 1 << 22  # bytes hashed at once


@dataclass(frozen=True)
class Shard:
    """The tokens of a source file: documents, tokens and a sha256 of the ids, by split."""

    number: int
    source: str
    documents: dict[str, int]
    tokens: dict[str, int]
    sha256: dict[str, str]

    def path(self, folder: Path, split: str) -> Path:
        """Return the file of a split's ids."""
        return ids_path(folder, self.number, split)


@dataclass(frozen=True)
class Index:
    """All shards of a folder, in order, and the type of a token."""

    dtype: Literal["uint16", "uint32"]
    shards: list[Shard]

    def total(self, what: Literal["documents", "tokens"], split: str) -> int:
        """Return the number of documents or tokens of a split."""
        return sum(getattr(shard, what)[split] for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """Return a sha256 over the hashes of all ids, in order."""
        parts = [[shard.sha256[split] for split in SPLITS] for shard in self.shards]
        return hashlib.sha256(json.dumps([self.dtype, parts]).encode()).hexdigest()


def ids_path(folder: Path, number: int, split: str) -> Path:
    """Return the file of the ids of a source, by its number."""
    return folder / f"{number:05}.{split}.ids"


def kind_of_token(largest: int) -> "np.dtype[Any]":
    """Return the smallest type that holds ids up to ``largest``.

    >>> kind_of_token(65_535).name, kind_of_token(65_536).name
    ('uint16', 'uint32')
    """
    return np.dtype("<u2" if largest < 1 << 16 else "<u4")


class ShardWriter:
    """Writes the ids of one source; `finish` makes them a complete shard.

    Raises: no space, no permission.
    """

    def __init__(self, folder: Path, number: int, source: str, end: int) -> None:
        self.folder, self.number, self.source, self.end = folder, number, source, end
        self.kind = kind_of_token(end)
        self.paths = {split: ids_path(folder, number, split) for split in SPLITS}
        self.documents, self.tokens = dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0)
        self.hashes = {split: hashlib.sha256() for split in SPLITS}
        with ExitStack() as stack, one_line_errors(folder, 0):
            self.files = {
                split: stack.enter_context(partial_path(path).open("wb"))
                for split, path in self.paths.items()
            }
            self.stack = stack.pop_all()

    def add(self, split: str, documents: Sequence[Sequence[int]]) -> None:
        """Append documents to a split."""
        flat = [token for ids in documents for token in (*ids, self.end)]
        data = np.array(flat, self.kind).tobytes()
        with one_line_errors(self.paths[split], len(data)):
            self.files[split].write(data)
        self.hashes[split].update(data)
        self.documents[split] += len(documents)
        self.tokens[split] += len(flat)

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
        digests = {split: digest.hexdigest() for split, digest in self.hashes.items()}
        shard = Shard(self.number, self.source, self.documents, self.tokens, digests)
        write_json(shard_path(self.folder, self.number), asdict(shard))
        return shard

    def abandon(self) -> None:
        """Remove the incomplete files."""
        self.stack.close()
        for path in self.paths.values():
            partial_path(path).unlink(missing_ok=True)


def shard_path(folder: Path, number: int) -> Path:
    """Return the description of a source's ids."""
    return folder / f"{number:05}.json"


def finished_shard(folder: Path, number: int, kind: "np.dtype[Any]") -> Shard | None:
    """Return the shard of a source; None if it is not complete."""
    try:
        shard = checked(Shard, read_json(shard_path(folder, number)), shard_path(folder, number))
        _must_have_its_sizes(folder, shard, kind)
    except RegardError:
        return None
    return shard


def write_index(folder: Path, kind: "np.dtype[Any]", shards: Sequence[Shard]) -> None:
    """Declare the folder complete."""
    write_json(folder / INDEX, asdict(Index(kind.name, list(shards))))  # type: ignore[arg-type]


def open_index(folder: Path) -> Index:
    """Return the index of a complete folder. Raises: a missing file or a wrong size."""
    path = folder / INDEX
    try:
        index = checked(Index, read_json(path), path)
        for shard in index.shards:
            _must_have_its_sizes(folder, shard, np.dtype(index.dtype))
    except (RegardError, KeyError) as error:
        raise RegardError(f"{error}; delete {folder} to tokenise the texts again") from None
    return index


def must_have_its_hashes(folder: Path, index: Index) -> None:
    """Read all ids and compare their hashes. Raises: a different hash."""
    for shard in index.shards:
        for split in SPLITS:
            path, digest = shard.path(folder, split), hashlib.sha256()
            with path.open("rb", buffering=0) as file:
                while block := file.read(BLOCK):
                    digest.update(block)
            if digest.hexdigest() != shard.sha256[split]:
                raise RegardError(
                    f"{path}: damaged: its sha256 differs from the one in {INDEX}; delete {folder} "
                    "to tokenise the texts again"
                )


def _must_have_its_sizes(folder: Path, shard: Shard, kind: "np.dtype[Any]") -> None:
    for split in SPLITS:
        path, due = shard.path(folder, split), shard.tokens[split] * kind.itemsize
        try:
            size = path.stat().st_size
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
        if size != due:
            raise RegardError(f"{path}: damaged: {size:,} bytes, not {due:,}")


class TokenStream:
    """The tokens of a split, one shard after another, read from the disk on access.

    A slice is an array in memory; only its own pages are read.
    """

    def __init__(self, folder: Path, index: Index, split: str) -> None:
        shards = [shard for shard in index.shards if shard.tokens[split]]
        self.paths = [shard.path(folder, split) for shard in shards]
        self.kind = np.dtype(index.dtype).newbyteorder("<")
        self.ends = np.cumsum([shard.tokens[split] for shard in shards], dtype=np.int64)

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
        path, size = self.paths[number], self.kind.itemsize
        try:
            with path.open("rb") as file:
                file.seek(start * size)
                data = file.read((stop - start) * size)
        except OSError as error:
            raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None
        if len(data) < (stop - start) * size:
            raise RegardError(f"{path}: damaged: it has become shorter")
        return np.frombuffer(data, self.kind).astype(np.int32)


def streams(folder: Path, index: Index) -> Mapping[str, TokenStream]:
    """Return the stream of each split."""
    return {split: TokenStream(folder, index, split) for split in SPLITS}
