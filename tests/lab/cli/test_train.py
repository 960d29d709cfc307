import json
import os
from pathlib import Path

import pytest

from regard.lab import runs
from tests.lab.small_runs import stop_after

from .conftest import TINY, Command

SAVED = [*TINY, "save_every=1"]


def test_trains_and_names_the_run_and_what_comes_next(regard: Command, here: Path) -> None:
    words = ("train", "classification", "--model", "attention-pool", "--budget", "3 steps")
    said = regard(*words, "examples=120")
    assert said.status == 0
    folder = Path("runs/classification-attention-pool")
    assert (folder / "MANIFEST.json").exists()
    assert "test accuracy" in said.out
    assert f"run: {folder}" in said.out
    for command in ("predict", "show", "evaluate"):
        assert f"regard {command} {folder}" in said.out
    assert "3 of 3" in said.err
    again = regard(*words, "examples=120")
    assert again.status == 0
    assert "already complete" in again.out


def test_json_is_one_object_and_nothing_else(regard: Command, trained: Path) -> None:
    said = regard("train", "classification", "--out", trained, "--json", *TINY)
    assert said.status == 0
    found = json.loads(said.out)
    assert said.out.count("\n") == 1
    assert found["run"] == str(trained)
    assert found["was_complete"] is True
    assert found["n"] == 1_000
    assert found["low"] <= found["value"] <= found["high"]
    assert found["steps"] > 1


def test_a_run_is_trained_once_more_by_its_config(
    regard: Command, trained: Path, tmp_path: Path
) -> None:
    said = regard("train", "classification", "--config", trained, "--out", tmp_path / "again")
    assert said.status == 0, said.err
    one, two = (
        (folder / "predictions.jsonl").read_bytes() for folder in (trained, tmp_path / "again")
    )
    assert one == two
    file = trained / "config.toml"
    assert (tmp_path / "again" / "config.toml").read_bytes() == file.read_bytes()
    said = regard(
        *("train", "classification", "--config", file, "--out", tmp_path / "other", "--json"),
        *("seed=3", "--budget", "0.5 epochs"),
    )
    assert json.loads(said.out)["steps"] < 10
    assert "seed = 3" in (tmp_path / "other" / "config.toml").read_text()
    told = regard.refused("train", "reverse", "--config", trained, "--out", tmp_path / "none")
    assert "error: --config is for the task classification, not for reverse" in told
    told = regard.refused("train", "classification", "--config", tmp_path / "none.toml")
    assert "does not exist" in told


def test_other_settings_are_one_line_and_exit_code_2(regard: Command, trained: Path) -> None:
    told = regard.refused("train", "classification", "--out", trained, *TINY[:-1], "seed=3")
    assert told.startswith("error: ")
    assert "seed is 0 there and 3 here" in told


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "clasification"], "did you mean classification"),
        (["train", "classification", "model=rnn"], "model=rnn is an option: write --model rnn"),
        (["train", "classification", "--model", "transfomer"], "did you mean transformer"),
        (["train", "classification", "learning_rat=1"], "did you mean learning_rate"),
        (["train", "classification", "learning_rate=fast"], "learning_rate='fast'"),
        (["train", "classification", "learning_rate"], "key=value, not 'learning_rate'"),
        (["train", "classification", "--budget", "10"], "budget '10' has no unit"),
        (
            ["train", "classification", "--budget", "3 steps", "epochs=2"],
            "only one budget is allowed",
        ),
        (["train", "classification", "--data", "nowhere.csv"], "nowhere.csv"),
        (["train", "classification", "schedule=cosin"], "did you mean cosine"),
        (
            ["train", "classification", "lenght=3"],
            "did you mean length or learning_rate or class_weights? There",
        ),
        (
            ["train", "classification", "--pretrain-budget", "5 steps"],
            "--pretrain-budget needs --pretrain-on",
        ),
        (["train", "classification", "text=review", "steps=1"], "reviews has no columns"),
        (
            ["train", "language-modeling", "text=x", "steps=1"],
            "pydoc has no columns; remove text=x",
        ),
    ],
)
def test_mistakes_are_one_line_with_exit_code_2(
    regard: Command, here: Path, words: list[str], hint: str
) -> None:
    assert hint in regard.refused(*words)


def test_bad_data_are_named_by_file_and_line(regard: Command, here: Path) -> None:
    one = here / "one.csv"
    one.write_text("text,label\n" + "good film,up\n" * 30)
    words = ("train", "classification", "--model", "mean", "--data")
    assert "one.csv" in regard.refused(*words, one)
    latin = here / "latin.csv"
    latin.write_bytes(b"text,label\ngood film,up\ncaf\xe9,down\n")
    assert "latin.csv:3" in regard.refused(*words, latin)
    good = here / "good.csv"  # and a run that came to nothing is not in the way
    rows = [f"{word} film {n},{word}" for n in range(40) for word in ("good", "bad")]
    good.write_text("\n".join(["text,label", *rows]))
    said = regard(*words, good, "steps=2")
    assert said.status == 0
    assert "run: runs/classification-mean" in said.out


