"""Pretrained word vectors: GloVe's text format, plain, gzip or inside the zip, or a static table.

A static table (wordllama, model2vec, StaticEmbedding) has its own tokenizer, which the network
then uses, so that words that are not in the training texts have vectors too.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.core.errors import RegardError
from regard.lab.data.archives import open_member, open_zip
from regard.lab.data.fetch import folders
from regard.lab.data.lines import LINE_LIMIT, Binary, RawLines, open_binary
from regard.lab.data.named import source_of
from regard.lab.data.titles import listed

ARCHIVE = "glove.6B.zip"
WIDTHS = (50, 100, 200, 300)

_glove = re.compile(r"glove-(\d+)")
_hub = re.compile(r"[\w.-]+/[\w.-]+(?<!\.txt)(?<!\.gz)(?<!\.zip)")


@dataclass(frozen=True)
class Vectors:
    """The pretrained vectors of some tokens."""

    matrix: NDArray[np.float32]  # (found, width)
    ids: NDArray[np.int64]  # (found,): the token of each row, as an index into the vocabulary
    width: int
    asked: int  # size of the vocabulary

    @property
    def found(self) -> int:
        """Return the number of tokens with a vector."""
        return len(self.ids)


def is_table(source: str) -> bool:
    """Return whether vectors are a table with a tokenizer, by their name: a folder, a hub name.

    >>> [is_table(x) for x in ("wordllama", "minishlab/potion-base-8M", "glove-50", "my/v.txt.gz")]
    [True, True, False, False]
    """
    path = Path(source).expanduser()
    return (
        source == "wordllama" or path.is_dir() or bool(_hub.fullmatch(source) and not path.exists())
    )


def load_vectors(
    source: Path | str, vocabulary: Sequence[str], *, data_dir: Path | str | None = None
) -> Vectors:
    """Read the vectors of a vocabulary's tokens from a file or by name, one line at a time.

    `source` is "glove-50", "glove-100", "glove-200" or "glove-300" in the folders of
    `regard.lab.data.fetch.folders` (the full file, then glove.6B.zip, then parts of the file), a
    .txt file, plain or .gz, or a member of a zip archive: ``glove.6B.zip/glove.6B.50d.txt``, or a
    static table (`is_table`), whose first rows belong to the tokens of its own tokenizer. A line
    is a word and its numbers; a header with the counts of words and numbers (word2vec) is skipped.
    A repeated word keeps its first vector.

    Raises, with file:line: a line of another width; NaN, infinity or a non-number in a vector that
    is used; a line past the limit; a truncated file; no vector for any token.
    """
    if is_table(str(source)):
        from regard.interop.sentences import load_static  # imports torch

        (weight,) = load_static(str(source)).body.parameters()
        table = weight.detach().numpy()
        known = np.arange(min(len(vocabulary), len(table)))
        return Vectors(table[known], known, table.shape[1], len(vocabulary))
    path, member = _locate(str(source), data_dir)
    wanted = {token.encode(errors="replace"): i for i, token in enumerate(vocabulary)}
    name = member or path.name
    rows: list[NDArray[np.float32]] = []
    ids: list[int] = []
    width = 0
    with _open(path, member) as file:
        for number, line in _numbered(file, name):
            here = f"{name}:{number}"
            if not width:
                if number == 1 and re.fullmatch(rb"\d+ \d+", line):
                    continue
                width = line.count(b" ")
            word = _word(line, width, here)
            token = wanted.pop(word, None)
            if token is not None:
                rows.append(_numbers(line[len(word) :], width, here))
                ids.append(token)
    if not rows:
        raise RegardError(f"{path}: no vector for any of the {len(vocabulary):,} tokens")
    return Vectors(np.stack(rows), np.array(ids, dtype=np.int64), width, len(vocabulary))


def _numbered(file: Binary, name: str) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(RawLines(file), 1):
        if len(line) > LINE_LIMIT:
            raise RegardError(f"{name}:{number}: the line is longer than {LINE_LIMIT:,} bytes")
        if line := line.strip():
            yield number, line


def _word(line: bytes, width: int, here: str) -> bytes:
    """Return the word before the numbers; some of GloVe's words contain spaces."""
    spaces = line.count(b" ")
    if spaces == width > 0:
        return line[: line.index(b" ")]
    word = line.rsplit(b" ", width)[0]
    if spaces > width > 0 and not _is_number(word.rpartition(b" ")[2]):
        return word
    expected = f"the first line has {width}" if width else "a vector is expected"
    raise RegardError(f"{here}: {spaces} numbers, but {expected}")


def _is_number(text: bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(text: bytes, width: int, here: str) -> NDArray[np.float32]:
    try:
        row = np.array(text.split(), dtype=np.float32)
    except ValueError:
        raise RegardError(f"{here}: contains a value that is not a number") from None
    if len(row) != width:
        raise RegardError(f"{here}: {len(row)} numbers, but the first line has {width}")
    finite = np.isfinite(row)
    if not finite.all():
        place = int(np.argmin(finite))
        raise RegardError(f"{here}: number {place + 1} of the vector is {row[place]}")
    return row


def _locate(source: str, data_dir: Path | str | None) -> tuple[Path, str]:
    """Return the file, and its member if the file is a zip archive."""
    if not (match := _glove.fullmatch(source)):
        archive, inside, member = source.partition(".zip/")
        return Path(archive + inside.rstrip("/")).expanduser(), member
    width = int(match[1])
    if width not in WIDTHS:
        raise RegardError(f"{source}: unknown width; GloVe has {', '.join(map(str, WIDTHS))}")
    places, stem = folders("glove", data_dir), f"glove.6B.{width}d"
    for folder in places:
        for whole in (folder / f"{stem}.txt", folder / f"{stem}.txt.gz"):
            if whole.is_file():
                return whole, ""
        if (folder / ARCHIVE).is_file():
            return folder / ARCHIVE, f"{stem}.txt"
    for folder in places:  # parts of it, such as glove.6B.50d.imdb.txt.gz
        if parts := sorted([*folder.glob(f"{stem}.*.txt"), *folder.glob(f"{stem}.*.txt.gz")]):
            return parts[0], ""
    (file,) = source_of("glove").files
    raise RegardError(
        f"{source}: neither {ARCHIVE} nor {stem}.txt is in {places[0]}; regard data fetch glove "
        f"downloads it ({file.bytes / 1e6:.0f} MB from {file.url})"
    )


@contextmanager
def _open(path: Path, member: str) -> Iterator[Binary]:
    if path.suffix.lower() != ".zip":
        with open_binary(path) as plain:
            yield plain
        return
    with open_zip(path) as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt")]
        if not member and len(names) == 1:
            member = names[0]
        if member not in names:
            raise RegardError(
                f"{path}: cannot tell which member to read; give {path}/NAME.txt; "
                f"members: {listed(names) or 'no .txt files'}"
            )
        with open_member(archive, path, member) as file:
            yield file
