"""The lab of three ways to pretrain: its plan and a small run from end to end."""

import pytest

from regard.errors import RegardError
from regard.labs import Order
from regard.labs.pretraining import lab
from regard.runs.before import WAYS
from regard.runs.config import Config


@pytest.mark.parametrize("data", lab.KINDS)
@pytest.mark.parametrize("model", WAYS)
def test_the_settings_of_every_arm_hold(data, model, tmp_path):
    asked = lab.PretrainingSettings(data=data)
    kind, models = lab.plan_for(asked)
    assert models == list(WAYS)
    (job,) = lab.pretraining(asked, kind, [model], tmp_path)
    config = Config.make(job.task.task, job.task.model, job.task.overrides)
    assert config.network.width == kind.network["width"]
    after = lab.told({"data": data, **lab.network(asked, kind), **kind.after})
    assert Config.make(lab.TASK, model, after).data.tokenizer == config.data.tokenizer


def test_bad_settings_are_refused():
    with pytest.raises(RegardError, match="models=elmo: 'elmo' is none of bert, gpt, t5"):
        lab.run(Order(overrides=["models=elmo"]), print, lambda *_: None)
    with pytest.raises(RegardError, match="this lab knows reviews and imdb"):
        lab.run(Order(data="pydoc"), print, lambda *_: None)


def test_a_small_lab_from_end_to_end(tmp_path, monkeypatch):
    few = {"width": 16, "heads": 2, "layers": 1, "feedforward": 24, "length": 40}
    few |= {"tokenizer": "words"}
    kind = lab.Kind(200, few, {"steps": 2, "examples": 300}, {"steps": 2})
    monkeypatch.setitem(lab.KINDS, "reviews", kind)
    order = Order(out=tmp_path / "lab", overrides=["models=gpt"], workers=1)
    said: list[str] = []
    record = lab.run(order, said.append, lambda *_: None)
    assert [arm["name"] for arm in record["arms"]] == ["gpt", "pretrained gpt"]
    gain = record["arms"][1]["mean"] - record["arms"][0]["mean"]
    assert record["claims"][0]["value"] == pytest.approx(gain)
    assert (tmp_path / "lab" / "report.html").exists()
