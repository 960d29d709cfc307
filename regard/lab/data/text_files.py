"""Text files by name, by pattern, or at an address for fsspec: ``s3://bucket/*.jsonl.gz``.

Addresses come only from the user, never from a file. Addresses of archives, caches and chains
(``zip://…::s3://…``) are refused.
"""

import glob
import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from regard.core.errors import RegardError, importing

#: The package that each kind of address needs in addition to fsspec.
STORES: Final[Mapping[str, str]] = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "hf": "huggingface_hub",
    "http": "aiohttp",
    "https": "aiohttp",
    "hdfs": "pyarrow",
    "sftp": "paramiko",
    "ssh": "paramiko",
    "ftp": "fsspec",
    "memory": "fsspec",
}
BLOCK = 1 << 20  # bytes read at once
AHEAD = 8 << 20  # bytes that a store sends per request
MOST_FILES = 100_000
PACKED = 4  # assumed compression ratio
PATTERN = frozenset("*?[")
HOSTED = frozenset({"hdfs", "sftp", "ssh", "ftp"})  # stores that name files without their host
#: The stores' names of a file's version, the strictest first.
VERSIONS = ("ETag", "etag", "md5Hash", "LastModified", "last_modified", "mtime", "created")


@dataclass
class TextFile:
    """A file to read, local or at an address, in the state when it was listed.

    ``version`` changes when the file does: the store's ETag, or the time of modification. ``done``
    counts the bytes read, for progress.
    """

    address: str
    size: int
    version: str
    done: int = field(default=0, compare=False)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """Return the last part of the address, without the query of a web address."""
        return Path(_without_query(self.address)).name

    @property
    def suffix(self) -> str:
        """Return the end of the name, such as ``.parquet``."""
        return Path(self.name).suffix

    @property
    def text_bytes(self) -> int:
        """Return the bytes of text in the file; for packed ones an estimate."""
        packed = self.name.lower().endswith((".gz", ".parquet"))
        return self.size * (PACKED if packed else 1)

    def open(self) -> io.BufferedReader:
        """Open the file for reading bytes; those read are added to ``done``.

        Raises: OSError, for all errors of the store.
        """
        return io.BufferedReader(_Counted(self), BLOCK)

    def must_be_unchanged(self) -> None:
        """Raise an error if the file is no longer the one that was listed."""
        if (now := files_at(self.address)) != [self]:
            what = f"{now[0].size:,} bytes now, {self.size:,} before" if now else "gone"
            raise RegardError(
                f"{self}: changed while it was read ({what}); run the same command again"
            )


class _Counted(io.RawIOBase):
    """The bytes of a file, counted; errors of a store become OSErrors."""

    def __init__(self, file: TextFile) -> None:
        super().__init__()
        self.file = file
        if is_address(file.address):
            store, path = _store(file.address)
            self.inner: Any = _tried(lambda: store.open(path, "rb", block_size=AHEAD))
        else:
            self.inner = Path(file.address).open("rb", buffering=0)  # noqa: SIM115

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data: bytes = _tried(lambda: self.inner.read(len(buffer)))
        buffer[: len(data)] = data
        self.file.done += len(data)
        return len(data)

    def seek(self, place: int, whence: int = 0) -> int:
        return int(_tried(lambda: self.inner.seek(place, whence)))

    def tell(self) -> int:
        return int(self.inner.tell())

    def close(self) -> None:
        if not self.closed and hasattr(self, "inner"):
            self.inner.close()
        super().close()


def _tried(call: Any) -> Any:
    """Call a store; convert its errors to OSErrors, which readers expect."""
    try:
        return call()
    except OSError:
        raise
    except Exception as error:  # of botocore, aiohttp, …
        raise OSError(" ".join(str(error).split())[:200] or type(error).__name__) from None


def is_address(data: str) -> bool:
    """Return whether `data` is an address such as ``s3://bucket/texts.jsonl``, not a local path."""
    return "://" in data


def is_pattern(data: str) -> bool:
    """Return whether `data` is a pattern and not the name of an existing file."""
    signs = not PATTERN.isdisjoint(_without_query(data))
    return signs and (is_address(data) or not Path(data).exists())


def _without_query(address: str) -> str:
    return address.partition("?")[0] if address.startswith(("http://", "https://")) else address


def files_at(data: str) -> list[TextFile]:
    """Return the file or, for a pattern, all files that `data` names, ordered by address.

    In a pattern ``*`` stands for any characters but ``/``, ``**`` for any folders.

    Raises: no such file; an unknown kind of address; a store that cannot be reached.
    """
    files = _remote(data) if is_address(data) else _local(data)
    if not files:
        what = "no file matches the pattern" if is_pattern(data) else "no such file"
        raise RegardError(f"{data}: {what}")
    if len(files) > MOST_FILES:
        raise RegardError(f"{data}: {len(files):,} files; the limit is {MOST_FILES:,}")
    return sorted(files, key=lambda file: file.address)


def _local(data: str) -> list[TextFile]:
    try:
        place = Path(data).expanduser()
        names = glob.glob(str(place), recursive=True) if is_pattern(str(place)) else [str(place)]
        paths = [path for path in map(Path, names) if path.exists()]
        if len(names) == 1 and paths and paths[0].is_dir():
            raise RegardError(f"{data}: is a folder; name its files, such as {data}/*.jsonl")
        listed = [(path, path.stat()) for path in paths if path.is_file()]
    except (OSError, RuntimeError, ValueError) as error:
        raise RegardError(
            f"{data}: cannot read: {getattr(error, 'strerror', None) or error}"
        ) from None
    return [TextFile(str(path), status.st_size, str(status.st_mtime_ns)) for path, status in listed]


def _remote(data: str) -> list[TextFile]:
    store, path = _store(data)

    def look() -> list[Any]:
        store.invalidate_cache()
        if is_pattern(data):
            return list(store.glob(path, detail=True).values())
        return [store.info(path)]

    try:
        infos = _tried(look)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RegardError(f"{data}: cannot read: {error.strerror or error}") from None
    scheme, _, rest = data.partition("://")
    root = rest.partition("/")[0] + "/" if scheme in HOSTED else ""
    files = []
    for info in infos:
        if info.get("type") == "file":
            version = next((str(info[key]) for key in VERSIONS if info.get(key)), "")
            name = str(info["name"])
            address = name if is_address(name) else f"{scheme}://{root}{name.lstrip('/')}"
            if info.get("size") is None:
                raise RegardError(
                    f"{address}: the server does not report its size; download it first"
                )
            files.append(TextFile(address, int(info["size"]), version))
    return files


def _store(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it. Raises: it is unavailable."""
    scheme = address.partition("://")[0]
    if scheme not in STORES or "::" in address:
        raise RegardError(
            f"{address}: unsupported address; use {', '.join(f'{name}://' for name in STORES)} "
            "or a local path"
        )
    with importing(f"{address}: reading it requires fsspec, which is not installed", "data"):
        import fsspec
    try:
        store, path = fsspec.core.url_to_fs(address)
    except ImportError:
        package = STORES[scheme]
        raise RegardError(
            f"{address}: reading {scheme}:// requires {package}, which is not installed: "
            f"pip install {package}"
        ) from None
    except Exception as error:
        raise RegardError(f"{address}: cannot read: {' '.join(str(error).split())[:200]}") from None
    return store, str(path)
