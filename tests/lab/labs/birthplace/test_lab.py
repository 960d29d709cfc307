"""The lab of birth places: its plan, its claims, a small run from end to end."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.pairs import Pair
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.birthplace import lab
from regard.lab.labs.birthplace.knowing import Known, auc, strangers
from regard.lab.labs.comparison import Preset, Pretraining
from regard.lab.runs.config import Config
from regard.lab.studies.forecasts import AROUND
from regard.lab.tasks.birthplace.evaluation import COMMONEST, answer_evaluation
from regard.lab.tasks.writing.evaluation import Text
from tests.lab.labs.conftest import configs_of, quiet


def known(right, wrong, strange=(0.5,)):
    examples = [Pair("q", "yes", "x:1").example] * (len(right) + len(wrong))
    said = [Text("yes", math.log(p), True) for p in right]
    said += [Text("no", math.log(p), True) for p in wrong]
    judged = answer_evaluation(examples, said, "yes")
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
    asked = [f"Where was {name} born?" for name in ("Ada By", "Bo Cy", "Di Ey")]
    texts = ["Ada By sang.", "Bo Cy sang.", "Di Ey and Ada Cy sang."]
    found = strangers(asked, texts)
    assert found
    for question in found:
        name = question.removeprefix("Where was ").removesuffix(" born?")
        assert not any(name in text for text in texts)


def plan(data, *pairs, budget=""):
    return lab.LAB.plan(LabRequest(data=data, budget=budget, overrides=pairs))


def before(made):
    """The configs of every pretraining."""
    jobs = [job for first in made.pretrain_first for job in first.jobs(Path("out"), made.seeds)]
    return [Config.make(job.task.task, job.task.model, job.task.overrides) for job in jobs]


@pytest.mark.parametrize("data", lab.PRESETS)
def test_the_settings_of_every_arm_hold(data):
    made, width = plan(data), lab.PRESETS[data].pretraining.network["width"]
    assert {config.network.width for config in before(made)} == {width}
    assert {config.data.data for config in configs_of(made).values()} == {data}
    assert list(configs_of(made)) == [lab.NONE, *lab.ARMS]
    sized = plan(data, "width=16", "heads=2")
    configs = [*before(sized), *configs_of(sized).values()]
    assert {config.network.width for config in configs} == {16}, "the same before and after"


def test_the_recipe_of_the_real_data_is_the_one_that_was_measured():
    made = plan("birthplaces")
    for config in before(made):
        training = config.training
        assert (training.optimizer, training.learning_rate) == ("muon", 4e-3)
        assert (training.budget.unit, training.budget.amount) == ("epochs", 300)
        assert config.network.dropout == 0
    tuned = configs_of(made)
    assert tuned.pop(lab.NONE).training.budget.amount == 75
    rates = {name: config.training.learning_rate for name, config in tuned.items()}
    assert rates == {"vanilla": 1e-4, "rotary": 1e-4, "synthesizer": 3e-4}
    for config in tuned.values():
        assert config.training.budget.amount == 15
        assert config.network.dropout == 0.1


def test_a_budget_is_that_of_pretraining():
    made = plan("birthplaces", "arms=rotary", budget="40 steps")
    assert [config.training.budget for config in before(made)] == [("steps", 40)]
    assert configs_of(made)["rotary"].training.budget == ("epochs", 15)
    with pytest.raises(RegardError, match="budget '10' has no unit"):
        plan("biographies", budget="10")


def test_pretrained_runs_are_not_trained_again():
    made = plan("biographies", "arms=rotary", "pretrained=runs/mine")
    assert before(made) == []
    assert (
        made.initialized(Path("out"))[1].overrides[0] == "init=runs/mine/birthplace-pretrain-rotary"
    )


def test_claims_on_real_data_tell_of_london():
    examples = [Pair("q", "yes", "x:1").example]
    none = answer_evaluation(examples, [Text("no", -1.0, True)], "London")
    judged = {lab.NONE: replace(none, trivial={COMMONEST: 0.0498})}
    means = {lab.NONE: 0.03, "vanilla": 0.24, "rotary": 0.47, "synthesizer": 0.12}
    found = lab.claims_of("birthplaces", means, judged, known([0.9], [0.8]))
    assert found.values["commonest_of_none"] == "London"
    names = ("constant", "vanilla", "rotary", "synthesizer")
    assert [found.claims[name][1] for name in names] == [True, False, True, True]


def test_bad_settings_are_refused():
    with pytest.raises(RegardError, match="arms=vanila: 'vanila' is not one of vanilla, rotary"):
        plan("", "arms=vanila")
    with pytest.raises(RegardError, match="this lab supports biographies and birthplaces"):
        plan("reviews")
    with pytest.raises(RegardError, match="no setting is called 'widht'; did you mean width"):
        open_lab("birthplace").run(LabRequest(overrides=["widht=8"]), print, quiet)


@pytest.mark.usefixtures("one_process")
def test_a_small_lab_from_end_to_end(tmp_path, monkeypatch):
    own = lab.PRESETS["biographies"].pretraining
    few = {**own.network, "width": 16, "heads": 2, "layers": 1, "feedforward": 24}
    own = Pretraining(few, {"steps": 3, "batch_tokens": 600}, {"steps": 2})
    arms = {lab.NONE: {"epochs": 0, "steps": 2}}
    monkeypatch.setitem(lab.PRESETS, "biographies", Preset(1, arms=arms, pretraining=own))
    said: list[str] = []
    request = LabRequest(out=tmp_path / "lab", overrides=["arms=vanilla"], workers=1)
    record = open_lab("birthplace").run(request, said.append, quiet)
    assert [arm["name"] for arm in record["arms"]] == [lab.NONE, "vanilla"]
    assert (tmp_path / "lab" / "report.html").exists()
    assert len(record["claims"]) >= 3
    assert record["tables"][0]["rows"][-1][1] == pytest.approx(100 * 4 / 60)
    text = (tmp_path / "lab" / "report.html").read_text()
    assert "Does it know when it does not know?" in text
    assert "Attention on test texts" in text, "the report shows the runs, too"

    told: list[str] = []
    found = open_lab("birthplace").dry_run(request, told.append)
    names = ["vanilla, pretraining", "not pretrained", "vanilla"]
    assert [row["name"] for row in found["forecast"]] == names
    whole = AROUND + sum(row["seconds"] for row in found["forecast"])
    assert found["seconds"] == pytest.approx(whole)
