"""What the labs of the mathematics share: settings, the end of a lab, its files."""

import json
from pathlib import Path

import pytest

from regard.errors import RegardError
from regard.labs import LABS, Lab, Order
from regard.labs.finding import Finding, claim, command, conclude, place, settings_for
from regard.reports.findings import Section, Table
from regard.settings import Settings


class Sizes(Settings):
    seeds: int = 3
    width: int = 8


def test_flags_and_pairs_become_settings() -> None:
    assert settings_for(Order(seeds=5, overrides=["width=2"]), Sizes) == Sizes(seeds=5, width=2)


def test_a_flag_without_use_is_refused() -> None:
    with pytest.raises(RegardError, match="no use for --budget; it takes: seeds, width"):
        settings_for(Order(budget="10m"), Sizes)
    with pytest.raises(RegardError, match="seeds is set twice"):
        settings_for(Order(seeds=5, overrides=["seeds=2"]), Sizes)
    with pytest.raises(RegardError, match="no setting is called 'widht'; did you mean width"):
        settings_for(Order(overrides=["widht=2"]), Sizes)


def test_the_end_of_a_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LABS, "toy", Lab("toy", "Is two two?", "nowhere"))
    table = Table("Twos", ["name", "two"], [["a", 2.0], ["b", float("nan")]])
    finding = Finding(
        "Two is 2.", [Section("S", tables=[table])], [claim("two is 2", 2, True)], "regard lab"
    )
    said: list[str] = []
    order = Order(out=tmp_path / "new", overrides=["width=2"])
    record = conclude("toy", order, finding, said.append)
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == record
    assert record["claims"] == [{"says": "two is 2", "value": 2.0, "holds": True}]
    assert record["tables"][0]["rows"] == [["a", 2.0], ["b", None]]
    assert record["arms"] == record["verdicts"] == []
    assert record["command"] == f"regard lab toy --out {tmp_path / 'new'} width=2"
    assert "Is two two?" in Path(record["report"]).read_text()
    assert "  ✓ two is 2" in said
    assert any("next:   regard lab" in line for line in said)


def test_where_a_lab_writes() -> None:
    assert place("toy", Order()) == Path("runs/lab-toy")
    assert place("toy", Order(data="my/points.csv")) == Path("runs/lab-toy-points")
    assert command("toy", Order(data="a b.csv")) == "regard lab toy --data 'a b.csv'"
