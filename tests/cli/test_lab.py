"""``regard lab``: the list, the order that it makes of its flags, where words and JSON go."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from regard.cli import lab as command
from regard.errors import RegardError
from regard.labs import LABS, Lab, Order

app = typer.Typer()
app.command()(command.lab)
runner = CliRunner()


class Done:
    """Stands in for a lab's module: says two words, shows progress, keeps the order."""

    asked: Order

    def run(self, order: Order, say: Any, show: Any) -> dict[str, Any]:
        self.asked = order
        say("the question")
        show(1, 2, "mean, seed 0")
        say("the verdict")
        return {"task": "t", "claims": []}

    def rehearse(self, order: Order, say: Any) -> dict[str, Any]:
        self.asked = order
        say("in all about 3 s")
        return {"seconds": 3.0}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Done:
    stand_in = Done()
    monkeypatch.setattr(Lab, "_module", lambda self: stand_in)
    return stand_in


def test_without_a_name_it_lists_the_labs() -> None:
    result = runner.invoke(app, [])
    assert result.exit_code == 0
    assert LABS["sentiment"].question in result.stdout
    assert json.loads(runner.invoke(app, ["--json"]).stdout)["labs"][0]["name"] == "sentiment"


def test_flags_become_an_order(done: Done, tmp_path: Path) -> None:
    flags = ["--data", "imdb", "--seeds", "5", "--budget", "10m", "--workers", "2"]
    result = runner.invoke(app, ["sentiment", *flags, "--out", str(tmp_path), "width=8", "heads=2"])
    assert result.exit_code == 0, result.output
    assert done.asked == Order("imdb", 5, "10m", tmp_path, 2, ["width=8", "heads=2"])
    assert result.stdout.splitlines() == ["the question", "the verdict"]


def test_json_alone_is_on_stdout(done: Done) -> None:
    result = runner.invoke(app, ["sentiment", "--json"])
    assert json.loads(result.stdout) == {"task": "t", "claims": []}
    assert "the verdict" in result.stderr


def test_a_rehearsal(done: Done) -> None:
    assert json.loads(runner.invoke(app, ["sentiment", "--dry-run", "--json"]).stdout) == {
        "seconds": 3.0
    }


def test_a_lab_that_cannot_be_rehearsed_says_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lab, "_module", lambda self: object())
    found = json.loads(runner.invoke(app, ["scores", "--dry-run", "--json"]).stdout)
    assert (found["seconds"], found["forecast"]) == (None, [])
    assert found["says"].startswith("regard lab scores measures nothing beforehand")
    assert found["says"].endswith("it took 50 s on two cores; with pairs=all, 16 minutes on one.")
    told = runner.invoke(app, ["scores", "--dry-run", "pairs=all"]).stdout
    assert "What is set here changes that." in " ".join(told.split())


def test_no_lab_without_a_forecast_is_silent_about_its_time() -> None:
    compare = {"sentiment", "reverse", "translation", "birthplace", "pretraining"}
    for lab in LABS.values():
        assert bool(lab.takes) != (lab.name in compare)
        if lab.takes:
            assert not hasattr(lab._module(), "rehearse")


def test_a_wrong_name_offers_the_nearest() -> None:
    result = runner.invoke(app, ["sentimnt"])
    assert isinstance(result.exception, RegardError)
    assert "did you mean sentiment" in str(result.exception)
