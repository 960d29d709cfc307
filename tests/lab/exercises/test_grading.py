"""Answers are run apart from each other with limits; a course is graded and nothing is harmed."""

import csv
import json
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.core.errors import RegardError
from regard.lab.cli.exercise import app
from regard.lab.exercises import EXERCISES, parts_of, starter
from regard.lab.exercises.runner import Limits, Runner
from regard.lab.exercises.submissions import Answer, answers_in
from tests.lab.exercises.answers import HEAD, RIGHT, WRONG

HEADS = HEAD + RIGHT["heads"][0]
OUTSIDE = Path(__file__).with_name("written-by-an-answer")
HOSTILE = {
    "loop": ("while True:\n    pass\n", "runs longer than 2 s"),
    "memory": ("held = [bytearray(1 << 28) for _ in range(99)]\n", "raises MemoryError"),
    "exit": ("import os\nos._exit(0)\n", "ended without an answer"),
    "files": (f"open({str(OUTSIDE)!r}, 'w')\n", "may write only in its folder"),
    "lines": ("for i in range(1_000_000):\n    print(i)\n", ""),
}


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture(scope="module")
def runner():
    with Runner(Limits(seconds=2, megabytes=512)) as runner:
        yield runner


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_answers_end_with_a_sentence(runner: Runner, name: str) -> None:
    source, words = HOSTILE[name]
    begin = time.monotonic()
    verdict = runner.judge(Answer("heads", Path("heads.py"), source + HEADS))
    assert words in verdict.problem
    assert verdict.passed == (not words)
    assert len(verdict.printed) <= 2_000
    assert time.monotonic() - begin < 60  # the limit works
    assert not OUTSIDE.exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import os; os.kill(os.getppid(), 9)", "may not call os.kill"),
        ("import subprocess; subprocess.run(['true'])", "may not call subprocess.Popen"),
        ("import os; os.system('true')", "may not call os.system"),
        ("import shutil; shutil.rmtree('..')", "may write only in its folder, not .."),
        ("import os; os.rename('answer.py', '../values')", "not ../values"),
        ("raise SystemExit(0)", "raises SystemExit"),
        ("torch.allclose = lambda *a, **k: True\nsplit_heads = lambda x, heads: x", None),
        ("import os; os.abort()", "the process was ended by SIGABRT"),
        ("open('mine.txt', 'w').write('x')\nimport tempfile\ntempfile.mkdtemp()", ""),
    ],
)
def test_an_answer_reaches_nothing_outside(runner: Runner, line: str, words: str | None) -> None:
    verdict = runner.judge(Answer("heads", Path("heads.py"), f"{HEADS}\n{line}\n"))
    if words is None:
        assert verdict.faults["split_heads"].startswith("head and word are not swapped") or (
            "shape" in verdict.faults["split_heads"]
        )
    else:
        assert words in verdict.problem
        assert verdict.passed == (words == "")


def test_check_names_the_fault_and_what_was_printed(tmp_path: Path) -> None:
    path = tmp_path / "masked_softmax.py"
    old, new, words = WRONG["masked-softmax"][0]
    path.write_text(HEAD + RIGHT["masked-softmax"][0].replace(old, new) + "print('here I am')\n")
    shown = run("check", path)
    assert "masked-softmax: 0 of 1 functions right" in shown
    assert words in shown
    assert "here I am" in shown
    row = json.loads(run("check", path, "--json"))["exercises"][0]
    assert (row["passed"], row["points"], row["of"]) == (False, 0, 1)
    path.write_text(HEAD + RIGHT["masked-softmax"][0])
    assert "masked-softmax: 1 of 1 functions right\n  ✓ masked_softmax" in run("check", tmp_path)


def test_start_hint_and_list(tmp_path: Path) -> None:
    assert run("list").count("\n") == len(EXERCISES) + 3
    assert "词" in run("list", "--lang", "zh")
    listed = json.loads(run("list", "--json"))["exercises"]
    assert [row["name"] for row in listed] == [*EXERCISES]
    run("start", "heads", "--out", tmp_path)
    assert (tmp_path / "heads.py").read_text() == starter("heads")
    assert (tmp_path / "heads.md").read_text().startswith("# Split into heads")
    assert "it is still blank" in run("check", tmp_path)
    assert run("hint", "heads", 2).startswith("2/")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["start", "head"], "did you mean heads"),
        (["start", "heads", "--lang", "fr"], "no page in 'fr'; its languages are: en, zh"),
        (["hint", "heads", "99"], "there is no hint 99"),
        (["hint", "heads", "0"], None),
        (["check", "missing"], "missing does not exist; give a file or a folder"),
        (["check", "."], "has no answers; a file is named after its exercise"),
        (["check", ".", "--seconds", "0"], None),
        (["grade", "missing"], "missing is no folder"),
        (["grade", "."], "has no answers to any exercise"),
    ],
)
def test_bad_input(here: Path, words, error) -> None:
    if error is None:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 2
        return
    with pytest.raises(RegardError, match=error):
        run(*words)


