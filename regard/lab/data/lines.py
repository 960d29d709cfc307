"""Lines of text files, plain or gzip, with size limits and one-line errors."""

import codecs
import contextlib
import gzip
import io
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from regard.core.errors import RegardError
from regard.lab.data.text_files import TextFile

Binary = IO[bytes]
LINE_LIMIT = 1_000_000  # bytes; the longest IMDB review has 13,704 characters
FILE_LIMIT = 4_000_000_000  # bytes of text
GROWTH = 100  # maximum compression ratio; texts have 3 to 10
CHUNK = 8_192  # unpacked at once; zipfile reads as many packed bytes, so the ratio is accurate
SMALL = 1_200_000  # unpacked bytes that are always allowed


def path_of(given: Path | str) -> Path:
    """Return a path with ``~`` expanded. Raises: an invalid path."""
    try:
        path = Path(given).expanduser()
        path.exists()
    except (OSError, RuntimeError) as error:
        why = getattr(error, "strerror", None) or error
        raise RegardError(f"invalid path {str(given)[:60]!r}: {why}") from None
    return path


@contextlib.contextmanager
def open_binary(path: Path | TextFile) -> Iterator[Binary]:
    """Open a file, unpacking gzip; convert system and gzip errors into one-line errors."""
    try:
        if isinstance(path, Path) and path.is_dir():
            raise RegardError(f"{path}: is a folder; give a file in it")
        if (path.stat().st_size if isinstance(path, Path) else path.size) == 0:
            raise RegardError(f"{path}: the file is empty")
        with path.open("rb") if isinstance(path, Path) else path.open() as file:
            if path.name.lower().endswith((".gz", ".tgz")):
                with gzip.GzipFile(fileobj=file) as unpacked:
                    yield within(unpacked, path, file.tell)
            else:
                yield file
    except EOFError:
        raise RegardError(f"{path}: truncated; copy or download it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise RegardError(f"{path}: damaged or not a gzip file ({error})") from None
    except FileNotFoundError:
        raise RegardError(f"{path}: no such file") from None
    except OSError as error:
        raise RegardError(f"{path}: cannot read: {error.strerror or error}") from None


def within(file: Any, path: Path | TextFile, packed: Callable[[], int]) -> io.BufferedReader:
    """Read an unpacked file; ``packed`` returns the number of packed bytes read so far.

    Raises, while it is read: a compression ratio above `GROWTH` for more than `SMALL` bytes.
    """
    return io.BufferedReader(_Unpacked(file, path, packed), CHUNK)


class _Unpacked(io.RawIOBase):
    def __init__(self, file: Any, path: Path | TextFile, packed: Callable[[], int]) -> None:
        self.file, self.path, self.packed, self.done = file, path, packed, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(min(len(buffer), CHUNK))
        self.done += len(data)
        if self.done > SMALL and self.done > GROWTH * self.packed():
            raise RegardError(
                f"{self.path}: the compression ratio exceeds {GROWTH}; if that is intended, "
                "unpack the file manually"
            )
        buffer[: len(data)] = data
        return len(data)


# After a single carriage return that ends a line: not the one of \r\n, nor the first of \r\r\n,
# which ends lines that were converted twice.
_alone = re.compile(rb"(?<=\r)(?=[^\r\n]|\r[^\n])")
_alone_at_the_end = re.compile(rb"(?<=\r)(?=\r)")


class RawLines:
    """The lines of a file as bytes, with their ends: ``\\n``, ``\\r\\n`` or ``\\r`` alone.

    A line of more than ``limit`` bytes is returned in parts.
    """

    def __init__(self, file: Binary, limit: int = LINE_LIMIT) -> None:
        self.file, self.limit = file, limit
        self._ahead: deque[bytes] = deque()
        self._rest = b""

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self._ahead and not self._fill():
            raise StopIteration
        return self._ahead.popleft()

    def ahead(self) -> Iterator[bytes]:
        """Yield the next lines without consuming them, up to about ``limit`` bytes."""
        place = size = 0
        while size < self.limit and (place < len(self._ahead) or self._fill()):
            yield self._ahead[place]
            size += len(self._ahead[place])
            place += 1

    def _fill(self) -> bool:
        """Read until at least one more line is available. Return whether there is one."""
        while more := self.file.readline(self.limit + 1):
            if not self._rest and more[-1:] == b"\n" and more.find(b"\r") in (-1, len(more) - 2):
                self._ahead.append(more)
                return True
            lines = _alone.split(self._rest + more)
            whole = more[-1:] == b"\n" or len(lines[-1]) > self.limit
            self._rest = b"" if whole else lines.pop()
            if lines:
                self._ahead += lines
                return True
        lines = _alone_at_the_end.split(self._rest) if self._rest else []
        self._rest = b""
        self._ahead += lines
        return bool(lines)


class Lines:
    """The lines of a file as text with their ends, numbered from 1, with a size limit for each.

    Lines end with ``\\n``, ``\\r\\n`` or ``\\r`` alone. Bad bytes of a line that is not UTF-8 are
    replaced, and `complaint` returns the error.
    """

    def __init__(
        self, file: Binary, name: str, limit: int = LINE_LIMIT, most: int = FILE_LIMIT
    ) -> None:
        self.name, self.limit, self.most = name, limit, most
        self.number = 0
        self.read = 0
        self._spoiled: str | None = None  # the first error of the lines since `complaint`
        self._raw = RawLines(file, limit)
        self._end = self._usual_end = b""  # line ends of the last line and of the first row

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._raw)
        self.number += 1
        self.read += len(line)
        if len(line) > self.limit:
            raise RegardError(f"{self.here}: the line is longer than {self.limit:,} bytes")
        if self.read > self.most:
            raise RegardError(f"{self.here}: the file is larger than {self.most:,} bytes")
        if self.number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise RegardError(
                f"{self.here}: UTF-16, not UTF-8; save the file as UTF-8 (iconv -f utf-16 -t utf-8 "
                "FILE > NEW)"
            )
        self._end = line[-1:]
        line = line.removeprefix(codecs.BOM_UTF8)  # also where files were joined
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            byte = line[error.start]
            self._spoiled = self._spoiled or (
                f"not UTF-8 (byte 0x{byte:02x} at {error.start + 1}); save the file as UTF-8 (if "
                "it is Latin-1 or Windows-1252: iconv -f cp1252 -t utf-8 FILE > NEW)"
            )
            return line.decode(errors="replace")

    def ahead(self) -> Iterator[str]:
        """Yield the next lines without consuming them: a megabyte at most, unchecked."""
        for line in self._raw.ahead():
            yield line.removeprefix(codecs.BOM_UTF8).decode(errors="replace")

    def sound(self) -> Iterator[str]:
        """Yield the lines without their ends. Raises: the first error, by file:line."""
        for line in self:
            if problem := self.complaint():
                raise RegardError(f"{self.here}: {problem}")
            yield line.rstrip("\r\n")

    @property
    def here(self) -> str:
        return f"{self.name}:{self.number}"

    def complaint(self) -> str | None:
        """Return and clear the error of the lines since the last call, which form one row.

        It is the first encoding error, or a line end that differs from the first row's, since a
        carriage return could be part of a text or its end.
        """
        problem, self._spoiled = self._spoiled, None
        if self._end in (b"\n", b"\r"):
            self._usual_end = self._usual_end or self._end
            if self._end != self._usual_end:
                ends = {b"\n": "\\n", b"\r": "\\r alone (a carriage return)"}
                return problem or (
                    f"the line ends with {ends[self._end]}, the lines before with "
                    f"{ends[self._usual_end]}; save the file with one kind of line end"
                )
        return problem
