"""Run many jobs by a launcher; a failed job does not stop the others.

`launch` runs them in processes of this machine (`regard.lab.studies.processes`), or by the launcher
that `regard.lab.studies.launchers.parse_launcher` makes of ``--launch``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol


class Report(Protocol):
    """A function by which work reports the share that is done, a short message and a warning.

    `done` is the share of the work's typical duration; the work takes at most `most` times as long.
    """

    def __call__(self, done: float, message: str, warning: str = "", most: float = 1.0) -> None: ...


Work = Callable[[Any, Report], Any]


@dataclass(frozen=True)
class Job:
    """One unit of work: an arm, a seed, the argument of the work function and a guessed cost.

    `task` must be picklable. `cost` only orders the jobs. `what` says what `seed` numbers: seeds,
    or the trials of a search.
    """

    arm: str
    seed: int
    task: Any
    cost: float = 1.0
    what: Literal["seed", "trial"] = "seed"


@dataclass(frozen=True)
class Event:
    """A change in a job's state; `done` is the share that is finished, `message` a short text.

    "kept" is a job that an earlier call completed, "restarted" one whose worker was replaced.
    "extended" is no job: the message says why a comparison needs more seeds than `seed`.
    `total` is the number of jobs, `left` the seconds until all are done, typically and at most, or
    None if they are unknown.
    """

    kind: Literal[
        "kept", "started", "progress", "warning", "restarted", "finished", "failed", "extended"
    ]
    arm: str
    seed: int
    done: float
    message: str = ""
    total: int = 0
    left: tuple[float, float] | None = field(default=None, compare=False)
    what: Literal["seed", "trial"] = "seed"

    @property
    def name(self) -> str:
        """Return the job in words.

        >>> Event("started", "cnn", 3, 0.0, what="trial").name
        'cnn, trial 3'
        """
        return f"{self.arm}, {self.what} {self.seed}"


Notify = Callable[[Event], None]


@dataclass(frozen=True)
class Outcome:
    """The result of a job: its value, or an error in one line, and the seconds it took.

    `missing` says that the error is only that the job is not finished.
    """

    job: Job
    value: Any = None
    error: str = ""
    seconds: float = 0.0
    missing: bool = False


class Launcher(ABC):
    """A place where jobs run."""

    @abstractmethod
    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Run the jobs and return their outcomes; see `launch`."""


def launch(
    jobs: Sequence[Job],
    work: Work,
    launcher: Launcher | None = None,
    on_event: Notify | None = None,
) -> list[Outcome]:
    """Run ``work(job.task, report)`` for every job; return the outcomes in the order of the jobs.

    `work` must be a module-level function, since workers import it. It calls ``report(share,
    message)`` or ``report(share, message, warning)``. Low seeds run first, so that an interrupted
    comparison is balanced. Within a seed, the longest job runs first, by the time of the arm's
    earlier seeds or else by its guessed cost. A RegardError cancels the arm's other seeds; any
    other error ends only that job. A job whose worker dies runs again, and ends if workers die
    `regard.lab.studies.pool.ATTEMPTS` times without progress between.

    Without a `launcher` the jobs run in local processes, one for each core. On Ctrl-C, or if
    `on_event` raises, the jobs are ended before the exception propagates.
    Raises: processes that cannot start; as the launcher.
    """
    from regard.lab.studies.processes import Local

    return (launcher or Local()).run(jobs, work, on_event or (lambda event: None))
