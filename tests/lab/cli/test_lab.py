"""``regard lab``: the list, the request that it makes of its flags, where words and JSON go."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from regard.core.errors import RegardError
from regard.lab.cli import lab as command
from regard.lab.cli.main import expanded
from regard.lab.labs import LABS, LabRequest, open_lab

app = typer.Typer()
app.command()(expanded(command.lab))
runner = CliRunner()


class Done:
    """Stands in for a lab's module: says two words, shows progress, keeps the request."""

    asked: LabRequest
    lang = ""
    question = "what?"

    def run(self, request: LabRequest, say: Any, show: Any) -> dict[str, Any]:
        self.asked = request
        show(1, 2, "mean, seed 0")
        say("the verdict")
        return {"task": "t", "claims": []}

    def dry_run(self, request: LabRequest, say: Any) -> dict[str, Any]:
        self.asked = request
        say("in all about 3 s")
        return {"seconds": 3.0}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Done:
    stand_in = Done()

    def opened(name: str, lang: str) -> Done:
        stand_in.lang = lang
        return stand_in

    monkeypatch.setattr(command, "open_lab", opened)
    return stand_in


def test_without_a_name_it_lists_the_labs() -> None:
    result = runner.invoke(app, [])
    assert result.exit_code == 0
    assert LABS["sentiment"].question in result.stdout
    assert json.loads(runner.invoke(app, ["--json"]).stdout)["labs"][0]["name"] == "sentiment"


def test_flags_become_a_request(done: Done, tmp_path: Path) -> None:
    flags = ["--data", "imdb", "--seeds", "5", "--budget", "10m", "--workers", "2"]
    result = runner.invoke(app, ["sentiment", *flags, "--out", str(tmp_path), "width=8", "heads=2"])
    assert result.exit_code == 0, result.output
    assert done.asked == LabRequest("imdb", 5, "10m", tmp_path, 2, ["width=8", "heads=2"])
    assert result.stdout.splitlines() == [LABS["sentiment"].question, "the verdict"]


def test_a_range_of_seeds_and_a_delta_become_a_request(done: Done) -> None:
    assert runner.invoke(app, ["sentiment", "--seeds", "3..30", "--delta", "2"]).exit_code == 0
    assert done.asked == LabRequest(seeds=30, least=3, delta=2.0, overrides=[])
    assert runner.invoke(app, ["sentiment"]).exit_code == 0
    assert done.asked == LabRequest(overrides=[])


def test_the_language_is_an_option_or_a_variable(
    done: Done, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner.invoke(app, ["sentiment"])
    assert done.lang == "en"
    monkeypatch.setenv("REGARD_LANG", "zh")
    runner.invoke(app, ["sentiment"])
    assert done.lang == "zh"
    runner.invoke(app, ["sentiment", "--lang", "en"])
    assert done.lang == "en"


def test_json_alone_is_on_stdout(done: Done) -> None:
    result = runner.invoke(app, ["sentiment", "--json"])
    assert json.loads(result.stdout) == {"task": "t", "claims": []}
    assert "the verdict" in result.stderr


def test_a_dry_run(done: Done) -> None:
    assert json.loads(runner.invoke(app, ["sentiment", "--dry-run", "--json"]).stdout) == {
        "seconds": 3.0
    }


def test_a_wrong_name_offers_the_nearest() -> None:
    result = runner.invoke(app, ["sentimnt"])
    assert isinstance(result.exception, RegardError)
    assert "did you mean sentiment" in str(result.exception)


MINE = """
from regard.lab.labs.comparison import ComparisonLab
from regard.lab.studies.arms import Arm
LAB = ComparisonLab(question="Which?", task="classification", arms=[Arm("mean", "mean")])
three = 3
"""


def test_a_lab_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    lab = open_lab(f"{tmp_path}/mine.py:LAB")
    assert (lab.question, lab.name) == ("Which?", f"{tmp_path}/mine.py:LAB")
    assert lab.place(LabRequest(data="x.csv")) == Path("runs/lab-mine-x")
    assert lab.command(LabRequest()) == f"regard lab {tmp_path}/mine.py:LAB"


@pytest.mark.parametrize(
    ("name", "says"),
    [("three", "is an int, not a lab: write three = ComparisonLab"),
     ("LBA", "is called .LBA.; did you mean LAB")],
)  # fmt: skip
def test_what_is_no_lab(name: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    result = runner.invoke(app, [f"{tmp_path}/mine.py:{name}"])
    assert isinstance(result.exception, RegardError)
    assert re.search(says, str(result.exception))
    result = runner.invoke(app, [f"{tmp_path}/nowhere.py:LAB"])
    assert "nowhere.py cannot be read" in str(result.exception)
