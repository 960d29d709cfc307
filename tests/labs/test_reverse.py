"""The lab of strings written backwards: its settings, its claims, a small run."""

from typing import Any

import pytest

from regard.errors import RegardError
from regard.labs import Order, reverse
from regard.runs.config import Config


def test_every_setting_is_one_and_the_arms_are_the_seeds() -> None:
    plan = reverse.plan_for(reverse.ReverseSettings(letters=10, steps=5000))
    for arm in plan.arms:
        own = {pair.partition("=")[0] for pair in arm.overrides}
        entry = [p for p in plan.overrides if p.partition("=")[0] not in own]
        config = Config.make("reverse", arm.model, [*entry, *arm.overrides])
        assert config.network.model_dump()["hidden"] == 100
        assert config.training.batch_tokens == 64 * 21
        assert config.training.clip == (0 if "unclipped" in arm.name else 1)
    assert [arm.model for arm in plan.arms] == ["gru", "lab-6", "lab-6", "bahdanau"]


def test_claims_tell_the_numbers() -> None:
    arms = [{"name": "gru", "mean": 0.4}, {"name": "lab-6", "mean": 0.995}]
    told = reverse.claims({"arms": arms}, reverse.ReverseSettings())
    assert [(c["value"], c["holds"]) for c in told] == [(0.995, True), (pytest.approx(0.595), True)]
    assert "59.5 points" in told[1]["says"]


def test_bad_settings_are_refused() -> None:
    with pytest.raises(RegardError, match="letters='0'"):
        reverse.run(Order(overrides=["letters=0"]), print, lambda *_: None)
    with pytest.raises(RegardError, match="no use for --budget"):
        reverse.run(Order(budget="10m"), print, lambda *_: None)


def test_a_small_lab_from_end_to_end(tmp_path: Any) -> None:
    said: list[str] = []
    small = ["letters=4", "steps=3", "seeds=1", "width=6", "hidden=6", "batch=4"]
    order = Order(out=tmp_path / "lab", overrides=small, workers=1)
    record = reverse.run(order, said.append, lambda *_: None)
    assert [arm["name"] for arm in record["arms"]] == [
        "gru",
        "lab-6",
        "lab-6 unclipped",
        "bahdanau",
    ]
    assert (tmp_path / "lab" / "report.html").exists()
    assert any(line.startswith("next:   regard lab reverse letters=8") for line in said)
