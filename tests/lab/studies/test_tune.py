"""A comparison whose settings are searched first: same trials, same result, the test read once."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.studies import compare as compare_module
from regard.lab.studies import tune as module
from regard.lab.studies.compare import compare
from regard.lab.studies.job import RunTask
from regard.lab.studies.launch import Event
from regard.lab.studies.search import Search
from regard.lab.studies.storage import JOURNAL, begin_search, open_search
from regard.lab.studies.trial import TRIAL_SEED, Trial, read_trial, train_and_validate
from regard.lab.tasks.classification.task import Classification
from tests.lab.small_runs import trained_run
from tests.lab.studies.declare import checked, declared
from tests.lab.studies.test_compare import TINY, Inline

NETWORK = ["learning_rate=0.001..0.1:log"]


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> Inline:
    launcher = Inline()
    monkeypatch.setattr(module, "launch", launcher)
    monkeypatch.setattr(compare_module, "launch", launcher)
    monkeypatch.setattr("regard.core.memory.keep_freed_memory", lambda: False)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    return launcher


def searched(out: Path, trials: int = 3, arms: str = "mean,tfidf", **given: Any) -> Any:
    search = Search(trials, **{"space": tuple(NETWORK), **given.pop("search", {})})
    usual = [*TINY, "minimum=1"] if "mean" in arms else [*TINY[1:], "minimum=1"]
    asked = {"seeds": 1, "out": out, "overrides": usual, **given}
    on_event = asked.pop("on_event", None)
    return compare(declared("classification", arms, search=search, **asked), on_event=on_event)


def asked(out: Path, settings: Sequence[str], arm: str = "mean") -> RunTask:
    """Return the first trial of a search that has begun."""
    begin_search(out, arm).add_trial(Search(2).suggest(arm, 0, {}, {}))
    return RunTask(str(out / arm / "tune" / "trial-0"), "classification", arm, tuple(settings))


def what_was_found(record: dict[str, Any]) -> dict[str, Any]:
    """A comparison's record without what no two processes have in common: times and places."""
    found = json.loads(json.dumps(record))
    for arm in found["tuning"]["arms"].values():
        del arm["seconds"]
        for trial in arm["trials"]:
            del trial["seconds"]
    for row in found["arms"]:
        del row["seconds"], row["peak_mb"]
    del found["command"], found["report"]
    return dict(found)


def test_the_best_trial_decides_and_the_seeds_have_its_settings(
    inline: Inline, tmp_path: Path
) -> None:
    events: list[Event] = []
    found = searched(tmp_path, seeds=2, on_event=events.append)
    trials = [("mean", 0), ("mean", 1), ("mean", 2), ("tfidf", 0), ("tfidf", 1), ("tfidf", 2)]
    assert inline.ran == [*trials, ("mean", 0), ("tfidf", 0), ("mean", 1)]
    assert {event.name for event in events if event.what == "trial"} == {
        f"{arm}, trial {k}" for arm, k in trials
    }
    assert {event.total for event in events} == {9}
    tuning = found.record()["tuning"]
    assert json.loads((tmp_path / "comparison.json").read_text())["tuning"] == tuning
    assert found.json()["tuning"] == tuning
    for arm in found.arms:
        mine = tuning["arms"][arm.arm.name]
        scores = [(t["validation"], -t["loss"]) for t in mine["trials"]]
        assert mine["best"] == scores.index(max(scores))
        assert mine["trials"][0]["settings"] == {}
        chosen = mine["trials"][mine["best"]]["settings"]
        config = runs.load(tmp_path / arm.arm.name / "seed-0").config
        values = {**config.training.model_dump(), **config.network.model_dump()}
        assert {key: str(values[key]) for key in mine["settings"]} == mine["settings"]
        assert chosen.items() <= mine["settings"].items()
        assert [len(each) for each in mine["expected"]] == [2, 2, 2]
        assert mine["expected"][0] == [scores[0][0], 0.0]
        assert mine["gain"] == pytest.approx(max(scores)[0] - scores[0][0])
    assert set(tuning["arms"]["mean"]["space"]) == set(tuning["arms"]["mean"]["default"])
    words = found.record()["command"]
    assert words[words.index("--tune") :][:4] == ["--tune", "3", "--tune-space", NETWORK[0]]
    assert not list(tmp_path.rglob("trial-*/"))


