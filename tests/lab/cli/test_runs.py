"""``regard runs``: a table of runs, their differences, tags, and a careful deletion."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.lab.small_runs import trained_run

from .conftest import TINY, Command


@pytest.fixture
def two(trained: Path, tmp_path: Path) -> Path:
    """A folder with two runs, one of them not complete, and one folder that is no run."""
    home = tmp_path / "runs"
    shutil.copytree(trained, home / "a")
    (home / "deep").mkdir()
    from regard.lab import runs

    runs.start(home / "deep" / "b", "classification", "rnn", ["seed=3", "examples=50"])
    (home / "none").mkdir()
    (home / "none" / "config.toml").write_text("x = [")
    return home


def test_the_table_is_sorted_and_filtered(regard: Command, two: Path) -> None:
    said = regard("runs", "list", two)
    head, first, second = said.out.splitlines()
    assert head.split() == "run task model data score seed when size tags".split()
    assert first.split()[:4] == ["a", "classification", "transformer", "reviews"]
    assert second.split()[0] == "deep/b"
    assert "not complete" in second
    rows = json.loads(regard("runs", "list", two, "--json").out)["runs"]
    best = json.loads((two / "a" / "metrics.jsonl").read_text().splitlines()[-1])["best"]
    assert [(row["model"], row["seed"], row["score"], row["complete"]) for row in rows] == [
        ("transformer", 0, best, True), ("rnn", 3, None, False)
    ]  # fmt: skip
    files = [path for path in (two / "a").rglob("*") if path.is_file()]
    assert rows[0]["bytes"] == sum(path.stat().st_size for path in files)
    by_seed = regard("runs", "list", two, "--sort", "seed", "--reverse").out.splitlines()
    assert [line.split()[0] for line in by_seed[1:]] == ["deep/b", "a"]
    only = regard("runs", "list", two, "--model", "rnn").out.splitlines()
    assert [line.split()[0] for line in only[1:]] == ["deep/b"]
    assert regard("runs", "list", two, "--model", "cnn").out == f"no runs in {two} match\n"


def test_tags(regard: Command, two: Path) -> None:
    from regard.lab import runs

    assert regard("runs", "tag", two / "a", "good", "first").out == f"{two / 'a'}: first good\n"
    regard("runs", "tag", two / "a", "--remove", "first")
    assert regard("runs", "list", two, "--tag", "good").out.count("\n") == 2
    assert regard("runs", "list", two, "--tag", "good", "--tag", "first").out.count("\n") == 1
    assert runs.load(two / "a").evaluate().n == 1_000  # the seal holds
    for words, hint in (
        (("a b",), "is not valid"),
        (("--remove", "none"), "has no tag 'none'; its tags: good"),
        (("\x1b[2J",), "'\\x1b[2J' is not valid"),
    ):
        assert hint in regard.refused("runs", "tag", two / "a", *words)


def test_a_comparison_names_settings_and_scores(
    regard: Command, trained: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    pairs = [pair for pair in TINY if not pair.startswith("epochs")]
    trained_run(other, "classification", "rnn", [*pairs[:1], "steps=2", "seed=4"])
    said = regard("runs", "compare", trained, other)
    assert said.status == 0, said.err
    cells = {line.split()[0]: line.split()[1:] for line in said.out.splitlines() if line.strip()}
    assert (cells["model"], cells["seed"]) == (["transformer", "rnn"], ["0", "4"])
    assert "examples" not in cells
    assert "regard compare classification --arms transformer,rnn --seeds 5" in said.out
    found = json.loads(regard("runs", "compare", trained, other, "--json").out)
    values = [f"{score['value']:.2%}" for score in found["scores"]]
    line = next(line for line in said.out.splitlines() if line.startswith("accuracy"))
    assert [value in line for value in values] == [True, True]
    assert {"setting": "seed", "a": 0, "b": 4} in found["settings"]
    same = regard("runs", "compare", trained, trained)
    assert "all settings" in same.out


def test_deletion_asks_and_refuses_what_is_no_run(
    regard: Command, two: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, outside = two / "a", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious.txt").write_text("x")
    link, mixed = tmp_path / "link", two / "deep" / "b"
    link.symlink_to(run)
    (mixed / "thesis.txt").write_text("x")
    for path, hint in (
        (two, "contains no run"),
        (two / "none", "is not the config of a run"),
        (tmp_path / "nowhere", "does not exist"),
        (link, "is a link"),
        (mixed, "contains 'thesis.txt', which is not part of a run"),
    ):
        said = regard("runs", "delete", run, path, "--yes")
        assert said.status == 2
        assert hint in said.err
        assert run.exists()
    monkeypatch.setattr(sys, "stdin", None)
    said = regard("runs", "delete", run)
    assert (said.status, run.exists()) == (2, True)
    assert "add --yes" in said.err
    (run / "checkpoints").mkdir()
    (run / "checkpoints" / "out").symlink_to(outside)
    assert regard("runs", "delete", run, "--yes").out == "deleted 1 run\n"
    assert (run.exists(), (outside / "precious.txt").read_text()) == (False, "x")
    assert list(two.glob(".*")) == []


def test_a_running_training_is_not_deleted(regard: Command, two: Path) -> None:
    from regard.core.atomic_io import locked

    with locked(two / "a" / ".lock", wait=False):
        said = regard("runs", "delete", two / "a", "--yes")
    assert (said.status, (two / "a" / "config.toml").exists()) == (2, True)
    assert "is writing to" in said.err


def test_a_strangers_run_is_listed_and_runs_nothing(regard: Command, tmp_path: Path) -> None:
    code, run = tmp_path / "evil.py", tmp_path / "runs" / "x"
    code.write_text(f"open({str(tmp_path / 'proof')!r}, 'w')\nclass Model: ...\n")
    run.mkdir(parents=True)
    (run / "config.toml").write_text(
        f'task = "classification"\nmodel = "{code}:Model"\n'
        f'[data]\ndata = "\\u001b[2J"\n[network]\nscore = "{code}:Model"\n[training]\n'
    )
    (run / "metrics.jsonl").write_text("[" * 50_000)
    (run / ".tags.json").write_text('["\\u001b[31m"]')
    said = regard("runs", "list", tmp_path / "runs")
    assert (said.status, "evil.py:Model" in said.out, "\x1b" in said.out) == (0, True, False)
    assert regard("runs", "compare", run, run).status == 2
    assert not (tmp_path / "proof").exists()
    assert regard("runs", "delete", run, "--yes").status == 0


def test_mistakes(regard: Command, here: Path) -> None:
    assert "is not a folder" in regard.refused("runs", "list", here / "none")
    assert "no runs in runs; create one" in regard("runs", "list").out  # its default folder
    assert "create one: regard train" in regard("runs", "list", here).out
    assert regard("runs", "list", here, "--sort", "colour").status == 2
    assert regard("runs", "compare", here, here).status == 2
