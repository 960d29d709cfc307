"""The lab that compares: its plan for a request, what it refuses, and one of one's own."""

import json
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.comparison import (
    AHEAD_SO_FAR,
    ANY_DATA,
    BEHIND,
    BEHIND_SO_FAR,
    UNCLEAR,
    ComparisonLab,
    Preset,
    PretrainFirst,
    Result,
)
from regard.lab.studies.arms import Arm

EXAMPLE = Path(__file__).parents[3] / "examples" / "my_lab.py"


class Options(Settings):
    depth: int = 1


def lab(presets: dict[str, Preset]) -> ComparisonLab:
    arms = ["mean", Arm("deep", "transformer", ("layers=2",))]
    return ComparisonLab(
        question="Which?", name="toy", task="classification", arms=arms, presets=presets,
        options=Options, other_data_hint="use regard compare",
    )  # fmt: skip


REVIEWS = Preset(2, {"width": 8, "steps": 30}, {"deep": {"heads": 2, "epochs": 4}})


def test_a_plan_is_the_preset_under_the_users_settings() -> None:
    plan = lab({"reviews": REVIEWS}).plan(LabRequest())
    assert plan.overrides == ("data=reviews", "width=8", "steps=30")
    assert [arm.overrides for arm in plan.arms] == [(), ("heads=2", "epochs=4", "layers=2")]
    assert (plan.seeds, plan.reference) == (2, "mean")
    assert plan.about == "2 arms on reviews, 2 seeds each"
    pairs = ["width=16", "heads=4", "depth=3", "seeds=1"]
    mine = lab({"reviews": REVIEWS}).plan(LabRequest(overrides=pairs))
    assert mine.overrides == ("data=reviews", "steps=30", "width=16", "heads=4")
    assert mine.arms[1].overrides == ("epochs=4", "layers=2")
    assert (mine.options.depth, mine.seeds) == (3, 1)


@pytest.mark.parametrize("request_", [LabRequest(budget="1m"), LabRequest(overrides=["tokens=9"])])
def test_a_budget_replaces_those_of_the_preset(request_: LabRequest) -> None:
    plan = lab({"reviews": REVIEWS}).plan(request_)
    given = [*plan.overrides, *(pair for arm in plan.arms for pair in arm.overrides)]
    assert not any(pair.startswith(("steps=", "epochs=")) for pair in given)


def test_data_without_a_preset() -> None:
    own = lab({"reviews": REVIEWS, ANY_DATA: Preset(settings={"width": 4})})
    assert own.plan(LabRequest(data="my/f.csv")).overrides == ("data=my/f.csv", "width=4")
    assert own.plan(LabRequest(data="my/f.csv")).stem == "f"
    says = "--data imdb: this lab supports reviews; use regard compare"
    with pytest.raises(RegardError, match=says):
        lab({"reviews": REVIEWS}).plan(LabRequest(data="imdb"))


def test_a_range_of_seeds_is_declared_to_the_study(tmp_path: Path) -> None:
    own = lab({"reviews": REVIEWS})
    plans = [own.plan(LabRequest(seeds=9, least=3, delta=2.0)),
             own.plan(LabRequest(overrides=["seeds=3..9", "delta=2"]))]  # fmt: skip
    for plan in plans:
        study = plan.study(plan.arms, tmp_path)
        assert (study.least, study.seeds, study.delta) == (3, 9, 2.0)
        assert plan.about == "2 arms on reviews, 3 to 9 seeds each"
    assert own.plan(LabRequest(seeds=9)).least == 0
    with pytest.raises(RegardError, match=r"--seeds 9\.\.3: 9 is more than 3"):
        own.plan(LabRequest(overrides=["seeds=9..3"]))


@pytest.mark.parametrize(
    ("pairs", "says"),
    [
        (["width"], "key=value, not 'width'"),
        (["width=1", "width=2"], "width is set twice"),
        (["depth=deep"], "depth='deep'"),
        (["seeds=0"], "seeds='0'"),
        (["widht=8"], "no setting is called 'widht'; did you mean width"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_trained(
    pairs: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regard.lab.labs.comparison.pretrain", None)
    request = LabRequest(out=tmp_path / "lab", overrides=pairs)
    with pytest.raises(RegardError, match=says) as error:
        lab({"reviews": REVIEWS}).run(request, lambda _: None, lambda *_: None)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "lab").exists()


def test_runs_that_arms_begin_from() -> None:
    first = PretrainFirst("deep", "masked-modeling", "bert", ("width=8",))
    (zero, one) = first.jobs(Path("out"), 2)
    assert one.task.folder == "out/pretrained/deep/seed-1"
    assert (zero.task.overrides, zero.seed) == (("width=8", "seed=0"), 0)
    ready = PretrainFirst("deep", "", "", folder="runs/mine", ready=True)
    assert (ready.jobs(Path("out"), 2), ready.home(Path("out"))) == ([], "runs/mine")


@pytest.mark.usefixtures("one_process")
def test_the_example_of_a_lab_of_ones_own(tmp_path: Path) -> None:
    small = ["examples=80", "steps=2", "width=8", "layers=1"]
    request = LabRequest(out=tmp_path / "lab", seeds=1, overrides=small, workers=1)
    own = open_lab(f"{EXAMPLE}:LAB")
    record = own.run(request, lambda _: None, lambda *_: None)
    names = ["mean", "transformer", "transformer:score=additive"]
    assert [arm["name"] for arm in record["arms"]] == names
    assert {"task", "metric", "arms", "verdicts", "claims", "report"} <= record.keys()
    (one,) = record["claims"]
    assert one["value"] == pytest.approx(record["arms"][1]["mean"] - record["arms"][0]["mean"])
    assert json.loads((tmp_path / "lab" / "results.json").read_text()) == record
    assert own.question in (tmp_path / "lab" / "report.html").read_text(encoding="utf-8")
    assert len(EXAMPLE.read_text().splitlines()) <= 20


@pytest.mark.parametrize(
    ("left", "asked", "standing"), [(3, 3, BEHIND), (1, 3, UNCLEAR), (1, 1, BEHIND)]
)
def test_an_arm_whose_other_seeds_failed_is_no_evidence(
    left: int, asked: int, standing: str
) -> None:
    record = {
        "seeds": asked,
        "arms": [
            {"name": "a", "mean": 0.5, "seeds": left},
            {"name": "b", "mean": 0.9, "seeds": asked},
        ],
        "verdicts": [{"a": "a", "b": "b", "difference": -0.4, "p": 0.003}],
    }
    found = Result(lab({"reviews": REVIEWS}).plan(LabRequest()), Path(), record, [])
    assert found.standing("a", "b") == standing


@pytest.mark.parametrize("untrained", ["a", "b"])
def test_evidence_of_arms_that_were_not_trained_to_the_end_is_of_these_steps(
    untrained: str,
) -> None:
    verdict = {"a": "a", "b": "b", "difference": -0.4, "p": 0.003, "untrained": [untrained]}
    record = {"seeds": 1, "arms": [], "verdicts": [verdict]}
    plan = lab({"reviews": REVIEWS}).plan(LabRequest())
    assert Result(plan, Path(), record, []).standing("a", "b") == BEHIND_SO_FAR
    ahead = {**record, "verdicts": [{**verdict, "difference": 0.4}]}
    assert Result(plan, Path(), ahead, []).standing("a", "b") == AHEAD_SO_FAR
