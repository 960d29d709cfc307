"""``regard bench``: a list, a benchmark by name, JSON of the promised shape, a figure."""

import json
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import regard
from benchmarks import attention, cells, text_training
from regard.analysis import calibration
from regard.attention.kernels import choose
from regard.core.errors import RegardError
from regard.lab.cli.main import app

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


def test_without_a_checkout_it_says_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regard, "__file__", str(tmp_path / "regard" / "__init__.py"))
    (tmp_path / "benchmarks").mkdir()  # another's: no checkout has it without a pyproject.toml
    for words in (["bench"], ["bench", "attention"]):
        error = CliRunner().invoke(app, words).exception
        assert isinstance(error, RegardError)
        assert "needs a checkout" in str(error)
        assert "pip install" in str(error)
    monkeypatch.setattr(choose, "constants_file", lambda: tmp_path / "kernels.json")
    monkeypatch.setattr(calibration, "calibrate", lambda **_: {"exact_pairs": 4096})
    assert CliRunner().invoke(app, ["bench", "attention", "--calibrate"]).exit_code == 0


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
    monkeypatch.setattr(text_training, "cases", lambda **how: [CASE | {"says": "accuracy 87.0%"}])
    table = CliRunner().invoke(app, ["bench", "text-training"]).stdout
    assert "a case: accuracy 87.0%" in table


def test_unknown_benchmark_offers_the_nearest() -> None:
    error = CliRunner().invoke(app, ["bench", "attension"]).exception
    assert isinstance(error, RegardError)
    assert "did you mean attention" in str(error)


def test_aims_and_peers_that_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    aimed = CASE | {"aim": "faster", "reached": True}
    absent = dict.fromkeys(CASE) | {
        "name": "another",
        "against": "KeOps (not installed)",
        "aim": "≥ 30× faster",
        "reached": None,
    }
    monkeypatch.setattr(attention, "cases", lambda **how: iter([aimed, absent]))
    table = CliRunner().invoke(app, ["bench", "attention"]).stdout
    assert "KeOps (not installed)" in table
    assert "≥ 30× faster" in table
    assert "1 of 1 aims reached" in table


def test_out_holds_the_json_and_a_figure(tmp_path: Path) -> None:
    words = ["bench", "attention", "rows=peers", "case=causal n=64", "--quick", "--json", "--out"]
    found = CliRunner().invoke(app, [*words, str(tmp_path / "made")])
    assert found.exit_code == 0, found.output
    result = json.loads((tmp_path / "made" / "attention.json").read_text())
    assert result == json.loads(found.stdout)
    assert [case["against"] for case in result["cases"]] == ["SDPA", "SDPA"]
    text = (tmp_path / "made" / "attention.svg").read_text()
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert "dot causal n=64 forward / SDPA" in text


def test_what_was_measured_stays_when_a_later_case_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cases(**how: object) -> Iterator[dict[str, object]]:
        yield CASE
        raise RegardError("a peer fell over")

    monkeypatch.setattr(text_training, "cases", cases)
    words = ["bench", "text-training", "--out", str(tmp_path)]
    assert isinstance(CliRunner().invoke(app, words).exception, RegardError)
    assert json.loads((tmp_path / "text-training.json").read_text())["cases"] == [CASE]


def test_cells_are_counted_and_failures_end_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "name": "dot × softmax",
        "cells": 1300,
        "exact": 1299,
        "difference": 1e-12,
        "failures": [{"cell": "dot × causal × none × softmax × dropout 0", "difference": "1e-03"}],
        "refused": {"it may not be": 2},
        "megabytes": [1.0, 2.0, 4.0, 8.0],
        "memory_exponent": 1.0,
        "reached": False,
    }
    monkeypatch.setattr(cells, "cases", lambda **how: iter([row]))
    found = CliRunner().invoke(app, ["bench", "cells"])
    assert found.exit_code == 1
    assert "1,299 of 1,300 cells exact, 2 refused" in found.stdout
    assert "refused 2: it may not be" in found.stdout
    assert "differs by 1e-03: dot × causal" in found.stdout


def test_calibrate_says_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "constants_file", lambda: tmp_path / "kernels.json")
    monkeypatch.setattr(calibration, "calibrate", lambda **_: {"exact_pairs": 4096})
    found = CliRunner().invoke(app, ["bench", "attention", "--calibrate"])
    assert "4,096" in found.stdout
    assert "kernels.json" in found.stdout
    as_json = CliRunner().invoke(app, ["bench", "attention", "--calibrate", "--json"]).stdout
    assert json.loads(as_json)["constants"] == {"exact_pairs": 4096}
    error = CliRunner().invoke(app, ["bench", "cells", "--calibrate"]).exception
    assert isinstance(error, RegardError)
