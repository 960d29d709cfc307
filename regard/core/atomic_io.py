"""Atomic files: written under a temporary name, flushed to the disk, renamed.

A process may be killed, and a machine may lose power, between any two instructions. A later reader
sees the old file, no file, or the new one; never a part.
"""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from regard.core.errors import LockedError, RegardError
from regard.core.reading import read_bytes, read_json

MANIFEST = "MANIFEST.json"
MOST = 1 << 40  # maximum bytes of a file with a known hash
PARTIAL = ".partial"
DROPPED = ".dropped"
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_bytes(path: Path, data: bytes) -> None:
    """Write data to path atomically. Raises: no space, no permission, in one line."""
    with replacing(path, len(data)) as aside:
        write_through(aside, data)


@contextmanager
def replacing(path: Path, size: int = 0) -> Iterator[Path]:
    """Yield a temporary path to write and flush; at the end of the context it replaces ``path``.

    Raises: as `write_bytes`. After an error the temporary file is deleted.
    """
    aside = partial_path(path)
    with one_line_errors(path, size):
        try:
            yield aside
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value to path as JSON: UTF-8, indented by two spaces, no NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    write_bytes(path, (text + "\n").encode())


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of files to path atomically, with a manifest of their hashes.

    Raises: no space or no permission, in one line with the required space. A partial folder is
    removed, and the folders next to it are unchanged.
    """
    aside = partial_path(path)
    with one_line_errors(path, sum(map(len, files.values()))):
        try:
            complete_folder(aside, path, write_part(aside, files))
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise


def write_part(aside: Path, files: Mapping[str, bytes]) -> dict[str, Any]:
    """Write some files into the temporary folder of a folder; return their manifest."""
    aside.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (aside / name).parent.mkdir(exist_ok=True)
        write_through(aside / name, data)
    return {name: entry(data) for name, data in files.items()}


def complete_folder(aside: Path, path: Path, manifest: Mapping[str, Any]) -> None:
    """Complete a folder whose files are all in ``aside``: add the manifest, then rename it."""
    write_through(aside / MANIFEST, json.dumps(dict(manifest), indent=2).encode())
    sync_folder(aside)
    os.rename(aside, path)
    sync_folder(path.parent)


def read_folder(path: Path) -> dict[str, bytes]:
    """Return the files of a folder written by `write_folder`, each verified by its hash.

    Raises: as `check_folder`.
    """
    return {name: read_bytes(path / name, MOST) for name in check_folder(path)}


def check_folder(path: Path) -> list[str]:
    """Return the names of the files of a folder, each verified by its hash.

    Raises: a file that is missing, not in the manifest, or of another hash; the line names it.
    """
    manifest = read_json(path / MANIFEST)
    try:
        there = {each.name for each in path.iterdir() if not each.name.startswith(".")}
    except OSError as error:
        raise RegardError(f"{path} cannot be read: {error.strerror or error}") from None
    if odd := sorted(there ^ {MANIFEST, *manifest}):
        raise RegardError(f"{path} is damaged: {odd[0]!r} is missing, or not in {MANIFEST}")
    for name in manifest:
        if not (path / name).is_file():  # reading a pipe would block
            raise RegardError(f"{path / name} cannot be read: it is not a file")
        try:
            with (path / name).open("rb") as file:
                hashed = hashlib.file_digest(file, "sha256").hexdigest()
                size = file.tell()
        except OSError as error:
            raise RegardError(f"{path / name} cannot be read: {error.strerror or error}") from None
        if manifest[name] != {"sha256": hashed, "bytes": size}:
            raise RegardError(f"{path} is damaged: {name} differs from its hash in {MANIFEST}")
    return list(manifest)


def partial_path(path: Path, process: int = 0) -> Path:
    """Return this (or another) process's temporary path for a file: ``.step-4.PID.partial``."""
    return path.with_name(f".{path.name}.{process or os.getpid()}{PARTIAL}")


def make_folder(path: Path) -> None:
    """Make a folder and those above it. Raises: a file of that name; no permission."""
    with one_line_errors(path, 0):
        path.mkdir(parents=True, exist_ok=True)


def remove_folder(path: Path) -> None:
    """Remove a folder atomically: it is renamed first."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{DROPPED}")
    if not path.exists():
        return
    with one_line_errors(path, 0):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files of killed processes. No other process may be writing."""
    for leftover in [*folder.glob(f".*{PARTIAL}"), *folder.glob(f".*{DROPPED}")]:
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def entry(data: bytes) -> dict[str, Any]:
    """Return a manifest's entry for one file.

    >>> entry(b"")["bytes"], entry(b"")["sha256"][:8]
    (0, 'e3b0c442')
    """
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@contextmanager
def one_line_errors(path: Path, size: int) -> Iterator[None]:
    """Convert an `OSError` while writing into a one-line `RegardError` with the remedy."""
    try:
        yield
    except OSError as error:
        says = f"cannot write {path}: {error.strerror or error}"
        if error.errno in FORBIDDEN:
            raise RegardError(f"{says}; give a folder that may be written") from error
        if error.errno not in FULL:
            raise RegardError(f"{says}; give another place") from error
        try:
            room = f", {shutil.disk_usage(path.parent).free / 1e6:,.1f} MB are free there"
        except OSError:
            room = ""
        raise RegardError(
            f"{says}; it needs {size / 1e6:,.1f} MB{room}. Existing files are unchanged: "
            "make room and run the same command again"
        ) from error


def write_through(path: Path, data: bytes) -> None:
    """Write a file and flush it to the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, where the system supports it."""
    if os.name == "nt":  # folders cannot be opened there; the rename is durable by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def configuration() -> Path:
    """Return the configuration folder: ``regard`` in ``XDG_CONFIG_HOME`` or ``~/.config``."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "regard"


@contextmanager
def locked(file: Path, *, wait: bool) -> Iterator[None]:
    """Hold a lock file, which has this process's id; the system frees the lock of a dead process.

    With `wait`, wait for the present holder; without it, raise a LockedError with the holder's id.
    """
    try:
        import fcntl
    except ImportError:  # Windows: no lock there
        yield
        return
    with one_line_errors(file, 0):
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            owner = os.pread(handle, 20, 0).decode(errors="replace").strip() or "another"
            raise LockedError(
                f"process {owner} is writing to {file.parent}; wait for it or give another --out"
            ) from None
        with one_line_errors(file, 20):
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)
