"""What every lab shares: its settings, its budget and seeds, its end, its files."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import pytest
from pydantic import Field

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import LABS, LabRequest, open_lab
from regard.lab.labs.collection import CollectionLab
from regard.lab.labs.comparison import ComparisonLab
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime
from regard.lab.reports.prose import FORMATS
from tests.lab.labs.conftest import quiet

PAGE = Path(__file__).with_name("toy.md")


class Sizes(Settings):
    width: int = 8
    draws: int = Field(100, ge=10, le=400)
    steps: int = 7
    seed: int = 3


class Seeded(Sizes):
    seeds: int = 3


def findings(sizes: Sizes, of_seed: float | None = None) -> Findings:
    """The value of the claim is the seed, or another one."""
    return Findings(
        {"seed": (sizes.seed if of_seed is None else of_seed, sizes.seed < 5)},
        {"draws": sizes.draws},
        tables={"twos": (["name", "two"], [["a", 2.0], ["b", float("nan")]])},
    )


def toy(settings: type[Sizes] = Sizes) -> MeasuringLab[Any, Any]:
    return MeasuringLab(
        question="Is two two?",
        name="toy",
        settings=settings,
        reference_time=ReferenceTime(
            10, "one core", scales_with=("draws",), steps=("steps",), note="seeds=9: a minute"
        ),
        measure=lambda settings, say, show: settings,
        page=PAGE,
        findings=findings,
        next="regard lab",
    )


def test_other_settings_have_a_default_folder_of_their_own(here: Path) -> None:
    plain, wide = LabRequest(), LabRequest(overrides=["width=9"], seeds=2)
    folders = [toy().run(request, quiet, quiet)["report"] for request in (plain, wide, plain)]
    assert folders == [
        f"runs/{name}/report.html" for name in ("lab-toy", "lab-toy-width-9-seeds-2", "lab-toy")
    ]
    asked = {**plain.__dict__, "out": here / "here"}
    assert toy().run(LabRequest(**asked), quiet, quiet)["report"] == f"{here}/here/report.html"


def test_flags_and_pairs_become_settings() -> None:
    request = LabRequest(seeds=5, overrides=["width=2"])
    assert toy(Seeded).settings_for(request) == Seeded(seeds=5, width=2)
    assert toy(Seeded).all_settings(request) == [Seeded(seeds=5, width=2)]


def test_without_a_setting_for_it_seeds_measure_again() -> None:
    several = toy().all_settings(LabRequest(seeds=2, overrides=["width=2"]))
    assert several == [Sizes(width=2, seed=3), Sizes(width=2, seed=4)]
    with pytest.raises(RegardError, match="--seeds 2 and seed=1 exclude each other; give one"):
        toy().all_settings(LabRequest(seeds=2, overrides=["seed=1"]))


@pytest.mark.parametrize(
    ("budget", "key", "value"),
    [("20s", "draws", 200), ("1s", "draws", 10), ("10m", "draws", 400), ("9 steps", "steps", 9)],
)
def test_a_budget_sets_what_the_time_depends_on(budget: str, key: str, value: int) -> None:
    settings = toy().settings_for(LabRequest(budget=budget))
    assert settings == Sizes(**{key: value})


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (
            LabRequest(data="x.csv"),
            "does not support --data; its settings are: draws, seed, steps, width",
        ),
        (LabRequest(workers=2), "does not support --workers"),
        (LabRequest(overrides=["widht=2"]), "no setting is called 'widht'; did you mean width"),
        (
            LabRequest(budget="9 epochs"),
            "this lab needs a time or a number of steps, for example 30s",
        ),
        (LabRequest(budget="9"), "budget '9' has no unit"),
        (LabRequest(budget="9s", overrides=["draws=2"]), "draws is set twice, by --budget and by"),
    ],
)
def test_what_a_lab_has_no_use_for_is_refused(request_: LabRequest, says: str) -> None:
    with pytest.raises(RegardError, match=says) as error:
        toy().run(request_, quiet, quiet)
    assert "\n" not in str(error.value)
    with pytest.raises(RegardError, match=says):
        toy().dry_run(request_, quiet)


def test_the_end_of_a_lab(tmp_path: Path) -> None:
    said: list[str] = []
    request = LabRequest(out=tmp_path / "new", overrides=["width=2"])
    record = toy().run(request, said.append, quiet)
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == record
    assert record["claims"] == [{"says": "the seed is 3", "value": 3.0, "holds": True}]
    table = {"title": "Twos", "columns": ["name", "two"], "rows": [["a", 2.0], ["b", None]]}
    assert record["tables"] == [table]
    assert record["arms"] == record["verdicts"] == []
    assert record["answer"] == "Two is 2, over 100 draws."
    assert record["command"] == f"regard lab toy --out {tmp_path / 'new'} width=2"
    assert "Is two two?" in Path(record["report"]).read_text()
    assert "  ✓ the seed is 3" in said
    assert said[-1] == "next:   regard lab"


def test_a_claim_about_nothing_has_no_value(tmp_path: Path) -> None:
    lab = replace(toy(), findings=lambda sizes: findings(sizes, of_seed=float("nan")))
    record = lab.run(LabRequest(out=tmp_path, seeds=2), quiet, quiet)
    assert record["claims"][0]["value"] is None
    assert json.loads((tmp_path / "results.json").read_text()) == record


def test_a_claim_holds_if_it_holds_for_every_seed(tmp_path: Path) -> None:
    record = toy().run(LabRequest(out=tmp_path, seeds=3), quiet, quiet)
    assert record["claims"] == [
        {"says": "the seed is 3; holds for 2 of 3 seeds", "value": 3.0, "holds": False}
    ]
    assert record["tables"][-1]["rows"] == [["the seed is 3", 3.0, 5.0, "2 of 3"]]


def test_a_dry_run_says_what_the_lab_took() -> None:
    said: list[str] = []
    found = toy().dry_run(LabRequest(), said.append)
    assert (found["seconds"], found["forecast"]) == (10, [])
    assert said == [found["says"]]
    assert said[0].endswith(
        "took 10 s with its defaults on one core; seeds=9: a minute. "
        "Here: typically 10 s, at most 20 s."
    )
    timed = toy().dry_run(LabRequest(budget="20s", seeds=2), quiet)
    assert timed["seconds"] == 40
    assert timed["says"].endswith("With these settings: typically 40 s, at most 80 s.")
    assert toy().dry_run(LabRequest(overrides=["draws=50"]), quiet)["seconds"] == 5
    bounded = toy().dry_run(LabRequest(budget="10m"), quiet)
    assert bounded["seconds"] == 40, "draws=400 is the most: the budget is not used up"
    assert toy(Seeded).dry_run(LabRequest(seeds=6), quiet)["seconds"] == 20
    changed = toy().dry_run(LabRequest(seeds=2, overrides=["width=3"]), quiet)
    assert changed["seconds"] is None
    assert changed["says"].endswith("The time with these settings is unknown.")
    longer = open_lab("complexity").dry_run(LabRequest(budget="1m"), quiet)
    assert longer["seconds"] == 45 - 20 + 60


def test_where_a_lab_writes() -> None:
    assert toy().place(LabRequest()) == Path("runs/lab-toy")
    assert toy().place(LabRequest(data="my/points.csv")) == Path("runs/lab-toy-points")
    assert toy().command(LabRequest(data="a b.csv")) == "regard lab toy --data 'a b.csv'"


@pytest.mark.parametrize("name", LABS)
def test_every_lab_takes_seeds_and_a_budget(name: str) -> None:
    lab, request = open_lab(name), LabRequest(seeds=2, budget="90s")
    assert (lab.name, lab.question) == (name, LABS[name].question)
    if isinstance(lab, MeasuringLab):
        usual, several = lab.all_settings(LabRequest()), lab.all_settings(request)
        seeds = getattr(several[0], "seeds", 0) or len({one.seed for one in several})
        assert seeds == 2
        assert several[0].model_copy(update={"seeds": 0}) != usual[0].model_copy(
            update={"seeds": 0}
        ), "the budget changes what is measured"
        return
    if isinstance(lab, CollectionLab):
        request, settings, (member, *_) = lab._chosen(request)
        request, lab = lab._request(member, request, settings), member.lab
    assert isinstance(lab, ComparisonLab)
    plan = lab.plan(request)
    assert plan.seeds == 2
    assert plan.budget == "90s" or all("minutes=1.5" in f.settings for f in plan.pretrain_first)


def paged(folder: Path, text: str) -> MeasuringLab[Any, Any]:
    """A toy lab whose prose stands in a page."""
    page = folder / "toy.md"
    page.write_text(text, encoding="utf-8")
    return replace(toy(), page=page)


def test_a_page_and_its_lab_have_the_same_claims(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8").replace("* seed:", "* width: it is 8\n* seat:")
    with pytest.raises(RegardError, match="of the lab and the page differ: seat, seed, width"):
        paged(tmp_path, text).run(LabRequest(out=tmp_path), quiet, quiet)


def test_findings_of_parts_have_different_names() -> None:
    one, other = Findings({"a": (1.0, True)}), Findings({"b": (2.0, False)}, {"x": 1})
    assert Findings.joined([one, other]).claims == {"a": (1.0, True), "b": (2.0, False)}
    with pytest.raises(RegardError, match="two parts of a lab use the name 'a'"):
        Findings.joined([one, Findings({}, {"x": 1}), Findings({"a": (3.0, True)})])


@pytest.mark.parametrize("name", LABS)
def test_every_page_is_a_template(name: str) -> None:
    page = getattr(open_lab(name), "page", None)
    if page:
        assert page.exists()
        environment = jinja2.Environment(autoescape=True)
        environment.filters |= FORMATS
        environment.parse(page.read_text(encoding="utf-8"))


def test_a_measuring_lab_takes_one_number_of_seeds_and_no_delta() -> None:
    with pytest.raises(RegardError, match=r"--seeds 3\.\.9: this lab measures and decides nothing"):
        toy().dry_run(LabRequest(seeds=9, least=3), quiet)
    with pytest.raises(RegardError, match="this lab does not support --delta"):
        toy().dry_run(LabRequest(delta=1.0), quiet)
