"""`regard ranks`: the tables, the JSON and mistakes."""

import json
from pathlib import Path

import pytest

from tests.lab.cli.conftest import Command
from tests.lab.studies.test_ranks import comparison


def folders(out: Path, *arms: str) -> list[Path]:
    return [
        comparison(out / f"set-{n}", {arm: 0.8 + k * n / 50 for k, arm in enumerate(arms)})
        for n in range(1, 7)
    ]


def test_the_tables(regard: Command, tmp_path: Path) -> None:
    said = regard("ranks", *folders(tmp_path, "mean", "cnn", "rising"), "--delta", "2")
    assert said.status == 0
    lines = [" ".join(line.split()) for line in said.out.splitlines() if line]
    assert lines[0] == "6 data sets: set-1, set-2, set-3, set-4, set-5, set-6"
    assert lines[1:5] == [
        "arm mean rank mean accuracy, %", "rising 1.00 94.0", "cnn 2.00 87.0", "mean 3.00 80.0"
    ]  # fmt: skip
    assert lines[5] == (
        "Friedman: F(2, 10) = ∞, p < 0.001; two mean ranks differ at 5 % if they are 1.35 apart "
        "(Nemenyi)"
    )
    assert lines[6] == (
        "A − B difference, points p (Holm) P(A better) P(within 2 points) P(B better)"
    )
    assert lines[7].startswith("rising − cnn +7.0 0.094 ")
    assert len(lines) == 10 + 6
    assert lines[-1] == "not trained to the end: rising on set-6: still rising"


def test_two_arms_and_json(regard: Command, tmp_path: Path) -> None:
    given = folders(tmp_path, "mean", "cnn")
    said = regard("ranks", *given)
    assert "Friedman" not in said.out
    assert "P(within 1 point)" in said.out
    record = json.loads(regard("ranks", *given, "--json").out)
    assert record["arms"][0] == {
        "name": "cnn", "mean_rank": 1.0, "mean": pytest.approx(0.87)
    }  # fmt: skip
    assert record["friedman"] is None
    assert record["pairs"][0]["p"] == 0.03125
    assert record["delta"] == 1.0


def test_mistakes(regard: Command, tmp_path: Path) -> None:
    told = regard.refused("ranks", *folders(tmp_path, "mean", "cnn")[:1])
    assert told == "error: ranks need comparisons on at least 5 data sets, not 1\n"
    assert (
        regard.refused("ranks") == "error: Missing argument 'FOLDER...'; see regard ranks --help\n"
    )
