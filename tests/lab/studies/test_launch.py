"""Jobs on processes: values, progress, order, mistakes, deaths, Ctrl-C."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard.core.errors import RegardError
from regard.lab.studies.launch import Event, Job, launch
from regard.lab.studies.pool import ATTEMPTS
from regard.lab.studies.processes import Local

sys.path.append(str(Path(__file__).parent))  # workers get this path too
import works

WITH_REGARD = {**os.environ, "PYTHONPATH": str(Path(regard.__file__).parents[1])}


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


def wait_for(condition: object, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def test_values_come_back_in_order_and_progress_is_heard() -> None:
    events: list[Event] = []
    jobs = [Job(f"arm {number}", 0, number) for number in (3, 5, 7)]
    outcomes = launch(jobs, works.square, Local(2), events.append)
    assert [outcome.value for outcome in outcomes] == [9, 25, 49]
    assert [outcome.job for outcome in outcomes] == jobs
    assert Event("progress", "arm 1", 0, 0.5, "half of 5") not in events
    for number in (3, 5, 7):
        mine = [event for event in events if event.arm == f"arm {number}"]
        assert [event.kind for event in mine] == ["started", "progress", "finished"]
        assert mine[1] == Event("progress", f"arm {number}", 0, 0.5, f"half of {number}")


def test_workers_are_other_processes_with_one_thread_and_no_torch() -> None:
    (outcome,) = launch([Job("a", 0, None)], works.surroundings)
    pid, threads, torch = outcome.value
    assert pid != os.getpid()
    assert threads == "1"
    assert not torch  # the launcher costs nothing; the work loads what it needs


def test_the_environment_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    assert launch([Job("a", 0, None)], works.surroundings)[0].value[1] == "1"
    assert os.environ["OMP_NUM_THREADS"] == "2"
    assert "MKL_NUM_THREADS" not in os.environ


def test_low_seeds_first_then_what_takes_longest(tmp_path: Path) -> None:
    order = tmp_path / "order"
    slow, quick = 0.3, 0.0
    jobs = [
        Job(arm, seed, (f"{arm}{seed}", str(order), seconds), cost)
        for arm, seconds, cost in (("a", quick, 2.0), ("b", slow, 1.0), ("c", quick, 3.0))
        for seed in (0, 1)
    ]
    launch(jobs, works.write_down, Local(1))
    # seed 0 by the guessed cost; seed 1 by what seed 0 took, which for b is most
    assert order.read_text().split()[:4] == ["c0", "a0", "b0", "b1"]


def test_seconds_left_count_the_jobs_that_wait() -> None:
    told: list[Event] = []
    jobs = [Job("arm", seed, 0.4) for seed in range(3)]
    launch(jobs, works.halfway, Local(1), told.append)
    first, *_, last = [event.left for event in told if event.kind == "finished"]
    assert first is not None
    assert first[0] > 0.7  # two more like it
    assert first[1] == pytest.approx(3 * first[0])  # works.halfway may take three times as long
    assert last == (0.0, 0.0)
    halves = [event.left for event in told if event.kind == "progress" and event.seed == 2]
    assert halves[-1] is not None
    assert halves[-1] < first


def test_a_mistake_ends_its_arm_and_a_defect_only_its_job() -> None:
    events: list[Event] = []
    jobs = [Job("bad", 0, "mistake"), Job("bad", 1, "fine"), Job("bug", 0, "defect")]
    jobs += [Job("bug", 1, "fine"), Job("odd", 0, "unpicklable"), Job("good", 1, "fine")]
    outcomes = launch(jobs, works.trouble, Local(1), events.append)
    by_job = {(outcome.job.arm, outcome.job.seed): outcome for outcome in outcomes}
    assert by_job["bad", 0].error == "heads=3 does not divide width=8"
    assert ("bad", 1) not in by_job
    assert by_job["bug", 0].error == "ZeroDivisionError: division by zero"
    assert by_job["bug", 1].value == "fine"
    assert "lambda" in by_job["odd", 0].error
    assert by_job["good", 1].value == "fine"
    assert [e.message for e in events if e.kind == "failed" and e.arm == "bad"] == [
        "heads=3 does not divide width=8"
    ]


def test_a_dead_worker_is_named_and_the_others_go_on() -> None:
    jobs = [Job("dies", 0, "death"), Job("dies", 1, "fine")]
    jobs += [Job(f"lives {number}", 0, number) for number in range(4)]
    outcomes = launch(jobs, works.trouble, Local(2))
    told = [(o.job.arm, o.job.seed, o.error) for o in outcomes if o.error]
    ((arm, seed, error),) = told
    assert (arm, seed) == ("dies", 0)
    assert error.startswith(f"its worker process died {ATTEMPTS} times without progress")
    assert "run the same command again to resume" in error
    assert [outcome.value for outcome in outcomes[1:]] == ["fine", 0, 1, 2, 3]


def test_a_job_whose_workers_die_goes_on_while_there_is_progress(tmp_path: Path) -> None:
    events: list[Event] = []
    jobs = [Job("a", 0, (str(tmp_path / "calls"), ATTEMPTS + 1))]
    (outcome,) = launch(jobs, works.dies_until, Local(1), events.append)
    assert outcome.value == ATTEMPTS + 2
    again = [event for event in events if event.kind == "restarted"]
    assert len(again) == ATTEMPTS + 1
    assert "from its last checkpoint" in again[0].message


def test_no_workers_is_a_mistake() -> None:
    with pytest.raises(RegardError, match="workers=0"):
        launch([Job("a", 0, 1)], works.square, Local(0))


def test_an_exception_here_ends_the_workers(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if event.kind == "progress":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        launch([Job("a", 0, str(tmp_path / "pid"))], works.forever, on_event=stop)
    pid = int((tmp_path / "pid").read_text())
    wait_for(lambda: not alive(pid))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_parent(tmp_path: Path, sent: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        f"sys.path.append({str(Path(__file__).parent)!r})\n"
        "import works\n"
        "from regard.lab.studies.launch import Job, launch\n"
        "if __name__ == '__main__':\n"
        f"    launch([Job('a', 0, {str(tmp_path / 'pid')!r})], works.forever)\n"
    )
    with subprocess.Popen(
        [sys.executable, script], stderr=subprocess.PIPE, env=WITH_REGARD
    ) as parent:
        try:
            wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
            pid = int((tmp_path / "pid").read_text())
            parent.send_signal(sent)
            _, error = parent.communicate(timeout=20)
        finally:
            parent.kill()
    assert (b"KeyboardInterrupt" in error) == (sent == signal.SIGINT)
    wait_for(lambda: not alive(pid))


def test_a_script_without_main_guard_is_told(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import operator\n"
        "from regard.lab.studies.launch import Job, launch\n"
        "launch([Job('a', 0, 1)], operator.add)\n"
    )
    ended = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=60, env=WITH_REGARD
    )
    assert ended.returncode == 1
    assert "must do so under if __name__ == '__main__':" in ended.stderr.splitlines()[-1]
