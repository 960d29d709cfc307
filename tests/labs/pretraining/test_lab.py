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
    asked = lab.PretrainingSettings(data=data, seeds=1)
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


def verdict(a, b, difference, p, family="ladder"):
    says = f"{a} beats {b}" if p < 0.05 else f"no evidence of a difference between {a} and {b}"
    return {"a": a, "b": b, "difference": difference, "low": -0.01, "high": 0.2, "p": p,
            "says": says, "family": family}  # fmt: skip


def test_ways_are_ranked_by_evidence_alone():
    gpt, bert = (verdict(f"pretrained {m}", m, 0.1, p) for m, p in (("gpt", 0.3), ("bert", 0.01)))
    told = lab.told_gains({"gpt": gpt, "bert": bert})
    assert told == [
        "No evidence of a difference between pretrained gpt and gpt.",
        "Pretrained bert beats bert.",
    ]
    open_ = verdict("pretrained bert", "pretrained gpt", 0.05, 0.2)
    assert lab.told_ranking([open_]) == [
        "There is no evidence that one way to pretrain is better than another."
    ]
    sure = verdict("pretrained bert", "pretrained gpt", 0.05, 0.02)
    assert lab.told_ranking([open_, sure]) == ["Pretrained bert beats pretrained gpt."]
    assert lab.told_ranking([]) == []
    assert [lab.gain_claim("gpt", gpt)["holds"], lab.gain_claim("bert", bert)["holds"]] == [
        False, True
    ]  # fmt: skip
    lost = verdict("pretrained t5", "t5", -0.1, 0.001)
    assert not lab.gain_claim("t5", lost)["holds"], "a loss is no gain, however sure"


def test_every_two_ways_are_compared_and_each_with_none():
    assert lab.PretrainingSettings().seeds == 5
    assert lab.pairs(["bert", "gpt", "t5"]) == [
        ("pretrained bert", "bert"),
        ("pretrained gpt", "gpt"),
        ("pretrained t5", "t5"),
        ("pretrained bert", "pretrained gpt"),
        ("pretrained bert", "pretrained t5"),
        ("pretrained gpt", "pretrained t5"),
    ]


@pytest.mark.usefixtures("one_process")
def test_a_small_lab_from_end_to_end(tmp_path, monkeypatch):
    few = {"width": 16, "heads": 2, "layers": 1, "feedforward": 24, "length": 40}
    few |= {"tokenizer": "words"}
    kind = lab.Kind(200, few, {"steps": 2, "examples": 300}, {"steps": 2})
    monkeypatch.setitem(lab.KINDS, "reviews", kind)
    order = Order(out=tmp_path / "lab", overrides=["models=bert", "seeds=1"], workers=1)
    said: list[str] = []
    record = lab.run(order, said.append, lambda *_: None)
    assert [arm["name"] for arm in record["arms"]] == ["bert", "pretrained bert"]
    gain = record["arms"][1]["mean"] - record["arms"][0]["mean"]
    assert record["claims"][0]["value"] == pytest.approx(gain)
    assert (tmp_path / "lab" / "report.html").exists()
    (row,) = record["tables"][0]["rows"]
    assert 20 < row[3] < 80, "of next sentences half follow"
    assert row[6] == pytest.approx(100 * gain, abs=0.05)
    assert len(record["tables"]) == 1, "one way has no rival"

    told: list[str] = []
    found = lab.rehearse(order, told.append)
    assert [row["name"] for row in found["forecast"]] == ["bert, pretraining", "bert, fine-tuning"]
