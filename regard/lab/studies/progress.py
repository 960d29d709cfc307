"""The progress of a job as a small file, which any process on the same files can read.

The worker replaces the file and the launcher reads it. So all workers, local or on Dask, report
progress in the same way, and nothing is lost if worker or launcher die.
"""

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.core.errors import RegardError
from regard.core.reading import checked, read_json

FIRST_PACE, LAST_PACE = 0.2, 5.0  # minimum seconds between writes, early and late in a long job


@dataclass(frozen=True)
class JobProgress:
    """The last report of a job: its process, and what `Report` takes."""

    process: str
    done: float = 0.0
    message: str = ""
    warning: str = ""
    most: float = 1.0


class ProgressWriter:
    """Writes reports of a job to a file, at most every `FIRST_PACE` to `LAST_PACE` seconds.

    The file is not flushed to the disk: it matters only while the job runs. A report that cannot be
    written is dropped.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.process = path, process_name()
        self.begun, self.last = time.monotonic(), float("-inf")
        self.warning = ""
        self._write(JobProgress(self.process))

    def __call__(self, done: float, message: str, warning: str = "", most: float = 1.0) -> None:
        """Write a `Report`; a warning stays."""
        now = time.monotonic()
        pace = min(max(FIRST_PACE, (now - self.begun) / 100), LAST_PACE)
        if now - self.last < pace and warning in ("", self.warning):
            return
        self.last, self.warning = now, warning or self.warning
        self._write(JobProgress(self.process, done, message, self.warning, most))

    def _write(self, progress: JobProgress) -> None:
        aside = self.path.with_name(f".{self.path.name}.{self.process}")
        with suppress(OSError):
            aside.write_text(json.dumps(asdict(progress)), encoding="utf-8")
            os.replace(aside, self.path)


def read_progress(path: Path) -> JobProgress | None:
    """Return the last report of a job; None without one."""
    try:
        return checked(JobProgress, read_json(path), path)
    except RegardError:
        return None


def progress_path(folder: Path) -> Path:
    """Return the path of the progress of a run's job, next to the run's folder.

    >>> progress_path(Path("out/mean/seed-0")).name
    'seed-0.progress'
    """
    return folder.with_name(f"{folder.name}.progress")


def process_name() -> str:
    """Return the name of this process: its machine and its id."""
    return f"{socket.gethostname()}-{os.getpid()}"
