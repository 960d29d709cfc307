"""The command: what it prints, what it writes, how it fails."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from regard.lab.cli.compare import Watch, _remedy, show_comparison
from regard.lab.studies.arms import Arm
from regard.lab.studies.job import train_and_score
from regard.lab.studies.launch import Event, Job, Outcome
from regard.lab.studies.result import ArmResult, Comparison
from regard.lab.studies.statistics import Difference

from .conftest import Command

TINY = "width=8 steps=4 examples=200 length=30 batch_tokens=600".split()


def comparing(arms: str, out: Path) -> list[object]:
    """The words of a small comparison."""
    return ["compare", "classification", "--arms", arms, "--seeds", 1, "--out", out, *TINY]


def test_the_bar_counts_parts_of_jobs_and_lines_name_what_ended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[tuple[object, ...]] = []
    watch = Watch(lambda *told: shown.append(told))
    watch(Event("kept", "mean", 0, 1.0, "already complete", 4))
    watch(Event("started", "cnn", 0, 0.0, "", 4))
    watch(Event("progress", "cnn", 0, 0.5, "step 2 of 4", 4, 12.0))
    watch(Event("warning", "cnn", 0, 0.5, "about 9 updates fit", 4))
    watch(Event("warning", "cnn", 1, 0.0, "about 8 updates fit", 4))
    watch(Event("finished", "cnn", 0, 1.0, "accuracy 80.0 %, 2.0 s", 4))
    watch(Event("failed", "rnn", 1, 1.0, "out of luck", 4))
    assert shown == [
        (1.0, 4, "", None),
        (1.0, 4, "", None),
        (1.5, 4, "cnn, seed 0: step 2 of 4", 12.0),
        (1.5, 4, "", None),
        (1.5, 4, "", None),
        (2.0, 4, "", None),
        (3.0, 4, "", None),
    ]
    assert capsys.readouterr().err.splitlines() == [
        "cnn: about 9 updates fit",
        "cnn, seed 0: accuracy 80.0 %, 2.0 s",
        "rnn, seed 1: error: out of luck",
    ]


def test_settings_are_searched_on_request(regard: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["compare", "classification", "--arms", "tfidf,nb-svm", "--seeds", 1, "--out", out]
    words += [TINY[2], "--tune", 2, "--tune-space", "ngrams=1,2"]
    said = regard(*words, "--dry-run", "--json")
    assert said.status == 0
    forecast = json.loads(said.out)
    assert [(row["runs"], row["trials"]) for row in forecast["arms"]] == [(1, 2), (1, 2)]
    assert not out.exists()
    first = regard(*words, "--workers", 1)
    assert first.status == 0
    assert "tfidf, trial 1: validation " in first.err
    lines = [line.split() for line in first.out.splitlines()]
    assert ["searched", "default", "best", "gain", "failed", "time", "of", "trials"] in lines
    assert any(line.startswith("best settings of nb-svm: inv") for line in first.out.splitlines())
    assert ">Hyperparameter search</h2>" in (out / "report.html").read_text()
    again = regard(*words, "--json")
    assert again.status == 0
    assert "validation" not in again.err  # nothing was tried again
    tuning = json.loads(again.out)["tuning"]
    assert tuning["trials"] == 2
    assert tuning["arms"]["tfidf"]["space"]["ngrams"] == "1 or 2"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--tune", "0"], "'--tune'"),
        (["--tune", "3", "--sampler", "cmaes"], "no sampler is called 'cmaes'"),
        (["--tune-space", "width=8,16"], "--tune-space needs a search; add --tune N"),
        (["--tune-seed", "3"], "--tune-seed needs a search"),
        (["--tune", "3", "--tune-space", "widht=8,16"], "no setting is called 'widht'"),
        (["--tune", "3", "--tune-space", "width=8"], "width=8 is one value"),
        (["--tune", "3", "--tune-space", "width=0,8"], "arm mean, range of width: width='0'"),
    ],
)
def test_a_search_that_is_badly_asked_for_is_refused(
    regard: Command, tmp_path: Path, words: list[str], says: str
) -> None:
    out = tmp_path / "out"
    arms = ["--arms", "mean,attention-pool", "--out", out]
    assert says in regard.refused("compare", "classification", *arms, *words)
    assert not out.exists()


def test_from_the_command_to_the_report(regard: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = comparing("mean,tfidf", out)
    first = regard(*words, "--workers", 1)
    assert first.status == 0
    lines = first.out.splitlines()
    assert lines[0].split()[:2] == ["arm", "accuracy"]
    assert lines[1].startswith("mean ")
    assert "against mean" in lines[0]
    assert lines[2].startswith("tfidf ")
    assert lines[3].split()[:3] == ["majority", "class", "49.6"]
    assert lines[4].split() == ["chance", "50.0"]
    assert any("one seed: two models, not two methods" in line for line in lines)
    assert f"report: {out / 'report.html'}" in lines
    show = f"next:   regard show {out / 'tfidf' / 'seed-0'} 'your text'"  # mean does not attend
    assert lines[-2:] == [show, f"        regard serve {out}"]
    assert (out / "report.html").read_text().lower().startswith("<!doctype html>")
    assert "mean, seed 0: accuracy " in first.err

    again = regard(*words, "--json")
    assert again.status == 0
    assert again.out.count("\n") == 1
    result = json.loads(again.out)
    assert list(result) == ["task", "metric", "arms", "trivial", "verdicts", "claims", "report"]
    assert result["report"] == str(out / "report.html")
    assert [row["name"] for row in result["arms"]] == ["mean", "tfidf"]
    assert "seed 0: accuracy" not in again.err  # nothing was trained again
    assert json.loads((out / "comparison.json").read_text())["report"] == result["report"]


def row(name: str, mean: float, flops: int | None) -> ArmResult:
    ended = {"converged": 2, "still rising": 1}
    return ArmResult(Arm(name, "cnn"), 3, mean, mean - 0.01, mean + 0.01, 7.25, 812.0, 31970, flops,
                     ended=ended, steps=(800, 1200, 1000))  # fmt: skip


def test_a_narrow_terminal_gets_two_tables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = Difference("cnn:filters=[9]", "mean", 0.012, 0.004, 0.02, 0.0042, 3, 1000, 2)
    arms = (row("mean", 0.87, None), row("cnn:filters=[9]", 0.882, 2_500_000))
    found = Comparison("classification", "accuracy", arms, "mean", (verdict,), folder=Path("out"))
    show_comparison(found)
    one = capsys.readouterr().out.splitlines()
    narrow = Console(width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr("regard.lab.cli.compare.out", narrow)
    show_comparison(found)
    two = capsys.readouterr().out.splitlines()

    def words(line: str) -> list[str]:
        return line.split()

    head = "arm accuracy % (95 %) against mean p (Holm) verdict".split()
    cost = "seconds peak MB parameters MFLOP training".split()
    arm = "cnn:filters=[9] 88.2 (87.2 to 89.2) +1.2 (+0.4 to +2.0) 0.004 better".split()
    assert words(one[0]) == [*head, *cost]
    assert words(one[2]) == [*arm, *"7.2 812 31,970 2.5 still rising (1 of 3)".split()]
    assert words(two[0]) == head
    assert words(two[2]) == arm
    assert words(two[4]) == ["arm", *cost]
    assert words(two[6]) == [*"cnn:filters=[9] 7.2 812 31,970 2.5 still rising (1 of 3)".split()]
    assert (
        "cnn:filters=[9]: still rising (1 of 3): use a longer --budget than its 1,200 steps" in two
    )
    assert "cnn:filters=[9] beats mean by 1.2 points (0.4 to 2.0, p = 0.004, Holm over 2)" in two
    assert "no arm is a baseline; add tfidf or nb-svm to see the gain of a network" in two


@pytest.mark.parametrize(
    ("own", "command", "says"),
    [
        ((), ("--budget", "1m"), "use a longer --budget, or none"),
        ((), ("--out", "runs", "epochs=2"), "use a longer epochs=2, or none"),
        (("steps=9",), ("--budget", "1m"), "use a longer steps=9, or none"),
    ],
)
def test_the_remedy_fits_the_budget_that_was_given(
    own: tuple[str, ...], command: tuple[str, ...], says: str
) -> None:
    result = replace(row("cnn", 0.8, None), arm=Arm("cnn", "cnn", own))
    assert _remedy(result, command) == says


def test_a_dry_run_forecasts_and_writes_nothing(
    regard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    words = "compare classification -a mean -a tfidf --workers 2 --dry-run --seeds".split()
    options = ["--out", tmp_path / "out", *TINY]

    def forecast(seeds: str) -> dict[str, Any]:
        said = regard(*words, seeds, *options, "--json")
        assert said.status == 0
        return json.loads(said.out)

    def printed(seeds: str) -> list[str]:
        said = regard(*words, seeds, *options)
        assert said.status == 0
        return said.out.splitlines()

    result = forecast("5")
    assert [(row["name"], row["runs"], row["steps"]) for row in result["arms"]] == [
        ("mean", 5, 4),
        ("tfidf", 1, 1),
    ]
    assert result["workers"] == 2
    assert result["seconds"] > 0
    lines = printed("5")
    assert lines[0].startswith("mean   5 × ")
    assert lines[-1].endswith(" with 2 parallel runs; nothing was written")
    assert not (tmp_path / "out").exists()
    result = forecast("3..9")
    assert [(row["first_runs"], row["runs"]) for row in result["arms"]] == [(3, 9), (1, 1)]
    assert result["most_seconds"] > result["seconds"]
    lines = printed("3..9")
    assert lines[0].startswith("mean   3 to 9 × ")
    assert lines[-1].endswith(" with 2 parallel runs; 3 seeds, at most 9; nothing was written")
    monkeypatch.setattr("regard.lab.runs.room.Need.warning", property(lambda need: "it is tight"))
    assert [line for line in printed("5") if "tight" in line] == ["mean: it is tight"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["classification", "--arms", "mean,trnsformer"], "did you mean transformer"),
        (["classification", "--arms", "mean"], "at least two arms"),
        (["classification"], "at least two arms"),
        (["translation", "--arms", "gru"], "at least two arms, not 1; give --arms gru,bahdanau; "),
        (["classification", "--arms", "mean,cnn", "--budget", "soon"], "budget 'soon'"),
        (["classification", "--arms", "mean,cnn", "--seeds", "5..3"], "write --seeds 3..5"),
        (["classification", "--arms", "mean,cnn", "--delta", "0"], "--delta 0: give a number"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2(
    regard: Command, words: list[str], says: str, tmp_path: Path
) -> None:
    told = regard.refused("compare", *words, "--out", tmp_path / "out")
    assert told.startswith("error: ")
    assert says in told
    assert not (tmp_path / "out").exists()


def test_an_arm_that_fails_makes_exit_code_2(
    regard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def launch(jobs: list[Job], work: object, *rest: object) -> list[Outcome]:
        good, bad = jobs
        train_and_score(good.task, lambda *said: None)
        return [Outcome(good), Outcome(bad, None, "out of luck")]

    monkeypatch.setattr("regard.lab.studies.compare.launch", launch)
    monkeypatch.setattr("torch.set_num_threads", lambda threads: None)
    printed = regard(*comparing("tfidf,cnn", tmp_path / "out"))
    assert printed.status == 2
    assert printed.err.splitlines()[-1] == "error: cnn, seed 0: out of luck"
    assert printed.out.splitlines()[1].startswith("tfidf ")
    assert (tmp_path / "out" / "report.html").exists()


def living(group: int) -> list[str]:
    """Processes of a group that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:  # it has just gone
            continue
        state, _, of, *_ = rest.split()
        if state != "Z" and int(of) == group:
            found.append(name)
    return found


