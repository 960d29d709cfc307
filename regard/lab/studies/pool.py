"""Give jobs to a `concurrent.futures.Executor`, follow them, and run them again if workers die."""

import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core.errors import RegardError
from regard.lab.studies.eta import Running, seconds_left
from regard.lab.studies.launch import Event, Job, Launcher, Notify, Outcome, Work
from regard.lab.studies.progress import JobProgress, read_progress

ATTEMPTS = 3  # workers that may die in succession without progress of the job
DIED = (
    "its worker process died {times} times without progress: killed or out of memory{why}; "
    "run the same command again to resume from its last checkpoint"
)
#: What a worker returns: the value, an error in one line or "", and whether the error is one that
#: the arm's other seeds would repeat.
Answer = tuple[Any, str, bool]


class PoolLauncher(Launcher):
    """A launcher with an executor.

    `slots` is the maximum number of jobs in the executor (None: all), `interval` the seconds
    between two checks of their progress. `lost` has the exceptions of a future whose worker died,
    `interrupted` those for other causes, such as a lost scheduler; these do not count as attempts.
    """

    slots: int | None = None
    interval: float = 1.0
    lost: tuple[type[BaseException], ...] = ()
    interrupted: tuple[type[BaseException], ...] = ()

    @abstractmethod
    def open(self, jobs: Sequence[Job]) -> AbstractContextManager[Executor]:
        """Start the executor. When the context ends by an exception, its jobs are ended."""

    @abstractmethod
    def call(
        self, work: Work, job: Job, progress: Path
    ) -> tuple[Callable[..., Answer], tuple[Any, ...]]:
        """Return the function, and its arguments, that runs a job in a worker."""

    def progress(self, job: Job, aside: Path) -> Path:
        """Return the path of a job's progress; `aside` is a folder of this process."""
        return aside / f"{job.what}-{job.seed}-{id(job)}"

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Run the jobs and return their outcomes, in the order of the jobs."""
        if not jobs:
            return []
        with TemporaryDirectory(prefix="regard-") as aside, self.open(jobs) as executor:
            queue = _Queue(self, executor, work, notify, Path(aside), list(jobs))
            outcomes = {id(outcome.job): outcome for outcome in queue.serve()}
        return [outcomes[id(job)] for job in jobs if id(job) in outcomes]


@dataclass
class _Submitted:
    """A submitted job and its known state."""

    job: Job
    future: "Future[Answer]"
    progress: Path
    begun: float
    state: JobProgress | None = None  # the last report; None before the worker began
    first: float = 0.0  # share at the first report seen by this process, and its time
    reported: float = 0.0
    deaths: int = 0
    reached: float = -1.0  # the share at the last death
    dropped: bool = False  # forgotten, since its arm failed

    def __post_init__(self) -> None:
        self.looked = self.begun

    def running(self) -> Running:
        """Return the progress for an estimate of the remaining time."""
        done = self.state.done if self.state else 0.0
        elapsed, begun = time.monotonic() - self.begun, max(self.reported - self.begun, 0.0)
        most = self.state.most if self.state else 1.0
        return Running(self.job.arm, self.job.cost, elapsed, done, self.first, begun, most)

    def events(self) -> Iterator[Event]:
        """Yield what changed since the last call."""
        last_look, self.looked = self.looked, time.monotonic()
        now, before = read_progress(self.progress), self.state
        if now is None or now == before:
            return
        self.state, job = now, self.job
        if before is None or now.process != before.process:
            self.begun, self.first = last_look, 0.0
            if before is None:
                yield Event("started", job.arm, job.seed, 0.0)
            else:
                message = f"started again by {now.process}, from its last checkpoint"
                yield Event("restarted", job.arm, job.seed, now.done, message)
        if not self.first and now.done:
            self.first, self.reported = now.done, self.looked
        if now.warning and (before is None or now.warning != before.warning):
            yield Event("warning", job.arm, job.seed, now.done, now.warning)
        if now.done or now.message:
            yield Event("progress", job.arm, job.seed, now.done, now.message)

    def died(self) -> int:
        """Count a death of the worker; return the number of deaths since the last progress."""
        done = self.state.done if self.state else 0.0
        self.deaths = 1 if done > self.reached else self.deaths + 1
        self.reached = done
        return self.deaths


@dataclass
class _Queue:
    """The waiting and the submitted jobs of a call of `launch`."""

    launcher: PoolLauncher
    executor: Executor
    work: Work
    listener: Notify
    aside: Path
    waiting: list[Job]

    def __post_init__(self) -> None:
        self.durations: dict[str, float] = {}
        self.longest: dict[str, float] = {}  # durations without early stopping
        self.submitted: list[_Submitted] = []

    def serve(self) -> Iterator[Outcome]:
        """Submit jobs while there are slots, pass on their events, and yield their outcomes."""
        slots = self.launcher.slots or len(self.waiting)
        while self.waiting or self.submitted:
            while self.waiting and len(self.submitted) < slots:
                self._submit(_next(self.waiting, self.durations))
            futures = [one.future for one in self.submitted]
            wait(futures, self.launcher.interval, return_when=FIRST_COMPLETED)
            for one in list(self.submitted):
                if one.dropped:  # during this iteration
                    continue
                ended = one.future.done()  # before the last report is read
                for event in one.events():
                    self._notify(event)
                if ended and (outcome := self._outcome(one)):
                    self.submitted.remove(one)
                    one.progress.unlink(missing_ok=True)
                    self._notify_end(outcome)
                    yield outcome

    def _submit(self, job: Job) -> None:
        path = self.launcher.progress(job, self.aside)
        path.unlink(missing_ok=True)  # of an earlier process
        self.submitted.append(_Submitted(job, self._future(job, path), path, time.monotonic()))

    def _future(self, job: Job, progress: Path) -> "Future[Answer]":
        function, arguments = self.launcher.call(self.work, job, progress)
        return self.executor.submit(function, *arguments)

    def _outcome(self, one: _Submitted) -> Outcome | None:
        """Return the outcome of a job that ended; None if it runs again."""
        same_for_arm = False
        try:
            value, error, same_for_arm = one.future.result()
        except self.launcher.interrupted:
            one.future = self._future(one.job, one.progress)
            return None
        except self.launcher.lost as exception:
            if (times := one.died()) < ATTEMPTS:
                one.future = self._future(one.job, one.progress)
                return None
            why = f" ({exception})" if str(exception) else ""
            value, error = None, DIED.format(times=times, why=why)
        except RegardError as exception:
            value, error = None, str(exception)
        except Exception as exception:  # such as a result that cannot be unpickled
            value, error = None, f"{type(exception).__name__}: {exception}"
        if same_for_arm:
            self._drop(one.job.arm)
        seconds = time.monotonic() - one.begun
        self.durations[one.job.arm] = seconds
        self.longest[one.job.arm] = seconds * (one.state.most if one.state else 1.0)
        return Outcome(one.job, value, error, seconds)

    def _drop(self, arm: str) -> None:
        """Forget the jobs of an arm that have not begun."""
        self.waiting[:] = [job for job in self.waiting if job.arm != arm]
        for one in list(self.submitted):
            if one.job.arm == arm and one.state is None and one.future.cancel():
                one.dropped = True
                self.submitted.remove(one)

    def _notify(self, event: Event) -> None:
        begun = [one for one in self.submitted if one.state]
        others = [one.job for one in self.submitted if not one.state] + self.waiting
        running = [one.running() for one in begun]
        waiting = [(job.arm, job.cost) for job in others]
        slots = self.launcher.slots or max(len(begun), 1)
        typical = seconds_left(running, waiting, self.durations, slots)
        most = seconds_left([one.longest for one in running], waiting, self.longest, slots)
        left = None if typical is None or most is None else (typical, max(typical, most))
        self.listener(replace(event, left=left))

    def _notify_end(self, outcome: Outcome) -> None:
        job = outcome.job
        if outcome.error:
            self._notify(Event("failed", job.arm, job.seed, 1.0, outcome.error))
        else:
            value = f"{outcome.value}, " if isinstance(outcome.value, str) else ""
            message = f"{value}{outcome.seconds:.1f} s"
            self._notify(Event("finished", job.arm, job.seed, 1.0, message))


def _next(waiting: list[Job], durations: dict[str, float]) -> Job:
    lowest = min(job.seed for job in waiting)
    ready = [job for job in waiting if job.seed == lowest]
    job = max(ready, key=lambda job: durations.get(job.arm, job.cost))
    waiting.remove(job)
    return job