def test_start_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "heads.py").write_text("mine")
    with pytest.raises(RegardError, match=r"heads\.py exists"):
        run("start", "heads", "--out", tmp_path)
    assert (tmp_path / "heads.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("heads.py", "def split_heads(:\n", "line 1: invalid syntax"),
        ("heads.py", "x = 1\n" * 200_000, "larger than 1,000,000 bytes"),
        ("heads.ipynb", "not JSON", "cannot be read as a notebook"),
        ("heads.py", "\udcff", "cannot be read as text"),
        ("heads.py", "from regard.lab.exercises.collection.heads import *\n", "own answers"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    (answer,) = answers_in(tmp_path)
    assert words in answer.problem


@pytest.mark.parametrize("only", ["", "heads"])
def test_a_file_of_another_name_that_cannot_be_read_is_reported(tmp_path: Path, only: str) -> None:
    place, out = tmp_path / "submitted", tmp_path / "grades.csv"
    for student, name in (("ann", "homework.py"), ("bob", "heads.py")):
        (place / student).mkdir(parents=True)
        (place / student / name).write_text(HEADS if student == "bob" else "def split_heads(:\n")
    with pytest.raises(RegardError, match=r"^homework.py line 1: invalid syntax$"):
        run("check", place / "ann", "--only", only)
    run("grade", place, "--out", out, "--only", only)
    ann, bob = csv.DictReader(out.read_text().splitlines())
    assert ann["message"] == "not handed in; homework.py line 1: invalid syntax"
    assert (bob["student"], bob["passed"]) == ("bob", "1")


def test_two_files_of_a_student_are_both_graded_or_refused(tmp_path: Path) -> None:
    place, out = tmp_path / "submitted", tmp_path / "grades.csv"
    (place / "ann").mkdir(parents=True)
    (place / "ann" / "heads.py").write_text(HEADS)
    (place / "ann.py").write_text(HEAD + RIGHT["masked-softmax"][0])
    run("grade", place, "--out", out)
    rows = csv.DictReader(out.read_text().splitlines())
    assert {row["exercise"]: row["passed"] for row in rows} == {"heads": "1", "masked-softmax": "1"}
    (place / "ann.py").write_text(HEADS)
    with pytest.raises(RegardError, match=r"heads\.py and .*ann\.py are both of ann, for heads"):
        run("grade", place, "--out", out)


def test_an_out_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RegardError, match=r"cannot write .*file: File exists; give another place"):
        run("start", "heads", "--out", tmp_path / "file")


def test_notebooks_and_files_of_other_names(tmp_path: Path) -> None:
    cells = [{"cell_type": "markdown", "source": "# Heads"},
             {"cell_type": "code", "source": "%%bash\nls | wc\n"},
             {"cell_type": "code", "source": "split_heads?"},
             {"cell_type": "code", "source": ["%matplotlib inline\n", HEADS]}]  # fmt: skip
    (tmp_path / "assignment.ipynb").write_text(json.dumps({"cells": cells}))
    (tmp_path / ".ipynb_checkpoints").mkdir()
    (tmp_path / ".ipynb_checkpoints" / "heads.py").write_text("1 / 0")
    assert "heads: 2 of 2 functions right" in run("check", tmp_path)


def test_thirty_submissions_are_graded_from_end_to_end(tmp_path: Path) -> None:
    place, out = tmp_path / "submitted", tmp_path / "grades.csv"
    points: dict[tuple[str, str], int] = {}
    for i in range(30):
        student = place / f"student{i:02}"
        student.mkdir(parents=True)
        hostile = [*HOSTILE.values()][i][0] if i < len(HOSTILE) else ""
        for j, name in enumerate(EXERCISES):
            source, wrong = RIGHT[name][0], WRONG[name]
            if i >= len(HOSTILE) and (i + j) % 3 == 0:
                source = source.replace(*wrong[i % len(wrong)][:2])
            else:
                points[student.name, name] = len(parts_of(name))
            code = HEAD + (hostile if name == "heads" else "") + source
            (student / f"{name.replace('-', '_')}.py").write_text(code)
    begin = time.monotonic()
    run("grade", place, "--out", out, "--seconds", 5, "--memory", 512)
    assert time.monotonic() - begin < 300
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 30 * len(EXERCISES)
    for row in rows:
        key = row["student"], row["exercise"]
        i = int(row["student"].removeprefix("student"))
        if i < len(HOSTILE) and row["exercise"] == "heads":
            assert [*HOSTILE.values()][i][1].replace("2 s", "5 s") in row["message"]
        elif key in points:
            assert (row["passed"], int(row["points"])) == ("1", points[key]), row
        else:
            assert row["passed"] == "0", row
            assert row["message"], row
    assert not OUTSIDE.exists()
