"""Let each write of a training fail in turn; the resumed training must end with the same weights.

    python -m benchmarks.faults --out faults.json

The training is that of `benchmarks.kills`. Its writes are counted once: every opening of a
file to write, every write, flush to the disk, rename and new folder. Then the training
is started once for each; in the n-th training the n-th write is refused as by a full disk (ENOSPC)
or a broken one (EIO). The error must be one line, or the write unnecessary; and a training that is
restarted in the same folder must end like an undisturbed one.
"""

import argparse
import errno
import io
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.kills import (
    MODEL,
    PATIENCE,
    SETTINGS,
    begin,
    fingerprint,
    finish,
    read_texts,
    tallied,
    train,
)
from regard.core.errors import RegardError

SAID, WENT_ON, TRACEBACK = 0, 3, 4  # how a process ended
KINDS = {"ENOSPC": errno.ENOSPC, "EIO": errno.EIO}


@dataclass
class Tally:
    """The counts of events. `tracebacks`, `mismatches` and `stuck` must be 0."""

    writes: int = 0
    trainings: int = 0
    said: int = 0
    went_on: int = 0
    tracebacks: int = 0
    mismatches: int = 0
    stuck: int = 0
    seconds: float = 0.0
    reference: str = ""
    settings: list[str] = field(default_factory=lambda: [MODEL, *SETTINGS])


class Disk:
    """Counts the writes below a folder, and refuses one of them with a system error."""

    def __init__(self, folder: Path, refused: int, number: int) -> None:
        self.folder, self.refused, self.number = str(folder), refused, number
        self.writes = 0

    def write(self, path: object) -> None:
        """Count a write to a path. Raises: it is the one that is refused."""
        if isinstance(path, int) or not str(path).startswith(self.folder):
            return
        self.writes += 1
        if self.writes == self.refused:
            raise OSError(self.number, os.strerror(self.number), str(path))

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Open files and change folders through this disk, in this context."""
        opened, synced = io.open, os.fsync

        def open_(file: Any, mode: str = "r", *rest: Any, **more: Any) -> Any:
            found = opened(file, mode, *rest, **more)
            if not set(mode) & set("wax+") or not str(file).startswith(self.folder):
                return found
            try:
                self.write(file)
            except OSError:
                found.close()
                raise
            return _Writes(found, self, file)

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def asked(path: Any, *rest: Any, **more: Any) -> Any:
                self.write(path)
                return call(path, *rest, **more)

            return asked

        def fsync(handle: int) -> None:
            self.write(os.readlink(f"/proc/self/fd/{handle}"))
            synced(handle)

        refusing: dict[str, Any] = {
            name: counted(getattr(os, name)) for name in ("replace", "rename", "mkdir")
        }
        with patch.object(io, "open", open_), patch.multiple(os, fsync=fsync, **refusing):
            yield


class _Writes:
    """A file with counted writes."""

    def __init__(self, file: Any, disk: Disk, path: object) -> None:
        self._file, self._disk, self._path = file, disk, path

    def write(self, data: Any) -> Any:
        self._disk.write(self._path)
        return self._file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "_Writes":
        self._file.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._file.__exit__(*error)


def attack(place: Path, every: int = 1) -> Tally:
    """Refuse every write in turn (or each ``every``-th)."""
    read_texts(SETTINGS)
    begun = time.monotonic()
    undisturbed, counted = place / "undisturbed", place / "counted"
    finish(begin(undisturbed))
    tally = Tally(reference=fingerprint(undisturbed))
    disk = Disk(counted, 0, 0)
    with disk.mounted():
        train(counted)
    tally.writes = disk.writes
    for kind in KINDS.values():
        for refused in range(1, tally.writes + 1, every):
            folder = place / f"training-{tally.trainings}"
            _count(tally, _ended(folder, refused, kind))
            _resume(tally, folder)
            shutil.rmtree(folder, ignore_errors=True)
    tally.seconds = time.monotonic() - begun
    return tally


def _resume(tally: Tally, folder: Path) -> None:
    """Train to the end, and compare."""
    tally.trainings += 1
    try:
        finish(begin(folder))
        tally.mismatches += fingerprint(folder) != tally.reference
    except RegardError:
        tally.stuck += 1


def _count(tally: Tally, code: int | None) -> None:
    tally.said += code == SAID
    tally.went_on += code == WENT_ON
    tally.tracebacks += code not in (SAID, WENT_ON)


def _ended(folder: Path, refused: int, kind: int) -> int | None:
    process = multiprocessing.get_context("fork").Process(
        target=_train, args=(folder, refused, kind)
    )
    process.start()
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def _train(folder: Path, refused: int, kind: int) -> None:
    with Disk(folder, refused, kind).mounted():
        try:
            train(folder)
        except RegardError as error:
            print(f"{refused}: {error}"[:200], file=sys.stderr)
            os._exit(SAID)
        except BaseException as error:
            print(f"{refused}: {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(TRACEBACK)
    os._exit(WENT_ON)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--every", type=int, default=1, help="refuse each so-many-th write only")
    return tallied(attack, parser, arguments, zero=("tracebacks", "mismatches", "stuck"))


if __name__ == "__main__":
    raise SystemExit(main())
