"""A bounded queue of jobs for the one thread in which models run, with small batches.

A request holds a slot until it is answered, misses its deadline, or its client disconnects.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from regard.lab.web.limits import Limits
from regard.lab.web.refusal import RefusedError, too_late

Work = Callable[[list[Any]], Iterable[Any]]


@dataclass(eq=False)
class Job:
    """The work of one request: its input and the function that answers it.

    Jobs with the same ``together`` are answered by one call of ``work``, which takes the list of
    their inputs. With ``on_piece``, ``work`` returns an iterator: each piece is passed to
    ``on_piece`` as it comes, and other jobs run between two pieces.
    """

    input: Any
    work: Work
    together: Hashable | None = None
    size: int = 1
    on_piece: Callable[[Any], None] | None = None
    answer: "Future[Any]" = field(default_factory=Future)
    deadline: float = math.inf
    pieces: Iterator[Any] | None = None


class Queue:
    """A queue of at most ``limits.queue`` jobs and the thread that answers them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.served = self.batches = self.late = self.left = self.restarts = 0
        self._waiting: deque[Job] = deque()
        self._running: set[Job] = set()
        self._change = threading.Condition()  # its lock may be taken again within it
        self._open = True
        self._pace = 0.05  # seconds per job, a running mean
        self._thread = self._started()

    def _started(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="models", daemon=True)
        thread.start()
        return thread

    @property
    def length(self) -> int:
        """Number of jobs queued or running."""
        with self._change:
            return len(self._waiting) + len(self._running)

    def full(self) -> RefusedError | None:
        """Return a refusal if the queue is full, else None."""
        with self._change:
            if self.length < self.limits.queue and self._open:
                return None
            wait = max(1, math.ceil(self._pace * self.length))
        return RefusedError(
            503,
            f"queue: {self.limits.queue} requests are already waiting; retry in {wait} s",
            {"Retry-After": str(wait)},
        )

    def put(self, job: Job) -> Job:
        """Add a job. Raises: 503 with the seconds until a slot is likely to be free."""
        with self._change:
            if full := self.full():
                raise full
            if not self._thread.is_alive():
                self.restarts += 1
                self._thread = self._started()
            job.deadline = min(job.deadline, time.monotonic() + self.limits.deadline)
            self._waiting.append(job)
            self._change.notify()
        return job

    def leave(self, job: Job) -> None:
        """Drop a job whose client disconnected; a running one ends after its current piece."""
        with self._change:
            if job.answer.cancel() and job in self._waiting:
                self._waiting.remove(job)
            elif not job.answer.done():
                job.deadline = -math.inf
            self.left += 1

    def close(self) -> None:
        """Accept no more jobs; those in the queue are still answered."""
        with self._change:
            self._open = False
            self._change.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, after `close`."""
        self._thread.join(seconds)

    def _run(self) -> None:
        """Answer jobs until `close`; an exception fails the running jobs, not the thread."""
        while True:
            try:
                while jobs := self._next():
                    self._work(jobs)
            except BaseException as error:
                self._recover(error)
            else:
                return

    def _work(self, jobs: list[Job]) -> None:
        begun = time.monotonic()
        (self._advance if jobs[0].on_piece else self._answer)(jobs)
        with self._change:
            self._running.difference_update(jobs)
            self._pace += 0.1 * ((time.monotonic() - begun) / len(jobs) - self._pace)

    def _recover(self, error: BaseException) -> None:
        """Fail the running jobs with an unexpected error."""
        with self._change:
            jobs, self._running = self._running, set()
            self.restarts += 1
        for job in jobs:
            if not job.answer.done():
                job.answer.set_exception(ordinary(error))

    def _next(self) -> list[Job]:
        """Return the next job and those batched with it, or an empty list after the last."""
        with self._change:
            while True:
                while not self._waiting and self._open:
                    self._change.wait()
                if not self._waiting:
                    return []
                jobs = [job for job in self._together(self._waiting[0]) if self._still_wanted(job)]
                if jobs:
                    self._running.update(jobs)
                    return jobs

    def _together(self, first: Job) -> list[Job]:
        """Remove the first job from the queue, with those that can be batched with it."""
        chosen, size = [first], first.size
        if first.together is not None:
            for job in list(self._waiting)[1:]:
                if job.together == first.together and size + job.size <= self.limits.batch:
                    chosen.append(job)
                    size += job.size
        for job in chosen:
            self._waiting.remove(job)
        return chosen

    def _still_wanted(self, job: Job) -> bool:
        if job.deadline < time.monotonic():
            self.late += 1
            if job.pieces is not None or job.answer.set_running_or_notify_cancel():
                job.answer.set_exception(too_late(self.limits))
            return False
        return job.pieces is not None or job.answer.set_running_or_notify_cancel()

    def _answer(self, jobs: list[Job]) -> None:
        try:
            answers = list(jobs[0].work([job.input for job in jobs]))
        except BaseException as error:
            if len(jobs) > 1:  # one of them fails the batch: answer each alone
                for job in jobs:
                    self._answer([job])
                return
            self._free(jobs[0])
            jobs[0].answer.set_exception(ordinary(error))
            return
        self.batches += 1
        for job, answer in zip(jobs, answers, strict=True):
            self.served += 1
            self._free(job)
            job.answer.set_result(answer)

    def _free(self, job: Job) -> None:
        """Free a job's slot, before its answer is set: an answered client no longer waits."""
        with self._change:
            self._running.discard(job)

    def _advance(self, jobs: list[Job]) -> None:
        """Compute one more piece of a streamed job, then move it to the end of the queue."""
        (job,) = jobs
        assert job.on_piece is not None
        try:
            if job.pieces is None:
                job.pieces = iter(job.work([job.input]))
            piece = next(job.pieces)
        except StopIteration:
            self.served += 1
            self._free(job)
            job.answer.set_result(None)
        except BaseException as error:
            self._free(job)
            job.answer.set_exception(ordinary(error))
        else:
            job.on_piece(piece)
            with self._change:
                self._waiting.append(job)


def ordinary(error: BaseException) -> Exception:
    """Return an `Exception` for any error; a panic in Rust is only a `BaseException`.

    >>> ordinary(SystemExit(3))
    RuntimeError('SystemExit: 3')
    """
    if isinstance(error, Exception):
        return error
    wrapped = RuntimeError(f"{type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped
