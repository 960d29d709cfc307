"""A run or a trial as a job of plain values: a command of the shell, or the argument of a worker.

A worker of a cluster finds the files of a job by their paths: it needs the same files as the
process that launches it. ``python -m regard.studies.spec`` is such a worker for one job.
"""

import json
import os
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard import trusted
from regard.errors import LockedError, RegardError
from regard.studies.compatibility import check_folder
from regard.studies.job import RunTask, read_score, train_and_score
from regard.studies.launch import Job, Report, Work
from regard.studies.pool import Answer
from regard.studies.processes import ONE_THREAD, run
from regard.studies.progress import process_name, progress_path
from regard.studies.trial import read_trial, train_and_validate

LOCK_PATIENCE = 120.0  # seconds; a network file system frees the lock of a dead machine that late
POLL = 0.3  # seconds between two looks at a child process


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
        """Return a job as plain values. Errors: it is no run or trial, such as some jobs of labs."""
        if work not in (train_and_score, train_and_validate) or not isinstance(job.task, RunTask):
            raise RegardError(
                f"{job.name} is not a run in a folder, so it can only run in processes of this "
                "machine; leave --launch and --jobs out"
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
        """Return the values as JSON can hold them."""
        return {**asdict(self), "overrides": list(self.overrides)}

    def command(self) -> str:
        """Return the job as a line of a shell.

        >>> JobSpec("out/a/seed-0", "classification", "mean", ("data=my file.csv",)).command()
        "regard job classification 'data=my file.csv' --model mean --out out/a/seed-0"
        """
        words = ["regard", "job", self.task, *self.overrides, "--model", self.model]
        return shlex.join([*words, "--out", self.folder, *(["--trial"] if self.trial else [])])

    def finished(self) -> bool:
        """Return whether the job has a result. Errors: its folder has another run."""
        from regard.runs import Config

        folder = Path(self.folder)
        if self.trial:
            trial = read_trial(folder)
            return trial is not None and set(trial.given) == set(self.overrides)
        check_folder(folder, Config.make(self.task, self.model, self.overrides))
        return read_score(folder) is not None

    def work(self, report: Report) -> str:
        """Do the job, unless it is finished, and return its result as text."""
        if self.finished():
            return "already complete"
        work = train_and_validate if self.trial else train_and_score
        return work(RunTask(self.folder, self.task, self.model, self.overrides), report)


def run_spec(values: Mapping[str, Any]) -> Answer:
    """Run a job in this process.

    If another process writes to its folder, wait for two minutes: it may be a worker that was given
    up and ends now, or the lock of one on a machine that died.
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


def run_in_child(values: Mapping[str, Any], stopped: Callable[[], bool], log: Path) -> Answer:
    """Run a job in a new process, which ends if this one dies or `stopped` returns True.

    So it has one thread, a peak of memory and random numbers of its own, in any worker. Its output
    goes to the file `log`, which is kept if the job fails. Errors: `ChildDiedError`.
    """
    spec = JobSpec.read(values)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "regard.studies.spec"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            cwd=spec.cwd or None,
            env={**os.environ, **spec.environment},
            text=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(values) + "\n")
        process.stdin.flush()  # and stays open: its end tells the child that this process died
        while process.poll() is None and not stopped():
            time.sleep(POLL)
        answer = process.stdout.read() if process.poll() == 0 else ""
    except BrokenPipeError:
        answer = ""
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()
    if not answer:
        raise ChildDiedError(f"exit code {process.returncode}, log: {log}")
    value, error, same_for_arm = json.loads(answer)
    if not error:
        log.unlink(missing_ok=True)
    return value, f"{error} (log: {log})" if error else "", same_for_arm


class ChildDiedError(Exception):
    """The process of a job died."""


def main() -> None:
    """Run the job that the first line of stdin has, and write the answer to stdout as JSON."""
    answers = os.dup(1)
    os.dup2(2, 1)  # what the job prints goes to the log
    values = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    answer = json.dumps(run_spec(values))
    os.write(answers, answer.encode())


def _end_with_parent() -> None:
    os.read(0, 1)  # not sys.stdin, whose lock a thread must not hold when the process exits
    os._exit(1)


if __name__ == "__main__":
    main()
