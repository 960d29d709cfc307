"""Zip archives, read where they lie and never extracted."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from regard.data.files import open_binary
from regard.errors import RegardError

#: How members may be packed. LZMA's are not read: their headers ask for gigabytes.
READ = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)


@contextmanager
def open_zip(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a zip archive to read its members.

    Errors, while it is open too: no zip archive; damaged, cut off, encrypted; a member that is
    packed by another method than stored, deflate or bzip2.
    """
    with open_binary(path) as whole:
        try:
            with zipfile.ZipFile(whole) as archive:
                for member in archive.infolist():
                    if member.compress_type not in READ:
                        raise RegardError(
                            f"{path}: {member.filename!r:.80} is packed by a method that is not "
                            f"read ({member.compress_type}); pack it anew, as zip does by itself"
                        )
                yield archive
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError) as error:
            raise RegardError(f"{path}: is cut off or no zip archive ({error})") from None
        except (NotImplementedError, RuntimeError, ValueError) as error:
            raise RegardError(f"{path}: cannot be unpacked ({error})") from None
