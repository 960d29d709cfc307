"""Run many jobs in a few processes with one thread each; a failed job does not stop others.

Every worker is a `concurrent.futures` executor of one spawned process, so that when a process dies
(killed, out of memory) it is known which job it had; a fresh worker takes its place. Workers send
progress through a pipe of their own: one that dies in the middle of a word spoils nobody else's.
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
GLANCE = 0.1  # seconds between looks at who has finished
EVERY = 0.2  # seconds between two words of progress from one worker
DIED = (
    "its worker process died: killed or out of memory; "
    "run the same command again to resume from its last checkpoint"
)


class Report(Protocol):
    """How a work function says what share of it is done, with a few words, and what to warn of."""

    def __call__(self, done: float, says: str, warning: str = "") -> None: ...


Work = Callable[[Any, Report], Any]


@dataclass(frozen=True)
class Job:
    """One piece of work: which arm, which seed, what the work function is given, a guess of cost.

    `task` must be picklable; `cost` only orders the jobs. `what` the number `seed` counts, where
    it counts trials of a search.
    """

    arm: str
    seed: int
    task: Any
    cost: float = 1.0
    what: Literal["seed", "trial"] = "seed"


@dataclass(frozen=True)
class Event:
    """What happened to a job: `done` is the share of it that is finished, `says` a few words.

    "kept" is a job of an earlier call, not done again. `total` is how many jobs there are, `left`
    the seconds that all of them will take yet, where something tells.
    """

    kind: Literal["kept", "started", "progress", "warning", "finished", "failed"]
    arm: str
    seed: int
    done: float
    says: str = ""
    total: int = 0
    left: float | None = field(default=None, compare=False)
    what: Literal["seed", "trial"] = "seed"

    @property
    def name(self) -> str:
        """The job in words.

        >>> Event("started", "cnn", 3, 0.0, what="trial").name
        'cnn, trial 3'
        """
        return f"{self.arm}, {self.what} {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What came of a job: its value, or the line that says why there is none; seconds it took."""

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
    """Run ``work(job.task, report)`` for every job; outcomes in the order of the jobs.

    `work` is a function of a module (workers import it); it calls ``report(share, says)`` as it
    goes, or ``report(share, says, warning)``. Low seeds go first, so that a comparison cut short is
    balanced, and of one seed the longest job, by what the arm's earlier seeds took or else by its
    guessed cost. A RegardError ends that arm's other seeds too; any other error, or the death of a
    worker, only that job.

    On Ctrl-C, or if `on_event` raises, the workers are ended before the exception goes on; they
    end by themselves when this process dies.
    """
    if workers is not None and workers < 1:
        raise RegardError(f"workers={workers}: a comparison needs at least one")
    tell = on_event or (lambda event: None)
    desks: list[_Desk] = []
    try:
        with _environment(ONE_THREAD):
            for _ in range(min(workers or os.cpu_count() or 1, len(jobs))):
                desks.append(_Desk())
            for desk in desks:
                desk.open()
        outcomes = {id(outcome.job): outcome for outcome in _serve(list(jobs), work, desks, tell)}
    except BaseException:
        for desk in desks:
            desk.kill()
        raise
    finally:
        for desk in desks:
            desk.close()
    return [outcomes[id(job)] for job in jobs if id(job) in outcomes]


def _serve(
    waiting: list[Job], work: Work, desks: Sequence["_Desk"], tell: Callable[[Event], None]
) -> Iterator[Outcome]:
    """Hand out jobs as desks come free, pass on what is heard, yield what comes of each."""
    took: dict[str, float] = {}

    def tell_left(event: Event) -> None:
        running = [desk.running() for desk in desks if desk.job]
        others = [(job.arm, job.cost) for job in waiting]
        tell(replace(event, left=seconds_left(running, others, took, len(desks))))

    while waiting or any(desk.job for desk in desks):
        for desk in desks:
            if desk.job is None and waiting:
                job = _next(waiting, took)
                desk.give(work, job)
                tell_left(Event("started", job.arm, job.seed, 0.0))
        connection.wait([desk.pipe for desk in desks if desk.job], GLANCE)
        for desk in desks:
            ended = desk.future is not None and desk.future.done()
            for event in desk.heard():  # after the look: nothing of this job is said of the next
                tell_left(event)
            if desk.job is None or not ended:
                continue
            outcome = desk.outcome(desk.job)
            took[outcome.job.arm] = outcome.seconds
            if isinstance(outcome.value, RegardError):
                waiting[:] = [job for job in waiting if job.arm != outcome.job.arm]
            _tell_end(tell_left, outcome)
            yield outcome


