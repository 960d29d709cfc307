"""Several comparisons on one page: which run, at what size, and what the page says."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.collection import CollectionLab, Member
from regard.lab.labs.comparison import ComparisonLab, Preset, Result
from regard.lab.labs.equal import equal_parameters, parameters
from regard.lab.labs.lab import Findings
from regard.lab.studies.arms import Arm
from tests.lab.labs.conftest import quiet

TINY = {"symbols": 8, "pairs": 2, "train_length": 8, "examples": 100, "held_out": 20, "width": 8,
        "threads": 1}  # fmt: skip


def member(name: str, **given: Any) -> Member:
    lab = ComparisonLab(
        question=f"Does {name} work?",
        task="mqar",
        arms=[Arm("plain", "gpt"), Arm("gated", "gpt", ("attention=gated",)), Arm("rnn", "rnn")],
        presets={"mqar": Preset(seeds=3, settings={**TINY, "steps": 9})},
        page=Path(__file__).with_name("shelved.md"),
        findings=lambda result: Findings({"holds": (1.0, True)}, {"name": name}),
    )

    def rows(result: Result) -> list[list[Any]]:
        return [[name, arm["name"], arm["seeds"]] for arm in result.record["arms"]]

    return Member(name, lab, rows, quick={"steps": 2}, **given)


LAB = CollectionLab(
    name="shelf",
    question="Which works?",
    members=[member("one"), member("two", quick_seeds=1, quick_arms=("plain", "gated"))],
    page=Path(__file__).with_name("shelf.md"),
    findings=lambda rows: Findings(
        {}, {"rows": len(rows)}, tables={"all": (["comparison", "arm", "seeds"], rows)}
    ),
)


@pytest.mark.usefixtures("one_process")
def test_all_members_are_run_at_the_quick_size_and_resumed(tmp_path: Path) -> None:
    lines: list[str] = []
    record = LAB.run(LabRequest(out=tmp_path, workers=2), lines.append, quiet)
    (summary, *_), answer = record["tables"], record["answer"]
    assert [row[:3] for row in summary["rows"]] == [
        ["one", "plain", 2], ["one", "gated", 2], ["one", "rnn", 2],
        ["two", "plain", 1], ["two", "gated", 1],
    ]  # fmt: skip
    assert answer == "5 rows."
    assert [one["says"] for one in record["claims"]] == ["one holds", "two holds"]
    assert record["parts"]["one"]["arms"][0]["steps"] == [2, 2]
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    for words in ("All of them", "About one.", "two: Does two work?", "regard lab shelf"):
        assert words in html
    assert json.loads((tmp_path / "results.json").read_text())["question"] == "Which works?"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert len(before) == 8
    LAB.run(LabRequest(out=tmp_path, workers=2, overrides=["only=two"]), lines.append, quiet)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    assert after == before, "complete runs are not repeated"
    assert lines[-1] == "next:   regard lab shelf size=full only=two"
    given = ["only=two", "size=full", "steps=2"]
    LAB.run(LabRequest(out=tmp_path / "full", seeds=1, overrides=given), lines.append, quiet)
    assert lines[-1] == "next:   regard lab shelf size=full seed=1000 only=two"


@pytest.mark.usefixtures("one_process")
def test_other_settings_have_a_default_folder_of_their_own(here: Path) -> None:
    for given, name in (([], ""), (["width=4"], "-only-two-width-4"), ([], "")):
        request = LabRequest(workers=1, overrides=["only=two", *given])
        report = LAB.run(request, quiet, quiet)["report"]
        assert report == f"runs/lab-shelf-quick{name}/report.html"
    with pytest.raises(RegardError, match="did you mean width"):
        LAB.run(LabRequest(overrides=["only=two", "widht=4"]), quiet, quiet)


def test_the_full_size_has_the_seeds_and_settings_of_the_preset() -> None:
    _, settings, chosen = LAB._chosen(LabRequest(overrides=["size=full", "only=two"]))
    assert [one.name for one in chosen] == ["two"]
    plans = {}
    for size in ("quick", "full"):
        own = LAB._request(chosen[0], LabRequest(), replace_size(settings, size))
        plans[size] = chosen[0].lab_of(size).plan(own)
    assert (plans["quick"].seeds, plans["full"].seeds) == (1, 3)
    assert "steps=2" in plans["quick"].overrides
    assert "steps=9" in plans["full"].overrides
    assert [len(plan.arms) for plan in plans.values()] == [2, 3]
    request = LabRequest(seeds=4, overrides=["steps=5", "only=two"])
    own = LAB._request(chosen[0], request, settings)
    assert own.seeds == 4
    assert "steps=5" in own.overrides
    assert not any(pair.startswith("only") for pair in own.overrides)


def replace_size(settings: Any, size: str) -> Any:
    return settings.model_copy(update={"size": size})


@pytest.mark.usefixtures("one_process")
def test_many_verdicts_are_a_table_and_few_are_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = LabRequest(out=tmp_path, overrides=["only=two"])
    sentence = "between gated and plain"
    LAB.run(request, quiet, quiet)
    assert sentence in (tmp_path / "report.html").read_text("utf-8")
    monkeypatch.setattr("regard.lab.labs.collection.SENTENCES", 0)
    record = LAB.run(request, quiet, quiet)
    (table,) = (one for one in record["tables"] if one["title"] == "two: the differences")
    (row,) = table["rows"]
    (verdict,) = record["parts"]["two"]["verdicts"]
    assert row[:2] == ["gated", "plain"]
    assert float(row[2].replace("−", "-")) == pytest.approx(100 * verdict["difference"], abs=0.05)
    assert sentence not in (tmp_path / "report.html").read_text("utf-8")


def test_a_forecast_trains_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    forecast = LAB.dry_run(LabRequest(out=tmp_path, overrides=["only=one"]), lines.append)
    assert forecast["seconds"] > 0
    assert [row["name"] for row in forecast["forecast"]] == ["one"]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (LabRequest(overrides=["only=three"]), "only=three: 'three' is not one of one, two"),
        (LabRequest(data="x.csv"), "--data x.csv: every comparison of this lab has its own data"),
        (LabRequest(overrides=["data=x.csv"]), "--data x.csv: every comparison of this lab"),
        (LabRequest(overrides=["size=huge"]), "size.*quick.*full"),
    ],
)
def test_a_wrong_request_is_one_line(request_: LabRequest, says: str) -> None:
    with pytest.raises(RegardError, match=says):
        LAB.run(request_, quiet, quiet)


@pytest.mark.usefixtures("one_process")
def test_an_unknown_setting_is_reported_before_training(tmp_path: Path) -> None:
    with pytest.raises(RegardError, match="widht"):
        LAB.run(LabRequest(out=tmp_path, overrides=["widht=3"]), quiet, quiet)
    assert not [*tmp_path.rglob("model.safetensors")]


def test_a_setting_that_only_one_member_has_is_reported_before_training(tmp_path: Path) -> None:
    other = replace(LAB.members[1].lab, task="induction", arms=[Arm("a", "gpt"), Arm("b", "gpt")])
    other = replace(other, presets={"induction": Preset(settings={"steps": 2})})
    lab = replace(LAB, members=[LAB.members[0], replace(LAB.members[1], lab=other, quick_arms=())])
    with pytest.raises(RegardError, match="pairs"):
        lab.run(LabRequest(out=tmp_path, overrides=["pairs=3"]), quiet, quiet)
    assert not [*tmp_path.rglob("config.toml")]


def test_a_budget_replaces_that_of_the_quick_size_and_nothing_else() -> None:
    small = replace(LAB.members[0], quick={"steps": 2, "width": 4})
    settings = LAB._chosen(LabRequest())[1]
    for request in (LabRequest(budget="5s"), LabRequest(overrides=["epochs=1"])):
        overrides = LAB._request(small, request, settings).overrides
        assert "width=4" in overrides
        assert "steps=2" not in overrides


def test_arms_that_cannot_be_made_equal_are_one_line() -> None:
    arms = [Arm("multi-head", "gpt"), Arm("gated", "gpt", ("attention=gated",))]
    shared = ["width=64", "feedforward=16", "layers=2", "heads=2"]
    with pytest.raises(RegardError, match=r"gated has .* parameters more than multi-head"):
        equal_parameters("mqar", arms, shared, "multi-head")


def test_parameters_are_made_equal_by_the_hidden_layer() -> None:
    names = ("multi-head", "gated", "latent", "gla", "delta", "ssd")
    arms = [Arm(name, "gpt", (f"attention={name}",)) for name in names]
    shared = ["width=32", "feedforward=128", "layers=2", "heads=2"]
    aim = parameters("mqar", arms[0], shared)
    for arm in equal_parameters("mqar", arms, shared, "multi-head"):
        assert abs(parameters("mqar", arm, shared) - aim) <= (2 * 32 + 1) * 2 / 2
    fixed = [arms[0], replace(arms[1], overrides=("attention=gated", "feedforward=7"))]
    assert equal_parameters("mqar", fixed, shared, "multi-head") == fixed


@pytest.mark.parametrize("name", ["replications", "mechanisms", "scores"])
@pytest.mark.deep
def test_every_setting_of_the_labs_is_one(name: str) -> None:
    lab = open_lab(name)
    assert isinstance(lab, CollectionLab)
    for size in ("quick", "full"):
        for one in lab.members:
            settings = lab._chosen(LabRequest())[1].model_copy(update={"size": size})
            own = lab._request(one, LabRequest(), settings)
            plan = one.lab_of(size).plan(own)
            study = plan.study(plan.arms, Path("dry"))
            study.check()
            assert len(study.jobs()) == len(plan.arms) * plan.seeds
            assert plan.seeds >= (5 if (name, size) == ("replications", "full") else 2)
