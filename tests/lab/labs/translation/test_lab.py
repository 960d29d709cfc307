"""The lab of translators: its settings, its claims, a small run."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.comparison import BUDGETS, Result
from regard.lab.labs.translation.lab import LAB, budgets, claims_of
from regard.lab.labs.translation.presets import ARMS
from regard.lab.reports.evidence import Arm as Found
from regard.lab.runs.config import Config
from regard.training.settings import MOST_EPOCHS
from tests.lab.labs.conftest import configs_of, quiet


def configs(request: LabRequest) -> dict[str, Config]:
    return configs_of(LAB.plan(request))


@pytest.mark.parametrize("data", ["", "multi30k", "eng-fra"])
def test_every_setting_is_one_and_every_arm_has_its_own(data: str) -> None:
    found = configs(LabRequest(data=data))
    assert tuple(found) == ARMS
    assert {c.task for c in found.values()} == {"translation" if data else "dates"}
    assert {c.data.model_dump()["metric"] for c in found.values()} == {"bleu" if data else "exact"}
    if data:
        assert len({c.training.budget for c in found.values()}) == 1, "equal budgets"
        assert len({c.training.batch_tokens for c in found.values()}) == 1
    hidden = {name: c.network.model_dump().get("hidden") for name, c in found.items()}
    assert hidden.pop("transformer") is None
    assert set(hidden.values()) == {384 if data else 64}


def test_what_the_user_sets_holds_for_all() -> None:
    found = configs(LabRequest(overrides=["width=24", "hidden=16", "steps=7"]))
    assert {c.network.model_dump()["width"] for c in found.values()} == {24}
    assert {c.training.steps for c in found.values()} == {7}
    plan = LAB.plan(LabRequest(data="multi30k", budget="10m"))
    given = {pair.partition("=")[0] for pair in plan.overrides}
    given |= {pair.partition("=")[0] for arm in plan.arms for pair in arm.overrides}
    assert not given & BUDGETS
    assert LAB.plan(LabRequest(seeds=5)).seeds == 5
    assert {c.training.steps for c in configs(LabRequest()).values()} == {700}
    with pytest.raises(RegardError, match="key=value, not 'width'"):
        LAB.plan(LabRequest(overrides=["width"]))


def test_pairs_of_ones_own_are_learned_until_validation_stops_improving(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("source\ttarget\na\tb\n")
    for config in configs(LabRequest(data=str(tmp_path / "pairs.tsv"))).values():
        assert config.training.patience
        assert config.training.budget == ("epochs", MOST_EPOCHS)
    for config in configs(LabRequest(data="multi30k")).values():
        assert not config.training.patience
        assert config.training.schedule == "linear"


@pytest.mark.parametrize(
    ("steps", "ended", "kind"),
    [
        ([30, 50], ["patience", "patience"], "patience"),
        ([50, 50], ["budget", "budget"], "same steps"),
        ([30, 50], ["patience", "budget"], "different"),
    ],
)
def test_what_ended_the_trainings_is_told(
    tmp_path: Path, steps: list[int], ended: list[str], kind: str
) -> None:
    arms = []
    for number, (step, how) in enumerate(zip(steps, ended, strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        row = {"step": step, "tokens": 9 * step, "epoch": 1.5, "ended": how}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
        arms.append(Found(f"arm {number}", {}, (folder,)))
    assert budgets(arms).values == {"budgets": kind}


def test_claims_tell_the_numbers() -> None:
    means = {"gru": 0.1, "luong-dot": 0.5, "bahdanau": 0.95, "transformer": 0.02}
    arms: list[dict[str, Any]] = [{"name": n, "mean": m, "also": {}} for n, m in means.items()]
    arms[2]["also"]["alignment error"] = 0.03
    record: dict[str, Any] = {"arms": arms, "metric": "exact match", "verdicts": []}
    result = Result(LAB.plan(LabRequest()), Path(), record, [])
    found = claims_of(result)
    leads = found.values["leads"]
    assert leads["best"].name == "bahdanau"
    assert found.claims["best"][0] == pytest.approx(0.85)
    worst = leads["worst"]
    assert (worst.name, worst.mean, worst.other, worst.interval) == ("luong-dot", 0.5, 0.1, None)
    assert not found.claims["transformer"][1], "it has less than no attention"
    assert (found.claims["alignment"], found.claims["exact"]) == ((0.03, True), (0.95, True))
    arms[3]["mean"] = 0.4
    record["verdicts"] = [
        {"a": "transformer", "b": "gru", "low": -0.1, "high": 0.7},
        {"a": "luong-dot", "b": "gru", "low": -0.1, "high": 0.9},
    ]
    found = claims_of(result)
    assert found.values["leads"]["transformer"].interval == (-0.1, 0.7)
    assert [found.claims[key][1] for key in ("best", "worst", "transformer")] == [
        True, False, True
    ], "a bound of a mean, a gain"  # fmt: skip


@pytest.mark.usefixtures("one_process")
def test_a_small_lab_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.lab.data.parallel.HELD", 60)
    said: list[str] = []
    small = ["steps=2", "width=8", "hidden=8", "feedforward=8", "examples=300", "judged=4",
             "batch_tokens=300", "evaluate_every=2", "layers=1", "length=24"]  # fmt: skip
    request = LabRequest(out=tmp_path / "lab", overrides=small, workers=1)
    record = open_lab("translation").run(request, said.append, quiet)
    assert [arm["name"] for arm in record["arms"]] == list(ARMS)
    budget, searched, heads = record["tables"]
    assert [row[:2] for row in budget["rows"]] == [[name, 2] for name in ARMS]
    assert [row[0] for row in searched["rows"]] == ["greedy", "beam 2", "beam 5", "beam 10"]
    assert [row[:2] for row in heads["rows"]][-5:] == [
        ["transformer", "all"],
        *(["transformer", f"layer 1, head {head}"] for head in (1, 2, 3, 4)),
    ]
    assert len(heads["rows"]) == 4 + 5
    page = (tmp_path / "lab" / "report.html").read_text(encoding="utf-8")
    for part in ("the same number of steps", "Quality by source length",
                 "Alignment of output and source", "Beam search against",
                 "Alignment of each head", "Worst texts", "alignment error"):  # fmt: skip
        assert part in page, part
    assert any(line.startswith("next:   regard lab translation") for line in said)


def test_a_rehearsal_forecasts_every_arm(tmp_path: Path) -> None:
    said: list[str] = []
    small = ["steps=2", "width=8", "hidden=8", "feedforward=8", "examples=300", "batch_tokens=300"]
    found = open_lab("translation").dry_run(
        LabRequest(out=tmp_path / "x", overrides=small), said.append
    )
    assert [row["name"] for row in found["forecast"]] == list(ARMS)
    assert found["seconds"] > 0
    assert not (tmp_path / "x").exists()
