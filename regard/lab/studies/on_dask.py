"""Run jobs on the workers of a Dask cluster, each in its own process.

A job is sent as plain values, and its files lie next to its run, so that the workers need the same
files as the command. Any scheduler can start the workers: Slurm, PBS, Kubernetes (docs/scale.md).

Dask's scheduler gives the job of a lost worker to another. If the scheduler itself is lost, the
launcher waits `SCHEDULER_PATIENCE` seconds for it to come back, and then gives it all jobs that are
not finished. Dask's messages are pickled: use a cluster that you trust, and TLS between machines
that others reach.
"""

import logging
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from regard.core.errors import RegardError
from regard.lab.studies.launch import Job, Work
from regard.lab.studies.pool import Answer, PoolLauncher
from regard.lab.studies.progress import progress_path
from regard.lab.studies.spec import ChildDiedError, JobSpec, run_in_child

T = TypeVar("T")
ADDRESS = re.compile(r"(tcp|tls|ws|wss|ucx)://[^\s/:]+:\d+|(tcp|tls|ws|wss|ucx)://\[[^\s]+\]:\d+")
FIRST_PATIENCE = 10.0  # seconds until a scheduler must answer for the first time
SCHEDULER_PATIENCE = 300.0  # seconds that a lost scheduler has to come back


class Dask(PoolLauncher):
    """Runs jobs by the scheduler at an address, or ("") on local processes that it starts."""

    def __init__(self, address: str = "", workers: int | None = None) -> None:
        package("dask")
        killed = package("distributed").KilledWorker
        self.address, self.slots = address, workers
        self.lost, self.interrupted = (killed, ChildDiedError), (CancelledError,)

    @classmethod
    def parse(cls, options: str, workers: int | None = None) -> "Dask":
        """Return the launcher of an address, or of ``local``. Raises: not an address."""
        if options in ("", "local"):
            return cls("", workers)
        if not ADDRESS.fullmatch(options):
            raise RegardError(
                f"--launch dask:{options}: the address of a scheduler is written "
                "dask:tcp://HOST:8786 (or tls://); dask alone starts local workers"
            )
        return cls(options, workers)

    def progress(self, job: Job, aside: Path) -> Path:
        """Return the path beside the run's folder, which the workers know too."""
        path = progress_path(Path(job.task.folder))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def call(
        self, work: Work, job: Job, progress: Path
    ) -> tuple[Callable[..., Answer], tuple[Any, ...]]:
        """Return the function of the worker, and the job as plain values."""
        return run_task, (JobSpec.of(work, job).plain(),)

    @contextmanager
    def open(self, jobs: Sequence[Job]) -> Iterator[Executor]:
        """Connect to the scheduler, or start one with workers. Raises: it does not answer."""
        with self._scheduler(len(jobs)) as address:
            executor = DaskExecutor(address)
            try:
                yield executor
            finally:
                executor.shutdown(wait=False)

    @contextmanager
    def _scheduler(self, jobs: int) -> Iterator[str]:
        if self.address:
            yield self.address
            return
        import os

        from distributed import LocalCluster

        workers = min(self.slots or os.cpu_count() or 1, jobs)
        with LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        ) as cluster:
            yield cluster.scheduler_address


class DaskExecutor(Executor):
    """`distributed.Client` as an executor that outlives the connection to its scheduler.

    Futures of a lost scheduler are cancelled; the next `submit` waits until it is back.
    """

    def __init__(self, address: str) -> None:
        self.address, self.patience = address, SCHEDULER_PATIENCE
        for name in ("distributed.client", "distributed.core", "distributed.batched"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # reported in one line below
        self.client = self._connect(FIRST_PATIENCE)
        if self.client is None:
            raise RegardError(
                f"no Dask scheduler answers at {address} within {FIRST_PATIENCE:.0f} s; start "
                "it by `dask scheduler`, and workers by `dask worker ADDRESS`"
            )

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        """Give the call to the scheduler. Raises: it is lost, and does not come back in time."""
        begun = time.monotonic()
        while self.client is None or self.client.status != "running":
            if time.monotonic() - begun > self.patience:
                raise RegardError(
                    f"the Dask scheduler at {self.address} was lost and did not come back within "
                    f"{self.patience:.0f} s; finished runs are kept: start it and run the same "
                    "command again"
                )
            self._close()
            self.client = self._connect(FIRST_PATIENCE)
            time.sleep(0.5)
        future: Future[T] = self.client.get_executor(pure=False).submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the connection; the scheduler then ends all jobs of this executor."""
        self._close()

    def _connect(self, patience: float) -> Any:
        from distributed import Client

        try:
            return Client(self.address, timeout=patience, set_as_default=False, name="regard")
        except (OSError, TimeoutError):
            return None

    def _close(self) -> None:
        if self.client is not None:
            self.client.close(timeout=2)


def package(name: str) -> ModuleType:
    """Import a package of the extra ``cluster``. Raises: it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise RegardError(
            f"--launch needs the package {name} ({error}); pip install 'regard[cluster]'"
        ) from None


def run_task(spec: dict[str, Any]) -> Answer:
    """Run a job in a child of this Dask worker, until Dask cancels it."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def stopped() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state in ("cancelled", "released")

    folder = Path(spec["cwd"], spec["folder"])
    return run_in_child(spec, stopped, folder.with_name(f"{folder.name}.log"))
