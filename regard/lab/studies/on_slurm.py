"""Run jobs by Slurm, each a batch job that submitit submits, requeues and collects.

Before the time limit, or when a job is preempted, Slurm sends a signal; submitit requeues the job,
which resumes its run from the last checkpoint. submitit stores jobs and results as pickles in
``OUT/slurm/NAME``. The name is new for each launch, so that no old file is read; the files are
removed as jobs end, except the logs of failed jobs.
"""

import os
import re
import shutil
import subprocess
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from regard.core.errors import RegardError
from regard.core.settings import Settings, build, key_value
from regard.lab.studies.launch import Job
from regard.lab.studies.on_cluster import ClusterLauncher, package
from regard.lab.studies.pool import Answer
from regard.lab.studies.processes import ONE_THREAD
from regard.lab.studies.spec import run_spec

TUNE = "tune"  # the folder of an arm's trials, as in `regard.lab.studies.tune`
FOLDER = "slurm"  # folder of submitit's files in the comparison's folder
REQUEUES = 1_000  # how often a job may reach its time limit and resume from a checkpoint
SIGNAL = 90  # seconds between the signal and the end of a job at its time limit
GONE = 3  # successive queries of the queue without a job after which it is lost
ENDED = {"COMPLETED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"}
TIME = re.compile(r"(?:(\d+)-)?(\d+):(\d\d)(?::(\d\d))?|(\d+)([mhd])")


