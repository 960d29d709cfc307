"""The lab of the softmax gradient: a small run of it."""

import json
from pathlib import Path

import pytest

from regard.lab.labs import LabRequest, open_lab
from tests.lab.labs.conftest import quiet

SMALL = ["keys=8", "high=16", "width=4", "blocks=20"]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that has less to turn."""
    monkeypatch.setattr("regard.lab.labs.softmax_gradient.cures.GAPS", [0.0, 2.0, 4.0, 6.0, 7.0])


def test_the_lab(tmp_path: Path) -> None:
    said: list[str] = []
    request = LabRequest(out=tmp_path, overrides=SMALL)
    record = open_lab("softmax-gradient").run(request, said.append, quiet)
    assert json.loads((tmp_path / "results.json").read_text()) == record
    claims = {one["says"].split(" is ")[0]: one for one in record["claims"]}
    slope = claims["the slope of ln variance in ln d"]
    assert slope["holds"]
    assert slope["value"] == pytest.approx(1, abs=0.02)
    assert "past 2 ln n = 4.2 softmax freezes" in record["answer"]
    title, rows = record["tables"][1]["title"], record["tables"][1]["rows"]
    assert title == "The variance of a score"
    assert [row[0] for row in rows] == ["4", "8", "16"]
    for row in rows:
        assert row[1] == pytest.approx(float(row[0]), rel=0.05)
        assert row[4] == pytest.approx(1, rel=0.2)
    both = [t for t in record["tables"] if t["title"].endswith(" over 8 keys")]
    assert [t["title"][:17] for t in both] == ["Softmax of q·k ov", "Softmax of q·k/√d"]
    for row in [row for table in both for row in table["rows"]]:  # measured beside theory
        assert row[1] == pytest.approx(row[2], rel=0.08)
        assert row[3] == pytest.approx(row[4], rel=0.08)
    page = (tmp_path / "report.html").read_text()
    assert page.count('class="frame"') == 17
    assert page.count("<figure") == 13
    assert any("report: " in line for line in said)
