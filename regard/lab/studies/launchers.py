"""The launchers by name: ``--launch local``, ``dask``, ``dask:tcp://host:8786`` or ``none``.

``--launch none`` trains nothing and collects the finished runs; `Listing` is ``--jobs``.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from regard.core.errors import RegardError, look_up
from regard.lab.studies.launch import Job, Launcher, Notify, Outcome, Work
from regard.lab.studies.on_dask import Dask
from regard.lab.studies.processes import Local
from regard.lab.studies.progress import progress_path, read_progress
from regard.lab.studies.spec import JobSpec


def parse_launcher(text: str, workers: int | None = None) -> Launcher:
    """Return the launcher of ``NAME`` or ``NAME:options``; `workers` limits its parallel jobs.

    Raises: an unknown launcher, address, option or time; a missing package.

    >>> parse_launcher("dsk:tcp://host:8786")
    Traceback (most recent call last):
    regard.core.errors.RegardError: no launcher is called 'dsk'; did you mean dask? ...
    """
    name, _, options = (part.strip() for part in text.partition(":"))
    launcher = look_up(LAUNCHERS, name, "launcher")
    if options and name != "dask":
        raise RegardError(f"--launch {name}:{options}: {name} has no options; use --launch {name}")
    return launcher(options, workers)


class Collect(Launcher):
    """Runs nothing; reports an error with the progress of every job without a result."""

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Return an outcome with an error for every job."""
        return [Outcome(job, None, _state(JobSpec.of(work, job)), missing=True) for job in jobs]


def _state(spec: JobSpec) -> str:
    progress = read_progress(progress_path(Path(spec.folder)))
    if progress is None:
        begun = (Path(spec.folder) / "env.json").exists()
        return "missing: begun, not finished" if begun else "missing: not begun"
    return f"missing: {progress.message or 'begun'}, by {progress.process}"


class Pending(Exception):  # noqa: N818
    """The jobs that can run now, as lines of a shell."""

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__(f"{len(lines)} jobs can run now")
        self.lines = list(lines)


class Listing(Launcher):
    """Runs nothing; raises `Pending` with the commands of the jobs that can run now."""

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Raise `Pending` if there are jobs."""
        if jobs:
            raise Pending([JobSpec.of(work, job).command() for job in jobs])
        return []


LAUNCHERS: Mapping[str, Callable[[str, int | None], Launcher]] = {
    "local": lambda options, workers: Local(workers),
    "dask": Dask.parse,
    "none": lambda options, workers: Collect(),
}
