"""Files that are whole or not there: written aside, flushed to the disk, renamed.

A process may be killed, and a machine may lose power, between any two instructions. Whoever reads
later sees the old file, or no file, or the new one; never a part.
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

from regard.errors import RegardError
from regard.reading import read_bytes, read_json

MANIFEST = "MANIFEST.json"
MOST = 1 << 40  # bytes of a file whose hash is known
PARTIAL = ".partial"
DROPPED = ".dropped"
FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)


def write_bytes(path: Path, data: bytes) -> None:
    """Put data at path, all of it or nothing. Errors: no space, no permission, in one line."""
    aside = beside(path)
    with told(path, len(data)):
        try:
            write_through(aside, data)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Put a value at path as JSON: UTF-8, two spaces, no NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)
    write_bytes(path, (text + "\n").encode())


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Put a folder of files at path, with a manifest of their hashes: all of it or nothing.

    Errors: no space or no permission, in one line that says how much was needed. What was begun
    is then removed, and the folders beside it are as they were.
    """
    aside = beside(path)
    with told(path, sum(map(len, files.values()))):
        try:
            aside.mkdir(parents=True)
            for name, data in files.items():
                write_through(aside / name, data)
            manifest = {name: entry(data) for name, data in files.items()}
            write_through(aside / MANIFEST, json.dumps(manifest, indent=2).encode())
            sync_folder(aside)
            os.rename(aside, path)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        sync_folder(path.parent)


def read_folder(path: Path) -> dict[str, bytes]:
    """The files of a folder that `write_folder` wrote, each compared with its hash.

    Errors: a file missing, one that the manifest does not name, or of another hash; the line names
    it.
    """
    manifest = read_json(path / MANIFEST)
    try:
        there = {each.name for each in path.iterdir() if not each.name.startswith(".")}
    except OSError as error:
        raise RegardError(f"{path} cannot be read: {error.strerror or error}") from None
    if odd := sorted(there ^ {MANIFEST, *manifest}):
        raise RegardError(f"{path} is damaged: {odd[0]!r} is missing, or not in {MANIFEST}")
    files = {name: read_bytes(path / name, MOST) for name in manifest}
    if broken := [name for name, data in files.items() if entry(data) != manifest[name]]:
        raise RegardError(f"{path} is damaged: {broken[0]} differs from its hash in {MANIFEST}")
    return files


def beside(path: Path) -> Path:
    """Where this process writes before the rename: ``.step-4.PID.partial`` for ``step-4``."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def remove_folder(path: Path) -> None:
    """Remove a folder, so that nobody ever sees a part of it under its name."""
    aside = path.with_name(f".{path.name}.{os.getpid()}{DROPPED}")
    if not path.exists():
        return
    with told(path, 0):
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left aside. Call it only where nobody else writes."""
    for leftover in [*folder.glob(f".*{PARTIAL}"), *folder.glob(f".*{DROPPED}")]:
        if leftover.is_dir():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()


def entry(data: bytes) -> dict[str, Any]:
    """A manifest's row for one file.

    >>> entry(b"")["bytes"], entry(b"")["sha256"][:8]
    (0, 'e3b0c442')
    """
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


@contextmanager
def told(path: Path, size: int) -> Iterator[None]:
    """Turn the operating system's refusal to write into a line that says what to do."""
    try:
        yield
    except OSError as error:
        says = f"cannot write {path}: {error.strerror or error}"
        if error.errno in FORBIDDEN:
            raise RegardError(f"{says}; give a folder that may be written") from error
        try:
            room = f", {shutil.disk_usage(path.parent).free / 1e6:,.1f} MB are free there"
        except OSError:
            room = ""
        raise RegardError(
            f"{says}; it needs {size / 1e6:,.1f} MB{room}. What was there before is untouched: "
            "make room and run the same command again"
        ) from error


def write_through(path: Path, data: bytes) -> None:
    """Write a file and wait until the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk knows the names in a folder, where the system can say so."""
    if os.name == "nt":  # folders cannot be opened there; the rename is durable by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def configuration() -> Path:
    """Return the user's folder of regard's own files: ``regard`` in ``XDG_CONFIG_HOME``, by default
    in ``~/.config``."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "regard"