def test_ctrl_c_ends_the_workers_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = map(str, comparing("mean,tfidf", tmp_path / "out"))
    slow = ["steps=1000000" if word.startswith("steps") else word for word in words]
    metrics = tmp_path / "out" / "mean" / "seed-0" / "metrics.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "regard", *slow, "--workers", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as command:
        try:
            end = time.monotonic() + 120
            while not metrics.exists():
                assert time.monotonic() < end, "the training never began"
                assert command.poll() is None, command.stderr and command.stderr.read()
                time.sleep(0.05)
            os.killpg(command.pid, signal.SIGINT)  # as a terminal does: to the workers too
            _, error = command.communicate(timeout=30)
        finally:
            command.kill()
    assert command.returncode == 130
    assert error.splitlines()[-1] == "interrupted; run the same command again to resume"
    assert "Traceback" not in error
    end = time.monotonic() + 20
    while living(command.pid):
        assert time.monotonic() < end, "somebody is left"
        time.sleep(0.05)


def test_files_of_predictions(regard: Command, tmp_path: Path) -> None:
    files = []
    for arm, wrong in (("mine", 3), ("theirs", 12)):
        rows = [
            "label,predicted",
            *(f"{'ab'[i % 2]},{'ab'[(i + (i < wrong)) % 2]}" for i in range(40)),
        ]
        files.append(tmp_path / f"{arm}.csv")
        files[-1].write_text("\n".join(rows) + "\n")
    words = ["compare", "--predictions", *files, "--out", tmp_path / "out"]
    said = regard(*words, "--metric", "macro-f1")
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0].split()[:3] == ["arm", "macro-F1", "%"]
    assert "seconds" not in lines[0]
    assert [line.split()[0] for line in lines[1:5]] == ["mine", "theirs", "majority", "chance"]
    assert lines[1].split()[1] == "92.5"
    assert f"report: {tmp_path / 'out' / 'report.html'}" in lines
    said = regard(*words, "--json")
    assert said.status == 0
    found = json.loads(said.out)
    assert found["task"] == "predictions"
    assert [row["mean"] for row in found["arms"]] == [37 / 40, 28 / 40]
    assert found["arms"][0]["seconds"] is None
    assert found["trivial"] == {"majority class": 0.5, "chance": 0.5}
    for more, says in (
        (["--arms", "mean"], "--predictions trains nothing; leave --arms out"),
        (["--metric", "f1"], "no metric is called 'f1'"),
        ([tmp_path / "none.csv"], "no such file"),
    ):
        assert says in regard.refused(*words, *more)
    told = regard.refused("compare", "classification", "--arms", "mean,cnn", "--metric", "macro-f1")
    assert "to train, use metric=macro-f1" in told