def _next(waiting: list[Job], took: dict[str, float]) -> Job:
    lowest = min(job.seed for job in waiting)
    ready = [job for job in waiting if job.seed == lowest]
    job = max(ready, key=lambda job: took.get(job.arm, job.cost))
    waiting.remove(job)
    return job


def _tell_end(tell: Callable[[Event], None], outcome: Outcome) -> None:
    job = outcome.job
    if outcome.error:
        tell(Event("failed", job.arm, job.seed, 1.0, outcome.error))
    else:
        value = f"{outcome.value}, " if isinstance(outcome.value, str) else ""
        tell(Event("finished", job.arm, job.seed, 1.0, f"{value}{outcome.seconds:.1f} s"))


@dataclass
class _Desk:
    """A worker process, its pipe, and the job it has."""

    executor: ProcessPoolExecutor = field(init=False)
    pipe: Any = field(init=False)
    pid: int = 0
    job: Job | None = None
    future: "Future[tuple[Any, str]] | None" = None
    begun: float = 0.0
    shares: list[float] = field(default_factory=list)  # of the job that are done, by its words

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a process; several can begin side by side."""
        context = get_context("spawn")
        self.pipe, self.writer = context.Pipe(duplex=False)
        self.executor = ProcessPoolExecutor(1, context, _begin_worker, (self.writer,))
        self.ready = self.executor.submit(os.getpid)

    def open(self) -> None:
        """Wait until the process is there."""
        try:
            self.pid = self.ready.result()
        except BrokenProcessPool:
            raise RegardError(
                "worker processes cannot start; a script that compares must do so under "
                "if __name__ == '__main__':, as every worker imports it"
            ) from None
        self.writer.close()  # so that the death of the worker is the end of the pipe

    def replace(self) -> None:
        """Put a new process in the place of a dead one."""
        self.close()
        with _environment(ONE_THREAD):
            self.start()
            self.open()

    def give(self, work: Work, job: Job) -> None:
        """Hand out a job, to a new process if this one is dead."""
        try:
            self.future = self.executor.submit(_do, work, job.task)
        except BrokenProcessPool:
            self.replace()
            self.future = self.executor.submit(_do, work, job.task)
        self.job, self.begun, self.shares = job, time.monotonic(), [0.0]

    def running(self) -> Running:
        """How far its job is."""
        assert self.job is not None
        spent = time.monotonic() - self.begun
        return Running(self.job.arm, self.job.cost, spent, self.shares[-1], self.shares[0])

    def heard(self) -> Iterator[Event]:
        """The progress that has come since."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                done, says, warning = self.pipe.recv()
                if self.job:
                    self.shares = [self.shares[0] or done, done]
                    arm, seed = self.job.arm, self.job.seed
                    if warning:
                        yield Event("warning", arm, seed, done, warning)
                    yield Event("progress", arm, seed, done, says)

    def outcome(self, job: Job) -> Outcome:
        """What came of the job that has ended; the desk is free."""
        future, seconds = self.future, time.monotonic() - self.begun
        self.job = self.future = None
        assert future is not None
        try:
            value, error = future.result()
        except BrokenProcessPool:
            value, error = None, DIED
        except Exception as exception:  # what came back could not be read
            value, error = None, f"{type(exception).__name__}: {exception}"
        return Outcome(job, value, error, seconds)

    def kill(self) -> None:
        """End the process at once; run folders are written so that this harms nothing."""
        if self.pid:
            with suppress(OSError):
                os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """End the process when its job is done."""
        self.executor.shutdown(cancel_futures=True)
        self.pipe.close()
        self.writer.close()


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that processes started inside inherit, before any import of theirs."""
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _do(work: Work, task: Any) -> tuple[Any, str]:
    """The work's value and no error, or the error in a line; nothing that cannot be pickled."""
    last = 0.0

    def report(done: float, says: str, warning: str = "") -> None:
        nonlocal last
        now = time.monotonic()
        if warning or now - last >= EVERY:
            last = now
            _pipe.send((done, says, warning))

    try:
        return work(task, report), ""
    except RegardError as error:
        return RegardError(str(error)), str(error)
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
