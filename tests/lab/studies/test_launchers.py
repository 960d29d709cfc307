"""Launchers by name, and comparisons by Dask that end as the local one does."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError, Executor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.studies import on_dask
from regard.lab.studies.compare import compare
from regard.lab.studies.job import RunTask, train_and_score
from regard.lab.studies.launch import Event, Job, Launcher, Work, launch
from regard.lab.studies.launchers import Collect, Listing, Pending, parse_launcher
from regard.lab.studies.pool import ATTEMPTS, Answer, PoolLauncher
from regard.lab.studies.processes import Local, run
from regard.lab.studies.progress import ProgressWriter, progress_path
from regard.lab.studies.search import Search
from regard.lab.studies.spec import ChildDiedError, JobSpec, run_in_child, run_spec
from tests.lab.studies.declare import declared

TINY = ["width=8", "steps=4", "examples=200", "length=30", "batch_tokens=600"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("dsk:tcp://host:8786", "no launcher is called 'dsk'; did you mean dask"),
        ("dask:host:8786", "the address of a scheduler is written dask:tcp://HOST:8786"),
        ("dask:tcp://host", "dask:tcp://host: the address of a scheduler"),
        ("none:all", "none has no options"),
        ("local:2", "local has no options"),
    ],
)
def test_a_launcher_that_is_not_there_is_told(text: str, says: str) -> None:
    with pytest.raises(RegardError) as told:
        parse_launcher(text)
    assert says in str(told.value)
    assert "\n" not in str(told.value)


def test_a_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> Any:
        raise ImportError(f"No module named {package!r}")

    monkeypatch.setattr(on_dask, "import_module", missing)
    with pytest.raises(RegardError, match=r"pip install 'regard\[cluster\]'"):
        parse_launcher("dask")


def test_a_scheduler_that_does_not_answer_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_dask, "FIRST_PATIENCE", 0.5)
    launcher = parse_launcher("dask:tcp://127.0.0.1:1")
    with pytest.raises(RegardError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1"):
        compare(
            declared("classification", "mean,tfidf", seeds=1, out=tmp_path, overrides=TINY),
            launcher,
        )


def digests(out: Path) -> dict[str, str]:
    """The hash of each run's weights and test predictions."""
    names = ("model.safetensors", "predictions.jsonl")
    return {
        f"{path.parent.parent.name}/{path.parent.name}/{name}": hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for name in names
        for path in out.glob(f"*/seed-*/{name}")
    }


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The runs of a small comparison in local processes."""
    out = tmp_path_factory.mktemp("local")
    compare(declared("classification", "mean,tfidf", seeds=1, out=out, overrides=TINY), Local(1))
    return digests(out)


def test_a_comparison_is_the_same_on_dask(tmp_path: Path, local: dict[str, str]) -> None:
    told: list[Event] = []
    launcher = parse_launcher("dask", 2)
    comparison = compare(
        declared("classification", "mean,tfidf", seeds=1, out=tmp_path, overrides=TINY),
        launcher,
        told.append,
    )
    assert comparison.failures == ()
    assert digests(tmp_path) == local
    kinds = [event.kind for event in told if event.arm == "mean"]
    assert (kinds[0], kinds[-1]) == ("started", "finished")
    left = {
        path.name for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".log", ".progress")
    }
    assert left == set()


def spec(folder: Path, *more: str) -> JobSpec:
    return JobSpec(str(folder), "classification", "mean", (*TINY, *more, "seed=0"))


def test_an_error_of_a_job_is_told_with_its_log(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    values = spec(tmp_path / "seed-0", "data=nowhere.csv").plain()
    value, error, same_for_arm = run_in_child(values, lambda: False, log)
    assert value is None
    assert "nowhere.csv" in error
    assert error.endswith(f"(log: {log})")
    assert same_for_arm
    # the process is kept for the next job, and ends when that is stopped
    with pytest.raises(ChildDiedError, match="exit code -9"):
        run_in_child(values, lambda: True, log)


def test_a_worker_without_the_files_is_told(tmp_path: Path) -> None:
    _, error, same_for_arm = run_spec(spec(tmp_path / "not there" / "seed-0").plain())
    assert "workers need the same files" in error
    assert same_for_arm


def test_only_runs_can_be_launched_elsewhere() -> None:
    with pytest.raises(RegardError, match="arm, seed 0 is not a run in a folder"):
        JobSpec.of(print, Job("arm", 0, None))


def plan(out: Path, launcher: Launcher, **more: Any) -> Any:
    study = declared("classification", "mean,tfidf", seeds=2, out=out, overrides=TINY, **more)
    return compare(study, launcher)


def test_jobs_are_lines_and_those_of_a_search_come_in_stages(tmp_path: Path) -> None:
    with pytest.raises(Pending) as pending:
        plan(tmp_path / "a", Listing())
    assert pending.value.lines[0].endswith(f"seed=0 --model mean --out {tmp_path}/a/mean/seed-0")
    assert len(pending.value.lines) == 3
    search = Search(2, space=("learning_rate=0.001..0.1:log",))
    with pytest.raises(Pending) as pending:
        plan(tmp_path / "b", Listing(), search=search)
    assert all(line.endswith(" --trial") for line in pending.value.lines)
    homes = [line.split(" --out ")[1].split()[0] for line in pending.value.lines]
    arms = [f"{tmp_path}/b/{arm}/tune" for arm in ("mean", "tfidf")]
    assert homes == [f"{arm}/trial-{number}" for arm in arms for number in (0, 1)]


def test_collecting_names_the_runs_that_are_missing(tmp_path: Path) -> None:
    task = RunTask(str(tmp_path / "mean" / "seed-0"), "classification", "mean", ("seed=0",))
    path = progress_path(Path(task.folder))
    (outcome,) = Collect().run([Job("mean", 0, task)], train_and_score, lambda event: None)
    assert outcome.error == "missing: not begun"
    path.parent.mkdir()
    ProgressWriter(path)(0.5, "step 2 of 4")
    (outcome,) = Collect().run([Job("mean", 0, task)], train_and_score, lambda event: None)
    assert outcome.error.startswith("missing: step 2 of 4, by ")


class Flaky(PoolLauncher):
    """An executor in this process whose first futures are cancelled, as by a lost scheduler."""

    interval = 0.01
    interrupted = (CancelledError,)

    def __init__(self, times: int) -> None:
        self.times = times

    @contextmanager
    def open(self, jobs: Sequence[Job]) -> Iterator[Executor]:
        with ThreadPoolExecutor(1) as executor:
            yield executor

    def call(self, work: Work, job: Job, progress: Path) -> Any:
        self.times -= 1
        return (self.cancelled if self.times >= 0 else run), (work, job.task, str(progress))

    def cancelled(self, *rest: Any) -> Answer:
        raise CancelledError


def twice(task: Any, report: Any) -> Any:
    return 2 * task


def test_losses_of_the_scheduler_are_no_attempts_of_a_job() -> None:
    (outcome,) = launch([Job("a", 0, 4)], twice, Flaky(ATTEMPTS + 2))
    assert (outcome.value, outcome.error) == (8, "")


class OneByOne(PoolLauncher):
    """An executor that takes all jobs at once and runs one after the other, as a full cluster."""

    interval = 0.01

    def __init__(self, interrupted: tuple[type[BaseException], ...]) -> None:
        self.interrupted = interrupted

    @contextmanager
    def open(self, jobs: Sequence[Job]) -> Iterator[Executor]:
        with ThreadPoolExecutor(1) as executor:
            yield executor

    def call(self, work: Work, job: Job, progress: Path) -> Any:
        return run, (work, job.task, str(progress))


@pytest.mark.parametrize("interrupted", [(), (CancelledError,)])  # local, Dask
def test_pending_jobs_of_an_arm_that_failed_are_dropped(
    interrupted: tuple[type[BaseException], ...],
) -> None:
    begun: list[str] = []
    failed = threading.Event()

    def work(task: str, report: Any) -> str:
        begun.append(task)
        if task[0] == "a":
            raise RegardError("no such score")
        assert failed.wait(10)
        return task

    def hear(event: Event) -> None:
        if event.kind == "failed":
            failed.set()

    jobs = [Job(task[0], int(task[1]), task) for task in ("a0", "b0", "a1", "a2", "b1")]
    outcomes = launch(jobs, work, OneByOne(interrupted), hear)
    assert [(x.job.task, x.value, x.error) for x in outcomes] == [
        ("a0", None, "no such score"),
        ("b0", "b0", ""),
        ("b1", "b1", ""),
    ]
    assert begun == ["a0", "b0", "b1"]


def test_a_lost_scheduler_is_waited_for_and_then_told(monkeypatch: pytest.MonkeyPatch) -> None:
    connections: list[Any] = [SimpleNamespace(status="running", close=lambda timeout: None)]
    monkeypatch.setattr(on_dask.DaskExecutor, "_connect", lambda self, patience: connections.pop())
    executor = on_dask.DaskExecutor("tcp://host:1")
    executor.client.status = "closed"
    executor.patience = 0.2
    monkeypatch.setattr(on_dask.DaskExecutor, "_connect", lambda self, patience: None)
    with pytest.raises(RegardError, match="was lost and did not come back within 0 s; finished"):
        executor.submit(print)
