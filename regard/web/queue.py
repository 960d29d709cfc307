"""Work for the one thread that the models run in: a line of bounded length, small batches.

A request takes a place when it comes and frees it when it is answered, late, or its asker leaves.
"""

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from regard.web.limits import Limits
from regard.web.refusal import RefusedError, too_late

Work = Callable[[list[Any]], Iterable[Any]]


@dataclass(eq=False)
class Job:
    """One request's work: what is given, and who answers it.

    Jobs with an equal ``together`` are answered by one call of ``work``, which takes the list of
    what they were given. With ``told`` the work's one answer is an iterator: each piece is told as
    it comes, and other jobs get their turn between two pieces.
    """

    given: Any
    work: Work
    together: Hashable | None = None
    size: int = 1
    told: Callable[[Any], None] | None = None
    answer: "Future[Any]" = field(default_factory=Future)
    deadline: float = math.inf
    pieces: Iterator[Any] | None = None


class Queue:
    """A line of at most ``limits.queue`` jobs and the thread that answers them."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.served = self.batches = self.late = self.left = self.restarts = 0
        self._line: deque[Job] = deque()
        self._at_work: set[Job] = set()
        self._change = threading.Condition()
        self._open = True
        self._pace = 0.05  # seconds a job, a running mean
        self._thread = self._begun()

    def _begun(self) -> threading.Thread:
        thread = threading.Thread(target=self._run, name="models", daemon=True)
        thread.start()
        return thread

    @property
    def length(self) -> int:
        """Places that are taken."""
        with self._change:
            return len(self._line) + len(self._at_work)

    def full(self) -> RefusedError | None:
        """The refusal of a request that would find no place, if it would not."""
        with self._change:
            return self._full()

    def _full(self) -> RefusedError | None:
        taken = len(self._line) + len(self._at_work)
        if taken < self.limits.queue and self._open:
            return None
        wait = max(1, math.ceil(self._pace * taken))
        return RefusedError(
            503,
            f"queue: {self.limits.queue} requests wait already; ask again in {wait} s",
            {"Retry-After": str(wait)},
        )

    def put(self, job: Job) -> Job:
        """Take a place. Errors: 503 with the seconds until one is likely to be free."""
        with self._change:
            if full := self._full():
                raise full
            if not self._thread.is_alive():
                self.restarts += 1
                self._thread = self._begun()
            job.deadline = min(job.deadline, time.monotonic() + self.limits.deadline)
            self._line.append(job)
            self._change.notify()
        return job

    def leave(self, job: Job) -> None:
        """Free the place of a job whose asker has gone; what is at work ends after its piece."""
        with self._change:
            if job.answer.cancel() and job in self._line:
                self._line.remove(job)
            elif not job.answer.done():
                job.deadline = -math.inf
            self.left += 1

    def close(self) -> None:
        """Take no more; what is in the line is still answered."""
        with self._change:
            self._open = False
            self._change.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the thread's end, after `close`."""
        self._thread.join(seconds)

    def _run(self) -> None:
        """Answer jobs until `close`; whatever is raised ends the jobs at work, not the thread."""
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
        (self._advance if jobs[0].told else self._answer)(jobs)
        with self._change:
            self._at_work.difference_update(jobs)
            self._pace += 0.1 * ((time.monotonic() - begun) / len(jobs) - self._pace)

    def _recover(self, error: BaseException) -> None:
        """Answer the jobs at work by an error that neither their work nor their asker foresaw."""
        with self._change:
            jobs, self._at_work = self._at_work, set()
            self.restarts += 1
        for job in jobs:
            if not job.answer.done():
                job.answer.set_exception(ordinary(error))

    def _next(self) -> list[Job]:
        """The first job in the line and those that go with it; none once all is done."""
        with self._change:
            while True:
                while not self._line and self._open:
                    self._change.wait()
                if not self._line:
                    return []
                jobs = [job for job in self._together(self._line[0]) if self._still_wanted(job)]
                if jobs:
                    self._at_work.update(jobs)
                    return jobs

    def _together(self, first: Job) -> list[Job]:
        """Take the first job out of the line, and those it can be answered with."""
        chosen, size = [first], first.size
        if first.together is not None:
            for job in list(self._line)[1:]:
                if job.together == first.together and size + job.size <= self.limits.batch:
                    chosen.append(job)
                    size += job.size
        for job in chosen:
            self._line.remove(job)
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
            found = list(jobs[0].work([job.given for job in jobs]))
        except BaseException as error:
            if len(jobs) > 1:  # one of them spoils it: each for itself
                for job in jobs:
                    self._answer([job])
                return
            self._free(jobs[0])
            jobs[0].answer.set_exception(ordinary(error))
            return
        self.batches += 1
        for job, answer in zip(jobs, found, strict=True):
            self.served += 1
            self._free(job)
            job.answer.set_result(answer)

    def _free(self, job: Job) -> None:
        """Give up a job's place, before it is answered: who has an answer waits no longer."""
        with self._change:
            self._at_work.discard(job)

    def _advance(self, jobs: list[Job]) -> None:
        """One more piece of a job that is told piece by piece; then it stands last in the line."""
        (job,) = jobs
        assert job.told is not None
        try:
            if job.pieces is None:
                job.pieces = iter(job.work([job.given]))
            piece = next(job.pieces)
        except StopIteration:
            self.served += 1
            self._free(job)
            job.answer.set_result(None)
        except BaseException as error:
            self._free(job)
            job.answer.set_exception(ordinary(error))
        else:
            job.told(piece)
            with self._change:
                self._line.append(job)


def ordinary(error: BaseException) -> Exception:
    """Return an error that ends a request and nothing else: a panic in Rust is no `Exception`.

    >>> ordinary(SystemExit(3))
    RuntimeError('SystemExit: 3')
    """
    if isinstance(error, Exception):
        return error
    found = RuntimeError(f"{type(error).__name__}: {error}")
    found.__cause__ = error
    return found
