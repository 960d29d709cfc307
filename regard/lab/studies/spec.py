"""A run or a trial as a job of plain values, for a shell command or a worker.

A cluster worker finds the files of a job by their paths, so it needs the same files as the
launching process. ``python -m regard.lab.studies.spec`` is the process in which a Dask worker runs
its jobs.
"""

import json
import os
import queue
import select
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.core import trusted
from regard.core.errors import LockedError, RegardError
from regard.lab.studies.job import RunTask, read_score, train_and_score
from regard.lab.studies.launch import Job, Report, Work
from regard.lab.studies.pool import Answer
from regard.lab.studies.processes import ONE_THREAD, run
from regard.lab.studies.progress import process_name, progress_path
from regard.lab.studies.trial import read_trial, train_and_validate

LOCK_PATIENCE = 120.0  # seconds; a network file system frees the lock of a dead machine that late
POLL = 0.3  # seconds between two checks whether a job is stopped


@dataclass(frozen=True)
class JobSpec:
    """A run, or with `trial` a trial of a search, as plain values.

    Relative paths hold in the folder `cwd`; `environment` has variables of the job's process.
    """

    folder: str
    task: str
    model: str
    overrides: tuple[str, ...]
    trial: bool = False
    cwd: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Work, job: Job) -> "JobSpec":
        """Return a job as plain values. Raises: a job that is not a run, as in some labs."""
        if work not in (train_and_score, train_and_validate) or not isinstance(job.task, RunTask):
            raise RegardError(
                f"{job.arm}, {job.what} {job.seed} is not a run in a folder, so it can only run in "
                "processes of this machine; leave --launch and --jobs out"
            )
        known = os.environ.get(trusted.VARIABLE)
        return cls(
            **asdict(job.task),
            trial=work is train_and_validate,
            cwd=os.getcwd(),
            environment=ONE_THREAD | ({trusted.VARIABLE: known} if known else {}),
        )

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> "JobSpec":
        """Return the job of plain values."""
        return cls(**{**values, "overrides": tuple(values["overrides"])})

    def plain(self) -> dict[str, Any]:
        """Return JSON-serialisable values."""
        return {**asdict(self), "overrides": list(self.overrides)}

    def command(self) -> str:
        """Return the job as a line of a shell.

        >>> JobSpec("out/a/seed-0", "classification", "mean", ("data=my file.csv",)).command()
        "regard job classification 'data=my file.csv' --model mean --out out/a/seed-0"
        """
        words = ["regard", "job", self.task, *self.overrides, "--model", self.model]
        return shlex.join([*words, "--out", self.folder, *(["--trial"] if self.trial else [])])

    def finished(self) -> bool:
        """Return whether the job has a result. Raises: its folder has another run."""
        from regard.lab.runs import Config, must_match

        folder = Path(self.folder)
        if self.trial:
            trial = read_trial(folder)
            return trial is not None and set(trial.given) == set(self.overrides)
        must_match(folder, Config.make(self.task, self.model, self.overrides))
        return read_score(folder) is not None

    def work(self, report: Report) -> str:
        """Run the job, unless it is finished, and return its result as text."""
        if self.finished():
            return "already complete"
        work = train_and_validate if self.trial else train_and_score
        return work(RunTask(self.folder, self.task, self.model, self.overrides), report)


def run_spec(values: Mapping[str, Any]) -> Answer:
    """Run a job in this process.

    If another process writes to its folder, wait for two minutes: it may be an abandoned worker
    that ends soon, or the lock of a dead machine.
    """
    spec, end = JobSpec.read(values), time.monotonic() + LOCK_PATIENCE
    path = progress_path(Path(spec.folder))
    if not path.parent.is_dir():
        name = process_name()
        message = f"the worker {name} has no folder {path.parent}; workers need the same files"
        return None, f"{message}, at the same paths, as the command that launches them", True

    def patient(spec: JobSpec, report: Report) -> str:
        while True:
            try:
                return spec.work(report)
            except LockedError:
                if time.monotonic() > end:
                    raise
                time.sleep(2)

    return run(patient, spec, str(path))


class ChildDiedError(Exception):
    """The process of a job died."""


class Child:
    """A process that runs the jobs of one worker thread, and ends with the worker.

    So a job has its own thread and random numbers in any worker, and killing it affects only its
    process.
    """

    def __init__(self, spec: JobSpec) -> None:
        self.place = (spec.cwd, dict(spec.environment))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard.lab.studies.spec"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=spec.cwd or None,
            env={**os.environ, **spec.environment},
            text=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.orders, self.answers = self.process.stdin, self.process.stdout

    def serves(self, spec: JobSpec) -> bool:
        """Return whether the process is alive and has the job's folder and environment."""
        return self.process.poll() is None and self.place == (spec.cwd, dict(spec.environment))

    def ask(self, values: Mapping[str, Any], stopped: Callable[[], bool]) -> Answer | None:
        """Run a job; return None if the process died or `stopped` returned True."""
        try:
            self.orders.write(json.dumps(values) + "\n")
            self.orders.flush()
            while not stopped():
                if select.select([self.answers], [], [], POLL)[0]:
                    line = self.answers.readline()
                    return tuple(json.loads(line)) if line else None
        except BrokenPipeError:
            pass
        return None

    def end(self) -> None:
        """Kill the process; writes to run folders are atomic."""
        self.process.kill()
        self.process.wait()
        self.answers.close()
        with suppress(BrokenPipeError):
            self.orders.close()


_of_thread = threading.local()  # the child of a thread of a worker, kept for its next job


def run_in_child(values: Mapping[str, Any], stopped: Callable[[], bool], log: Path) -> Answer:
    """Run a job in the child of this thread, which is ended if `stopped` returns True.

    Its output goes to the file `log`, which is kept if the job fails. Raises: `ChildDiedError`.
    """
    spec, child = JobSpec.read(values), getattr(_of_thread, "child", None)
    if child is None or not child.serves(spec):
        child = _of_thread.child = Child(spec)
    answer = child.ask({"log": str(log), "spec": values}, stopped)
    if answer is None:
        child.end()
        _of_thread.child = None
        raise ChildDiedError(f"exit code {child.process.returncode}, log: {log}")
    value, error, same_for_arm = answer
    if not error:
        log.unlink(missing_ok=True)
    return value, f"{error} (log: {log})" if error else "", same_for_arm


def main() -> None:
    """Run the jobs whose values come by stdin, one a line, and write each answer to stdout."""
    answers, orders = os.dup(1), queue.SimpleQueue[str]()
    threading.Thread(target=_read, args=(orders,), daemon=True).start()
    while True:
        order = json.loads(orders.get())
        with suppress(OSError):  # no such folder: the job says so
            handle = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.close(handle)
        os.write(answers, json.dumps(run_spec(order["spec"])).encode() + b"\n")


def _read(orders: "queue.SimpleQueue[str]") -> None:
    for line in sys.stdin:
        orders.put(line)
    os._exit(0)  # the worker ended


if __name__ == "__main__":
    main()
