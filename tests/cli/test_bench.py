"""``regard bench``: a list, a benchmark by name, JSON of the promised shape."""

import json

import pytest
from typer.testing import CliRunner

from regard.benchmarks import text_training
from regard.cli.main import app
from regard.errors import RegardError

CASE = {
    "name": "a case",
    "against": "a peer",
    "ours_s": 0.5,
    "theirs_s": 1.0,
    "time_ratio": 2.0,
    "ours_mb": None,
    "theirs_mb": 12.0,
}


def test_without_a_name_it_lists() -> None:
    found = CliRunner().invoke(app, ["bench"])
    assert found.exit_code == 0
    assert "text-training" in found.stdout
    assert "attention" in found.stdout


def test_json_has_machine_and_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def cases(**how: object) -> list[dict[str, object]]:
        asked.update(how)
        return [CASE]

    monkeypatch.setattr(text_training, "cases", cases)
    words = ["bench", "text-training", "width=8", "--quick", "--json"]
    result = json.loads(CliRunner().invoke(app, words).stdout)
    assert set(result) == {"machine", "cases"}
    assert result["cases"] == [CASE]
    assert asked == {"quick": True, "settings": ["width=8"]}
    table = CliRunner().invoke(app, ["bench", "text-training"]).stdout
    assert "2.00" in table
    assert "500.0 ms" in table


def test_unknown_benchmark_offers_the_nearest() -> None:
    error = CliRunner().invoke(app, ["bench", "attension"]).exception
    assert isinstance(error, RegardError)
    assert "did you mean attention?" in str(error)
