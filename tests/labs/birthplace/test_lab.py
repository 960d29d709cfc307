"""The lab of birth places: its plan, its claims, a small run from end to end."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.data.pairs import Pair
from regard.errors import RegardError
from regard.labs import Order
from regard.labs.birthplace import lab
from regard.labs.birthplace.knowing import Known, auc, strangers
from regard.runs.config import Config
from regard.studies.arms import Arm
from regard.studies.compare import Study
from regard.tasks.birthplace.evaluation import Answered
from regard.tasks.writing.evaluation import Text


def known(right, wrong, strange=(0.5,)):
    pairs = [Pair("q", "yes", "x:1")] * (len(right) + len(wrong))
    said = [Text("yes", math.log(p), True) for p in right]
    said += [Text("no", math.log(p), True) for p in wrong]
    judged = Answered.judge(pairs, said, "yes")
    return Known("vanilla", judged, [Text("no", math.log(p), True) for p in strange])


def test_confidence_and_truth():
    found = known([0.95, 0.9], [0.9, 0.1])
    assert found.right.tolist() == pytest.approx([0.95, 0.9])
    assert found.separation == pytest.approx(3.5 / 4)
    assert found.calibration.error == pytest.approx(
        abs(0.95 - 1) / 4 + 2 * abs(0.9 - 0.5) / 4 + 0.1 / 4
    )
    assert math.isnan(auc(np.array([]), np.array([0.1])))


def test_strangers_stand_in_no_text():
    pairs = [Pair(f"Where was {name} born?", "", "") for name in ("Ada By", "Bo Cy", "Di Ey")]
    texts = ["Ada By sang.", "Bo Cy sang.", "Di Ey and Ada Cy sang."]
    found = strangers(pairs, texts)
    assert found
    for question in found:
        name = question.removeprefix("Where was ").removesuffix(" born?")
        assert not any(name in text for text in texts)


@pytest.mark.parametrize("data", lab.KINDS)
def test_the_settings_of_every_arm_hold(data):
    asked = lab.BirthplaceSettings(data=data)
    kind, names = lab.plan_for(asked)
    for name in names:
        given = {"data": data, **lab.network(asked, kind), **kind.before}
        config = Config.make("birthplace-pretrain", "gpt", [*lab.told(given), *lab.ARMS[name]])
        assert config.network.width == kind.network["width"]
    after = lab.told({**lab.network(asked, kind), **kind.after})
    assert Config.make("birthplace", "gpt", [f"data={data}", *after]).data.data == data


def test_the_recipe_of_the_real_data_is_the_one_that_was_measured():
    asked = lab.BirthplaceSettings(data="birthplaces")
    kind, names = lab.plan_for(asked)
    for job in lab.pretraining(asked, kind, names, Path("out")):
        training = Config.make(job.task.task, job.task.model, job.task.overrides)
        assert (training.training.optimizer, training.training.learning_rate) == ("muon", 4e-3)
        assert (training.training.budget.unit, training.training.budget.amount) == ("epochs", 300)
        assert training.network.dropout == 0
    arms = [Arm(name, "gpt", (*lab.ARMS[name],)) for name in names]
    study = Study.plan(lab.NAME, arms, seeds=1, out="out", overrides=lab.shared(asked, kind))
    for job in study.jobs():
        config = Config.make(job.task.task, job.task.model, job.task.overrides)
        assert (config.training.budget.amount, config.training.learning_rate) == (15, 1e-4)
        assert config.network.dropout == 0.1


def test_a_budget_is_that_of_pretraining():
    asked = lab.BirthplaceSettings(data="birthplaces", budget="40 steps")
    kind, _ = lab.plan_for(asked)
    (job,) = lab.pretraining(asked, kind, ["rotary"], Path("out"))
    config = Config.make(job.task.task, job.task.model, job.task.overrides)
    assert config.training.budget == ("steps", 40)
    assert not any(pair.startswith("steps=") for pair in lab.shared(asked, kind))
    with pytest.raises(RegardError, match="budget '10': 10 of what"):
        lab.pretraining(lab.BirthplaceSettings(budget="10"), kind, ["rotary"], Path("out"))


def test_claims_on_real_data_tell_of_london():
    judged = {lab.NONE: Answered.judge([Pair("q", "yes", "x:1")], [Text("no", -1.0, True)], "yes")}
    judged[lab.NONE] = replace(judged[lab.NONE], baseline=0.0498, commonest="London")
    asked = lab.BirthplaceSettings(data="birthplaces")
    means = {lab.NONE: 0.03, "vanilla": 0.24, "rotary": 0.47, "synthesizer": 0.12}
    told = lab.claims(asked, means, judged, known([0.9], [0.8]))
    london, vanilla, rotary, synthesizer = told[1:5]
    assert london["says"].startswith("'London' to everyone is right in 5.0 %")
    assert [c["holds"] for c in (london, vanilla, rotary, synthesizer)] == [True, False, True, True]


def test_bad_settings_are_refused():
    with pytest.raises(RegardError, match="arms=vanila: 'vanila' is none of vanilla, rotary"):
        lab.run(Order(overrides=["arms=vanila"]), print, lambda *_: None)
    with pytest.raises(RegardError, match="this lab knows biographies and birthplaces"):
        lab.run(Order(data="reviews"), print, lambda *_: None)


@pytest.mark.usefixtures("one_process")
def test_a_small_lab_from_end_to_end(tmp_path, monkeypatch):
    small = lab.KINDS["biographies"]
    few = {**small.network, "width": 16, "heads": 2, "layers": 1, "feedforward": 24}
    kind = lab.Kind(few, {"steps": 3, "batch_tokens": 600}, {"steps": 2}, {"epochs": 0, "steps": 2})
    monkeypatch.setitem(lab.KINDS, "biographies", kind)
    said: list[str] = []
    order = Order(out=tmp_path / "lab", overrides=["arms=vanilla"], workers=1)
    record = lab.run(order, said.append, lambda *_: None)
    assert [arm["name"] for arm in record["arms"]] == [lab.NONE, "vanilla"]
    assert (tmp_path / "lab" / "report.html").exists()
    assert len(record["claims"]) >= 3
    assert record["tables"][0]["rows"][-1][1] == pytest.approx(100 * 4 / 60)
    text = (tmp_path / "lab" / "report.html").read_text()
    assert "Does it know when it does not know?" in text

    told: list[str] = []
    found = lab.rehearse(order, told.append)
    names = ["vanilla, pretraining", "not pretrained, fine-tuning", "vanilla, fine-tuning"]
    assert [row["name"] for row in found["forecast"]] == names
    assert found["seconds"] == pytest.approx(sum(row["seconds"] for row in found["forecast"]))
