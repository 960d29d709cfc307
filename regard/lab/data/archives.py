"""Zip and tar archives, read in place and never extracted."""

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from regard.core.errors import RegardError
from regard.lab.data.lines import FILE_LIMIT, Binary, open_binary, within

#: Accepted compression methods. zipfile unpacks others without a limit: 4 kB of bzip2 to 4 GB.
READ = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DIRECTORY = 4_000_000  # bytes of a zip archive's directory; a member takes some 60
LONGEST_NAME = 255


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive to read its members by `open_member`.

    Raises, also while it is open: not a zip archive; damaged, truncated or encrypted; an oversized
    directory; a member compressed by another method than stored or deflate.
    """
    with open_binary(path) as whole:
        try:
            with zipfile.ZipFile(_Whole(whole, path)) as archive:
                for member in archive.infolist():
                    if member.compress_type not in READ:
                        raise RegardError(
                            f"{path}: {member.filename!r:.80} uses compression method "
                            f"{member.compress_type}, which is not supported; repack it with zip"
                        )
                yield archive
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise RegardError(f"{path}: truncated or not a zip archive ({error})") from None
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise RegardError(f"{path}: cannot unpack ({error})") from None


@contextmanager
def open_member(archive: zipfile.ZipFile, path: Path, name: str) -> Iterator[Binary]:
    """Open a member of the archive at ``path``.

    Raises: a name that cannot be printed; a member that expands without limit.
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise RegardError(
            f"{path}: member name {name!r:.80} is too long or not printable; rename it"
        )
    whole: Any = archive.fp
    before = whole.done
    with archive.open(name) as file:
        yield within(file, path, lambda: whole.done - before)


def tar_files(path: Path, most_of: Callable[[str], int]) -> Iterator[tuple[str, bytes]]:
    """Stream names and contents of files in a .tar.gz archive.

    ``most_of`` returns the maximum bytes of a file by its name; files with 0, links, devices and
    folders are skipped. Raises: damaged or truncated; a file that is larger.
    """
    with open_binary(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # else it keeps all
                    most = most_of(member.name)
                    if not most or not member.isreg():
                        continue
                    if member.size > most:
                        raise RegardError(f"{path.name}:{member.name}: larger than {most:,} bytes")
                    file = archive.extractfile(member)
                    content = file.read() if file else b""
                    if len(content) != member.size:
                        raise EOFError
                    yield member.name, content
            while stream.read(1 << 20):  # to the end, to verify gzip's checksum
                pass
        except tarfile.TarError as error:
            raise RegardError(f"{path}: truncated or not a tar archive ({error})") from None


class _Member(tarfile.TarInfo):
    """A tar member described by its own header only.

    Extension headers (such as long names) are skipped: tarfile reads them into memory, recurses
    into each, and takes minutes for a megabyte of digits. A bad header or a missing end is an
    error, while tarfile treats both as the end.
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: str | None, errors: str) -> "_Member":
        try:
            member = super().frombuf(buf, encoding, errors)  # type: ignore[arg-type]
        except tarfile.HeaderError as error:
            if buf and buf.count(0) == len(buf):  # the end
                raise
            raise tarfile.ReadError(str(error)) from None
        if not 0 <= member.size <= FILE_LIMIT:  # tarfile skips missing data in a loop
            raise tarfile.ReadError(f"a file of {member.size:,} bytes")
        if member.type in BEFORE_OTHERS:
            member.type = PASSED_OVER
        return member


BEFORE_OTHERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
PASSED_OVER = b"?"  # an undefined type


class _Whole:
    """A file whose single reads are limited to the maximum size of a zip directory."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.done = file, path, 0
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises: a request for more than `DIRECTORY` bytes."""
        data = self.file.read(size) if 0 <= size <= DIRECTORY else self.file.read(DIRECTORY + 1)
        if max(size, len(data)) > DIRECTORY:
            raise RegardError(
                f"{self.path}: the zip directory exceeds {DIRECTORY:,} bytes (tens of thousands "
                "of members); unpack it manually"
            )
        self.done += len(data)
        return data
