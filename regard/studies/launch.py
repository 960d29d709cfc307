"""Run many jobs in a few processes with one thread each; a failed job does not stop others.

Every worker is a `concurrent.futures` executor with one spawned process, so that the job of a
process that dies (killed, out of memory) is known; a new process replaces it. Every worker sends
progress through its own pipe, so that a process that dies while writing does not corrupt the
messages of another.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection, get_context, parent_process
from typing import Any, Literal, Protocol

from regard.errors import RegardError
from regard.studies.eta import Running, seconds_left

_LIBRARIES = ["OMP", "MKL", "OPENBLAS", "NUMEXPR", "RAYON"]
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {
    "TOKENIZERS_PARALLELISM": "false"
}
POLL_INTERVAL = 0.1  # seconds between checks for finished jobs
REPORT_INTERVAL = 0.2  # least seconds between two progress messages of one worker
DIED = (
    "its worker process died: killed or out of memory; "
    "run the same command again to resume from its last checkpoint"
)


class Report(Protocol):
    """A function by which work reports the share that is done, a short message and a warning."""

    def __call__(self, done: float, message: str, warning: str = "") -> None: ...


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

    "kept" is a job that an earlier call completed. `total` is the number of jobs, `left` the
    estimated seconds until all are done, or None.
    """

    kind: Literal["kept", "started", "progress", "warning", "finished", "failed"]
    arm: str
    seed: int
    done: float
    message: str = ""
    total: int = 0
    left: float | None = field(default=None, compare=False)
    what: Literal["seed", "trial"] = "seed"

    @property
    def name(self) -> str:
        """Return the job in words.

        >>> Event("started", "cnn", 3, 0.0, what="trial").name
        'cnn, trial 3'
        """
        return f"{self.arm}, {self.what} {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The result of a job: its value, or an error in one line, and the seconds it took."""

    job: Job
    value: Any = None
    error: str = ""
    seconds: float = 0.0


