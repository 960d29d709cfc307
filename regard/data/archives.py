"""Zip and tar archives, read where they lie and never extracted."""

import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from regard.data.files import open_binary
from regard.data.lines import FILE_LIMIT, Binary, within
from regard.errors import RegardError

#: How members may be packed. zipfile unpacks the others without a limit, 4 kB of bzip2 to 4 GB.
READ = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DIRECTORY = 4_000_000  # bytes of a zip archive's directory; a member takes some 60
LONGEST_NAME = 255


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive to read its members by `open_member`.

    Errors, while it is open too: no zip archive; damaged, cut off, encrypted; a directory without
    end; a member that is packed by another method than stored or deflate.
    """
    with open_binary(path) as whole:
        try:
            with zipfile.ZipFile(_Whole(whole, path)) as archive:
                for member in archive.infolist():
                    if member.compress_type not in READ:
                        raise RegardError(
                            f"{path}: {member.filename!r:.80} is packed by a method that is not "
                            f"read ({member.compress_type}); pack it anew, as zip does by itself"
                        )
                yield archive
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise RegardError(f"{path}: is cut off or no zip archive ({error})") from None
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise RegardError(f"{path}: cannot be unpacked ({error})") from None


@contextmanager
def open_member(archive: zipfile.ZipFile, path: Path, name: str) -> Iterator[Binary]:
    """Open a member of the archive at ``path``.

    Errors: a name that no error could show; one that grows without measure.
    """
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise RegardError(f"{path}: a member is called {name!r:.80}; call it otherwise")
    whole: Any = archive.fp
    before = whole.done
    with archive.open(name) as file:
        yield within(file, path, lambda: whole.done - before)


def tar_files(path: Path, most_of: Callable[[str], int]) -> Iterator[tuple[str, bytes]]:
    """Stream names and contents of files in a .tar.gz archive.

    ``most_of`` says how many bytes a file of a name may have; those of 0, links, devices and
    folders are passed over. Errors: damaged, cut off; a file that is larger.
    """
    with open_binary(path) as stream:
        try:
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Member) as archive:
                for member in archive:
                    archive.members = []  # type: ignore[attr-defined]  # it would keep them all
                    most = most_of(member.name)
                    if not most or not member.isreg():
                        continue
                    if member.size > most:
                        raise RegardError(
                            f"{path.name}:{member.name}: is larger than {most:,} bytes"
                        )
                    file = archive.extractfile(member)
                    content = file.read() if file else b""
                    if len(content) != member.size:
                        raise EOFError
                    yield member.name, content
            while stream.read(1 << 20):  # to the end, where gzip keeps its checksum
                pass
        except tarfile.TarError as error:
            raise RegardError(f"{path}: is cut off or no tar archive ({error})") from None


class _Member(tarfile.TarInfo):
    """A member as its own header tells it.

    Headers that go before others, with long names or anything else, are passed over: tarfile holds
    them whole, calls itself for each, and takes minutes for a megabyte of digits. A bad header and
    a missing end are errors, where tarfile takes both for the end.
    """

    @classmethod
    def frombuf(cls, buf: Any, encoding: str | None, errors: str) -> "_Member":
        try:
            member = super().frombuf(buf, encoding, errors)  # type: ignore[arg-type]
        except tarfile.HeaderError as error:
            if buf and buf.count(0) == len(buf):  # the end
                raise
            raise tarfile.ReadError(str(error)) from None
        if not 0 <= member.size <= FILE_LIMIT:  # tarfile skips what is not there in a loop
            raise tarfile.ReadError(f"a file of {member.size:,} bytes")
        if member.type in BEFORE_OTHERS:
            member.type = PASSED_OVER
        return member


BEFORE_OTHERS = (
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
)
PASSED_OVER = b"?"  # a type of no meaning


class _Whole:
    """A file of which zipfile reads no more at once than a directory may have."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.file, self.path, self.done = file, path, 0
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Errors: more than `DIRECTORY` are asked for."""
        data = self.file.read(size) if 0 <= size <= DIRECTORY else self.file.read(DIRECTORY + 1)
        if max(size, len(data)) > DIRECTORY:
            raise RegardError(
                f"{self.path}: its directory has more than {DIRECTORY:,} bytes, so tens of "
                "thousands of members; unpack it yourself"
            )
        self.done += len(data)
        return data