def minutes_of(text: str) -> int:
    """Return the minutes of a time limit.

    >>> minutes_of("90m"), minutes_of("4h"), minutes_of("1-00:00:00"), minutes_of("00:30:00")
    (90, 240, 1440, 30)
    >>> minutes_of("4 hours")
    Traceback (most recent call last):
    regard.core.errors.RegardError: time=4 hours: write a time limit as 90m, 4h, 2d, 12:00:00 or ...
    """
    match = TIME.fullmatch(text.strip())
    minutes = 0.0
    if match and match[6]:
        minutes = int(match[5]) * {"m": 1, "h": 60, "d": 1440}[match[6]]
    elif match:
        # as in Slurm: days-hours:minutes[:seconds], hours:minutes:seconds, or minutes:seconds
        days, first, second, third = (int(part or 0) for part in match.groups()[:4])
        hours = match[1] or match[4]
        minutes = first * 60 + second + third / 60 if hours else first + second / 60
        minutes += days * 1440
    if minutes < 1:
        raise RegardError(
            f"time={text}: write a time limit as 90m, 4h, 2d, 12:00:00 or 1-00:00:00, of a minute "
            "or more"
        )
    return int(-(-minutes // 1))


class SlurmSettings(Settings):
    """The options of ``--launch slurm:key=value,key=value``; those of sbatch."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    gpus: int = Field(0, ge=0, description="GPUs of a job")
    cpus: int = Field(1, ge=1, description="processor cores of a job")
    mem: str = Field("", pattern=r"^(\d+[KMGT]?)?$", description="memory of a job, such as 8G")
    time: int = Field(240, description="time limit of a job, in minutes")

    @field_validator("time", mode="before")
    @classmethod
    def _time(cls, value: Any) -> Any:
        return minutes_of(value) if isinstance(value, str) else value

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of submitit's executor."""
        named = {key: getattr(self, key) for key in ("partition", "account", "qos", "constraint")}
        named |= {"gpus_per_node": self.gpus}
        more = {key: getattr(self, key) for key in ("mem", "reservation")}
        return {
            **{key: value for key, value in named.items() if value},
            "time": self.time,
            "cpus_per_task": self.cpus,
            "job_name": "regard",
            "signal_delay_s": SIGNAL,
            "setup": [f"export {name}={value}" for name, value in ONE_THREAD.items()],
            "additional_parameters": {
                "requeue": True,
                **{key: value for key, value in more.items() if value},
            },
        }


class Slurm(ClusterLauncher):
    """Runs jobs by sbatch, or with `settings` None in processes that submitit starts here."""

    def __init__(self, settings: SlurmSettings | None, workers: int | None = None) -> None:
        package("submitit")
        if settings and not shutil.which("sbatch"):
            raise RegardError(
                "--launch slurm: there is no sbatch here; run the command on a node of the cluster "
                "that submits jobs, or use --launch slurm:local"
            )
        self.settings = settings
        self.slots = workers if settings else workers or os.cpu_count() or 1
        self.interval = 2.0 if settings else 0.5
        self.lost = (JobLostError,)

    @classmethod
    def parse(cls, options: str, workers: int | None = None) -> "Slurm":
        """Return the launcher of ``key=value,key=value`` or ``local``.

        Raises: an unknown key or an invalid value.
        """
        if options == "local":
            return cls(None, workers)
        pairs = [pair.strip() for pair in options.split(",") if pair.strip()]
        values: dict[str, str] = {}
        for key, value in map(key_value, pairs):
            if key in values:
                raise RegardError(f"--launch slurm: {key} is set twice")
            values[key] = value
        return cls(build(SlurmSettings, values), workers)

    @property
    def function(self) -> Callable[[dict[str, Any]], Answer]:
        """Return the job as submitit requeues it."""
        return Requeued()

    @contextmanager
    def open(self, jobs: Sequence[Job]) -> Iterator[Executor]:
        """Make the folder of submitit, and end the jobs and remove their files at the end."""
        import submitit

        place = _out(jobs) / FOLDER
        if place.exists():
            _remove_pickles(place)  # of a launch that was killed
        folder = place.resolve() / uuid.uuid4().hex[:12]
        folder.mkdir(parents=True, mode=0o700)
        if self.settings:
            slurm = submitit.SlurmExecutor(folder, max_num_timeout=REQUEUES)
            slurm.update_parameters(**self.settings.parameters())
            executor = SubmititExecutor(slurm, slurm_states, self.interval)
        else:
            local = submitit.LocalExecutor(folder, max_num_timeout=REQUEUES)
            setup = [f"export {name}={value}" for name, value in ONE_THREAD.items()]
            local.update_parameters(timeout_min=60 * 24 * 365, setup=setup)
            executor = SubmititExecutor(local, None, self.interval)
        try:
            yield executor
        finally:
            executor.shutdown()
            _remove_pickles(folder)
            for empty in (folder, place):
                with suppress(OSError):
                    empty.rmdir()


class Requeued:
    """A job that submitit requeues unchanged when Slurm ends it."""

    def __call__(self, spec: dict[str, Any]) -> Answer:
        """Run the job in this process, which Slurm watches."""
        return run_spec(spec)

    def checkpoint(self, spec: dict[str, Any]) -> Any:
        """Return the job to requeue; its run has checkpoints of its own."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self, spec)


class JobLostError(Exception):
    """A job of Slurm ended without a result."""


class JobCancelledError(RegardError):
    """A user or an administrator cancelled a job of Slurm."""

    def __str__(self) -> str:
        """Return the message."""
        return f"cancelled in Slurm: {super().__str__()}"


@dataclass
class _Batch:
    """A job of submitit with its future; `absent` counts queries of the queue without it."""

    job: Any
    future: "Future[Any]" = field(default_factory=Future)
    absent: int = 0

    @property
    def log(self) -> str:
        """Return the path of the log and its last line."""
        lines = (self.job.stderr() or "").strip().splitlines()
        return f"{lines[-1].strip()[:300] + ', ' if lines else ''}log: {self.job.paths.stderr}"


class SubmititExecutor(Executor):
    """An executor of submitit with futures; a thread looks at its jobs.

    `states` returns the state of each job by its id. Without it the jobs are processes of this
    machine.
    """

    def __init__(
        self, executor: Any, states: Callable[[], dict[str, str]] | None, interval: float
    ) -> None:
        self.executor, self.states, self.interval = executor, states, interval
        self.batches: list[_Batch] = []
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        """Submit a job. Raises: Slurm refuses it."""
        try:
            batch = _Batch(self.executor.submit(fn, *args, **kwargs))
        except Exception as error:  # submitit has several classes for a failed command
            line = " ".join(str(error).split())
            raise RegardError(f"Slurm refused the job: {line[-400:]}") from None
        self.batches.append(batch)
        batch.future.add_done_callback(
            lambda future: batch.job.cancel(check=False) if future.cancelled() else None
        )
        return batch.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """Cancel the jobs that have not ended."""
        self.ends.set()
        self.thread.join()
        for batch in self.batches:
            batch.future.cancel()
        for batch in self.batches:
            if self.states is None and (process := getattr(batch.job, "_process", None)):
                process.wait()

    def _watch(self) -> None:
        while not self.ends.wait(self.interval):
            running = [batch for batch in self.batches if not batch.future.done()]
            try:
                states = self.states() if self.states and running else {}
            except (OSError, subprocess.SubprocessError):
                continue  # the controller does not answer: look again
            for batch in running:
                with suppress(InvalidStateError):  # cancelled meanwhile
                    self._look(batch, states)

    def _look(self, batch: _Batch, states: dict[str, str]) -> None:
        job = batch.job
        if job.paths.result_pickle.exists():
            self._finish(batch)
            return
        if self.states is None:
            state = "FAILED" if job.done() else "RUNNING"
        else:
            state = states.get(job.job_id, "")
        batch.absent = batch.absent + 1 if not state or state in ENDED else 0
        if state == "CANCELLED":
            batch.future.set_exception(JobCancelledError(f"job {job.job_id}, {batch.log}"))
        elif batch.absent >= GONE:  # not at once: files of another machine may come late
            why = f"job {job.job_id}: {state or 'not in the queue'}, {batch.log}"
            batch.future.set_exception(JobLostError(why))

    def _finish(self, batch: _Batch) -> None:
        paths = batch.job.paths
        try:
            value, error, same_for_arm = batch.job.result()
        except Exception as failure:  # the job could not even begin
            line = str(failure).strip().splitlines()[-1]
            batch.future.set_exception(JobLostError(f"{line}, {batch.log}"))
            return
        answer: Answer = (value, f"{error} ({batch.log})" if error else "", same_for_arm)
        removed = [paths.result_pickle, paths.submitted_pickle]
        if not error:
            removed += [paths.stdout, paths.stderr, paths.submission_file]
        for path in removed:
            path.unlink(missing_ok=True)
        batch.future.set_result(answer)


def slurm_states() -> dict[str, str]:
    """Return the state of each job of this user in Slurm's queue, by its id.

    ``squeue`` knows ended jobs for some minutes, and needs no accounting as ``sacct`` does.
    """
    command = ["squeue", "--noheader", "--states=all", "--me", "--format=%i %T"]
    queue = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=True, timeout=60
    )
    return dict(line.split(maxsplit=1) for line in queue.stdout.splitlines() if " " in line)


def _out(jobs: Sequence[Job]) -> Path:
    """Return the folder of the comparison: the one that all runs are in."""
    homes = [Path(job.task.folder).resolve().parent for job in jobs]
    arms = [home.parent if home.name == TUNE else home for home in homes]
    return Path(os.path.commonpath([arm.parent for arm in arms]))


def _remove_pickles(folder: Path) -> None:
    for path in [*folder.rglob("*.pkl"), *folder.rglob(".submission_file_*")]:
        path.unlink(missing_ok=True)
