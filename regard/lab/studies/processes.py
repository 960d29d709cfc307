"""Run jobs in a few processes of this machine, with one thread each.

Every worker is an executor with one spawned process, so that a process that dies (killed, out of
memory) takes only its own job with it; a new process replaces it.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from regard.core.errors import LockedError, RegardError
from regard.core.memory import follow_parent
from regard.lab.studies.launch import Job, Work
from regard.lab.studies.pool import Answer, PoolLauncher
from regard.lab.studies.progress import ProgressWriter

T = TypeVar("T")
_LIBRARIES = ["OMP", "MKL", "OPENBLAS", "NUMEXPR", "RAYON"]
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES} | {
    "TOKENIZERS_PARALLELISM": "false"
}


class Local(PoolLauncher):
    """Runs jobs in processes of this machine: `workers`, or as many as there are cores."""

    interval = 0.1
    lost = (BrokenProcessPool,)

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise RegardError(f"workers={workers}: a comparison needs at least one")
        self.slots = workers or os.cpu_count() or 1

    @contextmanager
    def open(self, jobs: Sequence[Job]) -> Iterator[Executor]:
        """Start the processes. Raises: they cannot start."""
        executor = Processes(min(self.slots or 1, len(jobs)))
        try:
            yield executor
        except BaseException:
            executor.kill()
            raise
        finally:
            executor.shutdown()

    def call(
        self, work: Work, job: Job, progress: Path
    ) -> tuple[Callable[..., Answer], tuple[Any, ...]]:
        """Return the function that runs a job in a process."""
        return run, (work, job.task, str(progress))


class Processes(Executor):
    """An executor of single processes; one that dies is replaced at the next `submit`.

    Only the job of the process that died ends with `BrokenProcessPool`. The processes exit when
    this one dies. Raises: they cannot start.
    """

    def __init__(self, workers: int) -> None:
        self.pools = dict.fromkeys(_start() for _ in range(workers))
        self.last: dict[ProcessPoolExecutor, Future[Any]] = {}
        self.pids: dict[ProcessPoolExecutor, int] = {}
        try:
            for pool in self.pools:
                self._wait(pool)
        except BaseException:
            self.shutdown()
            raise

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Give the call to a process that is free, or else to any of them."""
        free = [pool for pool in self.pools if pool not in self.last or self.last[pool].done()]
        pool = (free or list(self.pools))[0]
        try:
            self.last[pool] = pool.submit(fn, *args, **kwargs)
        except BrokenProcessPool:
            self._end(pool)
            pool = _start()
            self.pools[pool] = None
            self._wait(pool)
            self.last[pool] = pool.submit(fn, *args, **kwargs)
        return self.last[pool]

    def kill(self) -> None:
        """Kill the processes; writes to run folders are atomic, so that no file is damaged."""
        for pid in self.pids.values():
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes after their jobs."""
        for pool in list(self.pools):
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def _wait(self, pool: ProcessPoolExecutor) -> None:
        try:
            self.pids[pool] = pool.submit(os.getpid).result()
        except BrokenProcessPool:
            raise RegardError(
                "worker processes cannot start; a script that compares must do so under "
                "if __name__ == '__main__':, as every worker imports it"
            ) from None

    def _end(self, pool: ProcessPoolExecutor) -> None:
        del self.pools[pool]
        self.pids.pop(pool, None)
        self.last.pop(pool, None)
        pool.shutdown(cancel_futures=True)


def _start() -> ProcessPoolExecutor:
    """Start a process without waiting for it, so that several start at once."""
    with environment(ONE_THREAD):
        pool = ProcessPoolExecutor(1, get_context("spawn"), follow_parent)
        pool.submit(int)  # starts the process, which inherits the current environment
    return pool


@contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
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


def run(work: Work, task: Any, progress: str) -> Answer:
    """Return the value of the work, or its error in one line; every worker uses this function."""
    try:
        return work(task, ProgressWriter(Path(progress))), "", False
    except LockedError as error:
        return None, str(error), False
    except RegardError as error:
        return None, str(error), True
    except Exception as error:
        return None, f"{type(error).__name__}: {error}", False