def launch(
    jobs: Sequence[Job],
    work: Work,
    *,
    workers: int | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> list[Outcome]:
    """Run ``work(job.task, report)`` for every job; return the outcomes in the order of the jobs.

    `work` must be a module-level function, since workers import it. It calls ``report(share,
    message)`` or ``report(share, message, warning)``. Low seeds run first, so that an interrupted
    comparison is balanced. Within a seed, the longest job runs first, by the time of the arm's
    earlier seeds or else by its guessed cost. A RegardError cancels the arm's other seeds; any
    other error, or the death of a worker, ends only that job.

    On Ctrl-C, or if `on_event` raises, the workers are killed before the exception propagates. They
    exit when this process dies. Errors: ``workers`` below 1; processes that cannot start.
    """
    if workers is not None and workers < 1:
        raise RegardError(f"workers={workers}: a comparison needs at least one")
    notify = on_event or (lambda event: None)
    pool: list[_Worker] = []
    try:
        with _environment(ONE_THREAD):
            for _ in range(min(workers or os.cpu_count() or 1, len(jobs))):
                pool.append(_Worker())
            for worker in pool:
                worker.open()
        outcomes = {id(outcome.job): outcome for outcome in _serve(list(jobs), work, pool, notify)}
    except BaseException:
        for worker in pool:
            worker.kill()
        raise
    finally:
        for worker in pool:
            worker.close()
    return [outcomes[id(job)] for job in jobs if id(job) in outcomes]


def _serve(
    waiting: list[Job], work: Work, pool: Sequence["_Worker"], notify: Callable[[Event], None]
) -> Iterator[Outcome]:
    """Assign jobs to free workers, pass on their events, and yield the outcome of each job."""
    durations: dict[str, float] = {}

    def with_time_left(event: Event) -> None:
        running = [worker.running() for worker in pool if worker.job]
        others = [(job.arm, job.cost) for job in waiting]
        notify(replace(event, left=seconds_left(running, others, durations, len(pool))))

    while waiting or any(worker.job for worker in pool):
        for worker in pool:
            if worker.job is None and waiting:
                job = _next(waiting, durations)
                worker.assign(work, job)
                with_time_left(Event("started", job.arm, job.seed, 0.0))
        connection.wait([worker.pipe for worker in pool if worker.job], POLL_INTERVAL)
        for worker in pool:
            ended = worker.future is not None and worker.future.done()
            for (
                event
            ) in worker.events():  # read after `ended`, so that none is taken for the next job's
                with_time_left(event)
            if worker.job is None or not ended:
                continue
            outcome = worker.outcome(worker.job)
            durations[outcome.job.arm] = outcome.seconds
            if isinstance(outcome.value, RegardError):
                waiting[:] = [job for job in waiting if job.arm != outcome.job.arm]
            _notify_end(with_time_left, outcome)
            yield outcome


def _next(waiting: list[Job], durations: dict[str, float]) -> Job:
    lowest = min(job.seed for job in waiting)
    ready = [job for job in waiting if job.seed == lowest]
    job = max(ready, key=lambda job: durations.get(job.arm, job.cost))
    waiting.remove(job)
    return job


def _notify_end(notify: Callable[[Event], None], outcome: Outcome) -> None:
    job = outcome.job
    if outcome.error:
        notify(Event("failed", job.arm, job.seed, 1.0, outcome.error))
    else:
        value = f"{outcome.value}, " if isinstance(outcome.value, str) else ""
        notify(Event("finished", job.arm, job.seed, 1.0, f"{value}{outcome.seconds:.1f} s"))


@dataclass
class _Worker:
    """A worker process with its pipe and its current job."""

    executor: ProcessPoolExecutor = field(init=False)
    pipe: Any = field(init=False)
    pid: int = 0
    job: Job | None = None
    future: "Future[tuple[Any, str]] | None" = None
    begun: float = 0.0
    shares: list[float] = field(default_factory=list)  # done so far: the first report and the last

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start the process without waiting for it, so that several start at once."""
        context = get_context("spawn")
        self.pipe, self.writer = context.Pipe(duplex=False)
        self.executor = ProcessPoolExecutor(1, context, _begin_worker, (self.writer,))
        self.ready = self.executor.submit(os.getpid)

    def open(self) -> None:
        """Wait until the process has started. Errors: it cannot start."""
        try:
            self.pid = self.ready.result()
        except BrokenProcessPool:
            raise RegardError(
                "worker processes cannot start; a script that compares must do so under "
                "if __name__ == '__main__':, as every worker imports it"
            ) from None
        self.writer.close()  # the pipe then ends when the worker dies

    def replace(self) -> None:
        """Replace a dead process by a new one."""
        self.close()
        with _environment(ONE_THREAD):
            self.start()
            self.open()

    def assign(self, work: Work, job: Job) -> None:
        """Assign a job; replace the process first if it is dead."""
        try:
            self.future = self.executor.submit(_run, work, job.task)
        except BrokenProcessPool:
            self.replace()
            self.future = self.executor.submit(_run, work, job.task)
        self.job, self.begun, self.shares = job, time.monotonic(), [0.0]

    def running(self) -> Running:
        """Return the progress of the current job."""
        assert self.job is not None
        elapsed = time.monotonic() - self.begun
        return Running(self.job.arm, self.job.cost, elapsed, self.shares[-1], self.shares[0])

    def events(self) -> Iterator[Event]:
        """Yield the events received since the last call."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                done, message, warning = self.pipe.recv()
                if self.job:
                    self.shares = [self.shares[0] or done, done]
                    arm, seed = self.job.arm, self.job.seed
                    if warning:
                        yield Event("warning", arm, seed, done, warning)
                    yield Event("progress", arm, seed, done, message)

    def outcome(self, job: Job) -> Outcome:
        """Return the outcome of the finished job, and free the worker."""
        future, seconds = self.future, time.monotonic() - self.begun
        self.job = self.future = None
        assert future is not None
        try:
            value, error = future.result()
        except BrokenProcessPool:
            value, error = None, DIED
        except Exception as exception:  # the result cannot be unpickled
            value, error = None, f"{type(exception).__name__}: {exception}"
        return Outcome(job, value, error, seconds)

    def kill(self) -> None:
        """Kill the process; writes to run folders are atomic, so that no file is damaged."""
        if self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """End the process after its job."""
        self.executor.shutdown(cancel_futures=True)
        self.pipe.close()
        self.writer.close()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables that processes started inside inherit before they import."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# In the worker process.

_pipe: Any = None


def _begin_worker(pipe: Any) -> None:
    global _pipe
    _pipe = pipe
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _run(work: Work, task: Any) -> tuple[Any, str]:
    """Return the value of the work and "", or the error in one line; both can be pickled."""
    last = 0.0

    def report(done: float, message: str, warning: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if warning or now - last >= REPORT_INTERVAL:
            last = now
            _pipe.send((done, message, warning))

    try:
        return work(task, report), ""
    except RegardError as error:
        return RegardError(str(error)), str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
