"""``--jobs``, ``--launch`` and ``regard job`` on the command line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import regard as package
from regard.lab.runs.folder import Folder
from tests.lab.cli.conftest import Command

TINY = "width=8 steps=4 examples=200 length=30 batch_tokens=600".split()
HOME = str(Path(package.__file__).parents[1])


def shell(line: str) -> "subprocess.CompletedProcess[str]":
    """Run a line as a scheduler does, in another process."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    python = os.pathsep.join([HOME, os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        line, shell=True, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PATH": path, "PYTHONPATH": python},
    )  # fmt: skip


def test_jobs_are_run_by_a_shell_and_collected(regard: Command, tmp_path: Path) -> None:
    out = tmp_path / "a folder's runs"
    words = ["compare", "classification", "--arms", "tfidf,mean", "--seeds", 2, "--out", out, *TINY]
    listed = regard(*words, "--jobs")
    assert listed.status == 0
    lines = listed.out.splitlines()
    assert len(lines) == 3
    assert "3 jobs can run now" in listed.err
    assert not out.exists()
    for line in lines[:2]:  # seed 0 of both
        assert shell(line).returncode == 0
    again = shell(lines[0])
    assert again.returncode == 0
    assert "already complete" in again.stdout
    assert regard(*words, "--jobs").out.splitlines() == lines[2:]
    collected = regard(*words, "--launch", "none")
    assert collected.status == 2
    assert "error: mean, seed 1: missing: not begun" in collected.err
    assert "failed" not in collected.out
    assert (out / "report.html").exists()
    assert not list(out.rglob("*.progress"))


def test_a_job_refuses_another_run_and_a_folder_that_is_written_to(
    regard: Command, tmp_path: Path
) -> None:
    words = ["job", "classification", *TINY, "seed=0", "--model", "mean", "--out", tmp_path / "r"]
    (tmp_path / "r").mkdir()
    with Folder(tmp_path / "r").locked():
        told = regard.refused(*words)
    assert f"process {os.getpid()} is writing to {tmp_path / 'r'}" in told
    assert regard(*words).status == 0
    told = regard.refused(*words[:2], "width=9", *words[3:])
    assert "contains another run: width is 8 there and 9 here" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "classification", "-a", "mean,rnn", "--jobs", "--launch", "dask"],
         "--jobs and --launch exclude each other"),
        (["compare", "classification", "-a", "mean,rnn", "--launch", "dsk"], "did you mean dask"),
        (["lab", "positions", "--jobs"], "leave --launch and --jobs out"),
        (["job", "classification"], "a job needs --model and --out"),
    ],
)  # fmt: skip
def test_options_that_do_not_fit_are_told(regard: Command, words: list[str], says: str) -> None:
    told = regard(*words)
    assert told.status == 2
    assert says in told.err


def test_a_lab_lists_the_jobs_of_its_comparison(regard: Command, tmp_path: Path) -> None:
    told = regard("lab", "reverse", "--seeds", 1, "--jobs", "--out", tmp_path / "lab")
    assert told.status == 0
    assert all(line.startswith("regard job reverse ") for line in told.out.splitlines())
