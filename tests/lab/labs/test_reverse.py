"""The lab of strings written backwards: its settings, its claims, a small run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab, reverse
from regard.lab.labs.comparison import Plan, Result
from regard.lab.labs.lab import LabReport
from regard.lab.runs.config import Config


def plan(*pairs: str) -> Plan:
    return reverse.LAB.plan(LabRequest(overrides=pairs))


def test_every_setting_is_one_and_the_arms_are_the_seeds() -> None:
    long = plan("letters=10")
    assert {"steps=5000", "examples=320000"} <= {*long.overrides}, "the seed's lab"
    assert "steps=5000" in plan("letters=30").overrides
    assert "steps=900" in plan().overrides
    assert {"steps=7", "examples=448"} <= {*plan("letters=10", "steps=7").overrides}
    for arm in long.arms:
        own = {pair.partition("=")[0] for pair in arm.overrides}
        entry = [p for p in long.overrides if p.partition("=")[0] not in own]
        config = Config.make("reverse", arm.model, [*entry, *arm.overrides])
        assert config.network.model_dump()["hidden"] == 100
        assert config.training.batch_tokens == 64 * 21
        assert config.training.clip == (0 if "unclipped" in arm.name else 1)
    assert [arm.model for arm in long.arms] == ["gru", "lab-6", "lab-6", "bahdanau"]


def test_a_budget_replaces_the_labs_steps() -> None:
    timed = reverse.LAB.plan(LabRequest(budget="1m"))
    assert not any(pair.startswith("steps=") for pair in timed.overrides)
    assert timed.about.endswith("3 seeds each, 1m")


def result(arms: list[Any], seen: Any) -> Result:
    return Result(plan(), Path(), {"arms": arms}, [], seen)


def test_claims_tell_the_numbers() -> None:
    arms = [{"name": "gru", "mean": 0.4}, {"name": "lab-6", "mean": 0.995}]
    told = described(result(arms, {})).claims
    assert [(c["value"], c["holds"]) for c in told] == [(0.995, True), (pytest.approx(0.595), True)]
    assert "59.5 points" in told[1]["says"]


def test_where_the_weight_lies_by_hand() -> None:
    exact, beside = np.fliplr(np.eye(4)), np.zeros((4, 4))
    beside[[0, 1, 2, 3], [3, 3, 2, 1]] = 1.0  # the first letter has none before it
    assert reverse.Places.of([exact]) == reverse.Places(1.0, 0.0, 0.0, 0.0)
    assert reverse.Places.of([beside]) == reverse.Places(0.0, 1.0, 0.0, 0.0)
    even = reverse.Places.of([np.full((4, 4), 0.25)])
    assert (even.here, even.before) == (0.25, 0.25)
    assert even.after == pytest.approx(0.25 * 2 / 3), "the last letter has none after it"
    assert even.rest == pytest.approx(1 - 0.5 - even.after)


def described(result: Result) -> LabReport:
    return reverse.findings(result).described(Path(reverse.__file__).with_suffix(".md"), summary=[])


def place_claims(looked: Any) -> Sequence[Any]:
    return described(result([], looked)).claims


def explanation(looked: Any) -> str:
    return " ".join(described(result([], looked)).answer)


def test_lab_6_is_explained_by_what_was_measured() -> None:
    beside = {"lab-6": reverse.Places(0.02, 0.97, 0.0, 0.01)}
    told = explanation(beside)
    assert "97% of its weight on the letter that it has just written and 2%" in told
    assert "one position off the anti-diagonal, for a reason" in told
    (claimed,) = place_claims(beside)
    assert (claimed["value"], claimed["holds"]) == (0.97, True)
    exact = {"lab-6": reverse.Places(0.9, 0.05, 0.0, 0.05)}
    assert "for a reason" not in explanation(exact)
    assert not place_claims(exact)[0]["holds"]
    assert "is the anti-diagonal." in explanation(exact)
    undecided = {"lab-6": reverse.Places(0.16, 0.19, 0.12, 0.53)}
    assert "no alignment was learned" in explanation(undecided)
    assert not place_claims(undecided)[0]["holds"]
    assert explanation({}) == ""
    assert place_claims({"bahdanau": reverse.Places(1, 0, 0, 0)}) == []


def test_bad_settings_are_refused() -> None:
    with pytest.raises(RegardError, match="letters='0'"):
        plan("letters=0")
    with pytest.raises(RegardError, match="budget '10' has no unit"):
        open_lab("reverse").dry_run(LabRequest(budget="10"), print)
    with pytest.raises(RegardError, match="steps='many'"):
        open_lab("reverse").dry_run(LabRequest(overrides=["steps=many"]), print)


@pytest.mark.usefixtures("one_process")
@pytest.mark.deep
def test_a_small_lab_from_end_to_end(tmp_path: Any) -> None:
    said: list[str] = []
    small = ["letters=4", "steps=3", "seeds=1", "width=6", "hidden=6", "batch=4"]
    request = LabRequest(out=tmp_path / "lab", overrides=small, workers=1)
    record = open_lab("reverse").run(request, said.append, lambda *_: None)
    names = ["gru", "lab-6", "lab-6 unclipped", "bahdanau"]
    assert [arm["name"] for arm in record["arms"]] == names
    assert json.loads((tmp_path / "lab" / "results.json").read_text()) == record
    assert "--seeds 1" in record["command"]
    assert "next:   regard lab reverse letters=10" in said[-1]
    (table,) = record["tables"]
    assert [row[0] for row in table["rows"]] == ["lab-6", "lab-6 unclipped", "bahdanau"]
    assert all(sum(row[1:]) == pytest.approx(100, abs=0.3) for row in table["rows"])
    page = (tmp_path / "lab" / "report.html").read_text(encoding="utf-8")
    assert "Which letter does it look at?" in page
    assert "on the letter that it has just written" in page

    told = open_lab("reverse").dry_run(request, said.append)
    assert [row["name"] for row in told["forecast"]] == names