def test_dry_run_forecasts_and_writes_nothing(regard: Command, here: Path) -> None:
    said = regard("train", "classification", "--dry-run", *TINY)
    assert said.status == 0
    assert list(here.iterdir()) == []
    assert "tokens/s" in said.out
    assert "MB of memory" in said.out
    short = [pair for pair in TINY if not pair.startswith("epochs")]
    said = regard("train", "classification", "--dry-run", "--budget", "0.5s", *short)
    assert "updates fit into 0.00833333 minutes, too few" in said.out
    found = json.loads(regard("train", "classification", "--dry-run", "--json", *TINY).out)
    assert found["warnings"] == []
    assert found["test"] == 1_000
    assert found["seconds"] > 0
    assert found["memory_mb"] > 50


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A run that was stopped after its second step."""
    stop_after(runs.start(tmp_path / "run", "classification", "transformer", SAVED), 3)
    return tmp_path / "run"


def test_resume_is_said(regard: Command, stopped: Path) -> None:
    said = regard("train", "classification", "--out", stopped, *SAVED)
    assert said.status == 0
    assert "Resumed from step 2." in said.err


def test_a_stopped_training_is_ended_by_a_word(
    regard: Command, stopped: Path, tmp_path: Path
) -> None:
    said = regard("train", "classification", "--out", stopped, "--end", *SAVED)
    assert said.status == 0
    assert "ended by --end after" in said.out
    assert "test accuracy" in said.out
    again = json.loads(regard("train", "classification", "--out", stopped, "--json", *SAVED).out)
    assert again["was_complete"]
    assert 0 < again["ended"] < 1
    nothing = regard.refused("train", "classification", "--out", tmp_path / "new", "--end", *SAVED)
    assert "there is no checkpoint yet" in nothing


def test_settings_are_listed_with_their_values_and_meanings(regard: Command, here: Path) -> None:
    words = ("train", "dates", "--settings", "beam=3", "tie=yes")
    lines = [line.split() for line in regard(*words).out.splitlines()]
    assert [line[0] for line in lines if len(line) == 1 and line[0].endswith(":")] == [
        "dates:",
        "bahdanau:",
        "training:",
    ]
    assert ["beam=3", "beam", "size;"] in [line[:3] for line in lines]
    assert ["data=dates", "reverse,", "dates,"] in [line[:3] for line in lines]
    assert ["readout=maxout", "state,", "maxout"] in [line[:3] for line in lines]
    found = json.loads(regard(*words, "--json").out)
    assert found["model"]["tie"] == {
        "value": True, "means": "share source and target word vectors",
    }  # fmt: skip
    assert found["training"]["optimizer"]["means"].startswith("adamw or muon: ")
    assert list(here.iterdir()) == []
    assert "did you mean beam" in regard.refused("train", "dates", "--settings", "beams=3")


def test_a_budget_in_minutes_says_the_steps_that_repeat_it(regard: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    tiny = "width=8 examples=120 batch_tokens=300 threads=1 precision=fp32 patience=0".split()
    timed = ("train", "classification", "--model", "mean", *tiny, "minutes=0.003", "--out", out)
    found = json.loads(regard(*timed, "--json").out)
    assert found["repeat"] == f"steps={found['steps']}"
    told = regard(*timed).out
    assert f"its budget of 0.003 minutes gave {found['steps']:,} steps on this machine" in told
    report = tmp_path / "report.html"
    regard("report", out, "--out", report)
    assert f"-again {found['repeat']}" in report.read_text()
    again = regard(
        *("train", "classification", "--config", out, "--out", tmp_path / "again"),
        *(found["repeat"], "--json"),
    )
    assert json.loads(again.out)["steps"] == found["steps"]
    assert json.loads(again.out)["repeat"] is None


def test_a_default_folder_never_masks_an_error_nor_clashes(regard: Command, here: Path) -> None:
    """Arguments and data come first; other settings get a folder of their own; a rerun resumes."""
    quick = ("train", "classification", "--model", "tfidf")
    Path("one.csv").write_text("text,label\n" + "a film,1\n" * 30)
    for mistake, error in (
        (("--data", "nowhere.csv"), "nowhere.csv: no such file"),
        (("examples=0.5",), "examples='0.5'"),
        (("--data", "one.csv"), "all 30 rows have the label '1'"),
    ):
        assert error in regard.refused(*quick, *mistake)
        assert os.listdir() == ["one.csv"]  # a failed start leaves nothing
    assert regard(*quick, "examples=120").status == 0
    for place in ([], ["--out", "runs/classification-tfidf"]):
        for mistake, error in (
            (("--data", "nowhere.csv"), "nowhere.csv: no such file"),
            (("exampels=9",), "did you mean examples"),
        ):
            assert error in regard.refused(*quick, *mistake, *place)
    told = regard.refused(*quick, "examples=130", "--out", "runs/classification-tfidf")
    assert "contains another run: examples is 120 there and 130 here" in told
    beside = Path("runs/classification-tfidf-examples-130")
    said = regard(*quick, "examples=130")
    assert f"this is {beside}" in said.err
    assert f"run: {beside}\n" in said.out
    assert f"{beside} is already complete" in regard(*quick, "examples=130").out
    (beside / "config.toml").write_text((beside / "config.toml").read_text().replace("130", "140"))
    timed = regard(*quick, "examples=130", "--json")
    assert json.loads(timed.out)["run"].startswith(f"{beside}-2")
    assert json.loads(regard(*quick, "examples=130", "--json").out)["was_complete"]


def test_a_start_that_is_interrupted_leaves_no_settings(
    regard: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("regard.lab.runs.learning.begin", interrupted)
    assert regard("train", "classification", *TINY).status == 130
    assert os.listdir() == []
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("")
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert "files that are not a run" in regard("train", "classification", "--out", "mine").err
    assert os.listdir("mine") == ["notes.txt"]