def test_a_trial_does_not_read_the_test_split(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(self: Classification) -> Any:
        raise AssertionError("the test split was read")

    study = checked("classification", "mean,tfidf", out=tmp_path, overrides=TINY, search=Search(2))
    monkeypatch.setattr(Classification, "test", property(read))
    for arm in study.arms:
        asked(tmp_path, (), arm.folder)
        task = study.trial(arm, 0, {})
        assert f"seed={TRIAL_SEED}" in task.overrides
        assert train_and_validate(task, lambda *said: None).startswith("validation ")
        trial = read_trial(Path(task.folder))
        assert trial is not None
        assert trial.state == "complete"
        assert trial.about["fingerprint"]
        assert not Path(task.folder).exists()
    with pytest.raises(AssertionError, match="the test split was read"):
        trained_run(tmp_path / "run", "classification", "tfidf", TINY[1:])


def test_the_score_is_the_best_validation_and_survives_a_kill_before_it_is_kept(
    tmp_path: Path,
) -> None:
    given = ("steps=6", "evaluate_every=2", *TINY[:1], *TINY[2:], "threads=1", "save_every=1")
    task = asked(tmp_path, given)
    run = runs.open_or_start(Path(task.folder), "classification", "mean", given)
    rows = [row for row in run.try_out() if row.validation is not None]
    assert not run.complete
    assert not (Path(task.folder) / "predictions.jsonl").exists()
    train_and_validate(task, lambda *said: None)  # finds a training at its end
    trial = read_trial(Path(task.folder))
    assert trial is not None
    best = max((row.validation, -row.validation_loss) for row in rows)  # type: ignore[operator]
    assert (trial.validation, -trial.loss) == best  # type: ignore[operator]
    assert trial.steps == 6


class StoppedError(Exception):
    pass


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_stopped_anywhere_and_run_again_it_finds_the_same(
    inline: Inline, tmp_path: Path, sampler: Any
) -> None:
    given: dict[str, Any] = {"trials": 8, "arms": "tfidf,nb-svm", "search": {"space": ()}}
    given["search"] |= {"sampler": sampler}
    whole = what_was_found(searched(tmp_path / "whole", **given).record())
    inline.ran.clear()
    for stop in (1, 9):
        left = iter(range(stop))

        def stop_there(event: Event, left: Iterator[int] = left) -> None:
            if event.kind == "progress" and next(left, None) is None:
                raise StoppedError

        with pytest.raises(StoppedError):
            searched(tmp_path / "parts", **given, on_event=stop_there)
    again = what_was_found(searched(tmp_path / "parts", **given).record())
    assert again == whole
    assert len(inline.ran) == 18 + 2  # two were stopped, and begun again


def test_a_journal_with_a_line_cut_off_goes_on_and_a_foreign_one_is_refused(
    inline: Inline, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"arms": "tfidf,nb-svm", "search": {"space": ()}}
    whole = what_was_found(searched(tmp_path, **given).record())
    path = tmp_path / JOURNAL
    path.write_bytes(path.read_bytes() + b'{"op_code":4,"wor')
    assert what_was_found(searched(tmp_path, **given).record()) == whole
    assert open_search(tmp_path, "cnn") is None
    lines = path.read_text().splitlines()
    assert all(isinstance(json.loads(line), dict) for line in lines), "nothing else is stored"
    for odd in ("[1]", '{"op_code": 99}', "\x80\x04", '{"op_code": 0, "worker_id": "x"}'):
        path.write_text(f"{odd}\n")
        with pytest.raises(RegardError, match="give another --out"):
            searched(tmp_path, **given)


@pytest.mark.slow
def test_killed_and_run_again_by_the_command_it_finds_the_same(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "regard", "compare", "classification", "--arms", "tfidf,nb-svm"]
    words += ["--tune", "3", "--seeds", "1", "--workers", "1", "examples=200", "--json", "--out"]
    place = tmp_path / "killed" / "tfidf" / "tune" / "trial-1"
    command = subprocess.Popen(
        [*words, str(tmp_path / "killed")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    until = time.monotonic() + 120
    while read_trial(place) is None and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(command.pid, signal.SIGKILL)
    command.wait()
    assert read_trial(place)
    assert not (tmp_path / "killed" / "comparison.json").exists()
    results = []
    for name in ("killed", "whole"):
        subprocess.run([*words, str(tmp_path / name)], check=True, capture_output=True)
        results.append(json.loads((tmp_path / name / "comparison.json").read_text()))
    killed, whole = map(what_was_found, results)
    assert killed == whole


def test_more_trials_may_follow_until_the_test_is_read(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_module, "launch", lambda jobs, *_, **__: [])
    with pytest.raises(RegardError, match="no arm has a result"):
        searched(tmp_path, 2, "tfidf,nb-svm", search={"space": ()})
    inline.ran.clear()
    monkeypatch.setattr(compare_module, "launch", inline)
    searched(tmp_path, 3, "tfidf,nb-svm", search={"space": ()})
    assert inline.ran == [("tfidf", 2), ("nb-svm", 2), ("tfidf", 0), ("nb-svm", 0)]
    with pytest.raises(RegardError, match="holds another search: trials is 3 there and 4 here"):
        searched(tmp_path, 4, "tfidf,nb-svm", search={"space": ()})
    with pytest.raises(RegardError, match="holds another search: sampler is random there and tpe"):
        searched(tmp_path, 3, "tfidf,nb-svm", search={"space": (), "sampler": "tpe"})
    with pytest.raises(RegardError, match="tfidf holds another search: space is "):
        searched(tmp_path, 3, "tfidf,nb-svm", search={"space": ("ngrams=1,2",)})


def test_runs_without_a_search_are_not_taken_for_searched_ones(
    inline: Inline, tmp_path: Path
) -> None:
    compare(
        declared(
            "classification", "mean,tfidf", seeds=1, out=tmp_path, overrides=[*TINY, "minimum=1"]
        )
    )
    with pytest.raises(RegardError, match="mean was trained without a search; give another --out"):
        searched(tmp_path)


def test_a_trial_of_other_settings_or_data_is_refused(
    inline: Inline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "own.csv"
    rows = [f"film {i} is {word},{label}" for i in range(60)
            for word, label in (("good", "pos"), ("bad", "neg"))]  # fmt: skip
    data.write_text("\n".join(["text,label", *rows]))
    given: dict[str, Any] = {"trials": 2, "arms": "tfidf,nb-svm", "search": {"space": ()}}
    monkeypatch.setattr(compare_module, "launch", lambda jobs, *_, **__: [])
    with pytest.raises(RegardError, match="no arm has a result"):
        searched(tmp_path / "c", **given, overrides=[f"data={data}"])
    with pytest.raises(RegardError, match="trial-0 holds another trial: fewer settings there and "):
        searched(tmp_path / "c", **given, overrides=[f"data={data}", "examples=90"])
    data.write_text(data.read_text().replace("film 3 is good,pos", "film 3 is good,neg"))
    with pytest.raises(RegardError, match=r"the data changed since .*trial-0 was tried; give ano"):
        searched(tmp_path / "c", **given, overrides=[f"data={data}"])


def test_settings_that_cannot_be_trained_are_trials_that_failed(
    inline: Inline, tmp_path: Path
) -> None:
    arms = "transformer:layers=1,feedforward=8,heads=2;tfidf"
    found = searched(
        tmp_path, 6, arms, search={"space": ("width=6,7,10,11",)}, overrides=TINY[1:]
    )  # fmt: skip
    name = found.arms[0].arm.name
    mine = found.record()["tuning"]["arms"][name]
    states = {trial["settings"].get("width"): trial["state"] for trial in mine["trials"]}
    assert states.pop(None) == "complete"  # of the default
    assert states == {w: "failed" if int(w) % 2 else "complete" for w in states}
    assert set(states.values()) == {"complete", "failed"}
    failed = next(trial for trial in mine["trials"] if trial["state"] == "failed")
    assert "heads" in failed["says"]
    assert failed["validation"] is None
    assert mine["trials"][mine["best"]]["state"] == "complete"
    assert all(best[0] > 0 for best in mine["expected"])


def test_a_loss_that_diverges_is_a_trial_that_failed(inline: Inline, tmp_path: Path) -> None:
    task = asked(tmp_path, [*TINY, "learning_rate=1e30", "clip=0", "threads=1"])
    says = train_and_validate(task, lambda *said: None)
    trial = read_trial(Path(task.folder))
    assert trial is not None
    assert trial.state == "failed"
    assert "not finite" in trial.says
    assert says == f"failed: {trial.says}"
    assert trial.rank(0) < Trial((), "complete", 0.0, 9.0, 1, 1.0, "", {}).rank(1)


def test_of_perfect_trials_the_shortest_is_best_of_others_that_with_the_lowest_loss() -> None:
    def ranked(validation: float) -> list[int]:
        pairs = [(0.01, 700), (0.1, 200), (0.1, 200)]
        trials = [Trial((), "complete", validation, loss, n, 1.0, "", {}) for loss, n in pairs]
        return sorted(range(3), key=lambda number: trials[number].rank(number), reverse=True)

    assert ranked(1.0) == [1, 2, 0]
    assert ranked(0.99) == [0, 1, 2]


def test_an_arm_whose_trial_could_not_run_has_no_result_and_goes_on_later(
    inline: Inline, tmp_path: Path
) -> None:
    inline.failing = {"tfidf"}
    found = searched(tmp_path, 2)
    assert [str(failure) for failure in found.failures] == [
        "tfidf, trial 0: it would not learn",
        "tfidf, trial 1: it would not learn",
    ]
    assert found.record()["errors"][0]["what"] == "trial"
    assert [row.arm.name for row in found.arms] == ["mean"]
    inline.failing, inline.ran = set(), []
    again = searched(tmp_path, 2)
    assert inline.ran == [("tfidf", 0), ("tfidf", 1), ("tfidf", 0)]
    assert again.failures == ()


def test_an_arm_none_of_whose_trials_can_be_trained_says_so(inline: Inline, tmp_path: Path) -> None:
    data = tmp_path / "own.csv"
    rows = [f"{chr(97 + i % 26)}{i} {word}{i},{label}" for i in range(40)
            for word, label in (("good", "pos"), ("bad", "neg"))]  # fmt: skip
    data.write_text("\n".join(["text,label", *rows]))
    found = searched(
        tmp_path / "c", 2, "nb-svm;tfidf:minimum=40", overrides=[f"data={data}"],
        search={"space": ("minimum=1,2",)},
    )  # fmt: skip
    (failure,) = found.failures
    assert str(failure).startswith("tfidf:minimum=40, trial 0: all 2 trials failed, this one bec")


def test_ranges_and_validation_are_checked_before_anything_runs(
    inline: Inline, tmp_path: Path
) -> None:
    with pytest.raises(RegardError, match=r"arm mean, range of dropout: dropout='2\.0'"):
        searched(tmp_path, search={"space": ("dropout=0..2",)})
    asked: dict[str, Any] = {"arms": ["gpt", "gpt:layers=1"], "search": Search(2)}
    with pytest.raises(RegardError, match="validation=0 holds no texts out"):
        checked("birthplace-pretrain", **asked, out=tmp_path)
    assert inline.ran == []
    assert list(tmp_path.iterdir()) == []
    asked = {"arms": ["gru", "bahdanau"], "search": Search(2)}
    checked("dates", **asked, out=tmp_path)  # 0 is chosen automatically there
