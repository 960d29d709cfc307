"""The sentiment lab: its settings, its claims, and one small run of it from end to end."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import regard
from regard.core.errors import RegardError
from regard.lab.labs import LABS, LabRequest, open_lab
from regard.lab.labs.comparison import ANY_DATA, Preset, Pretraining, Result
from regard.lab.labs.sentiment import ladder
from regard.lab.labs.sentiment import plan as plans
from regard.lab.labs.sentiment.lab import (
    LAB,
    Interval,
    by_kind,
    claims_of_films,
    claims_of_order,
    findings,
    kinds_chart,
)
from regard.lab.labs.sentiment.plan import ARMS, BLIND, BUILT_ON, FILMS, LAYERED, PRESETS, REFERENCE
from regard.lab.reports.evidence import arms_of
from regard.lab.runs.config import Config
from regard.lab.studies.arms import Arm
from regard.lab.tasks.models import MODELS
from tests.lab.labs.conftest import configs_of, quiet

assert LAB.page
PAGE = LAB.page
SMALL = ("examples=80", "steps=2", "width=8", "layers=1")


def test_the_table_of_labs_names_this_one() -> None:
    lab = open_lab("sentiment")
    assert (lab.name, lab.question) == ("sentiment", LABS["sentiment"].question)
    assert lab.question.endswith("?")


def test_all_rungs_of_the_seed_and_the_baselines_are_arms() -> None:
    assert set(ARMS) == set(MODELS) - {
        "gpt", "bert", "frozen", "t5", "fasttext", "static", "sentence"  # pretrained first
    }  # fmt: skip
    assert ARMS[0] == REFERENCE == "mean"
    assert set(BUILT_ON) | set(BUILT_ON.values()) <= set(ARMS)


def configs(request: LabRequest) -> dict[str, Config]:
    return configs_of(LAB.plan(request))


def flat(config: Config) -> dict[str, Any]:
    return {k: v for part in config.sections().values() for k, v in part.items()}


@pytest.mark.parametrize("data", [*(data for data in PRESETS if data != ANY_DATA), "mine.csv"])
def test_every_rung_differs_from_the_one_it_is_built_on_in_one_setting(data: str) -> None:
    found = configs(LabRequest(data=data))
    changed = {
        rung: ladder.changes(flat(found[rung]), flat(found[base]))
        for rung, base in BUILT_ON.items()
        if rung in found
    }
    expected = {
        "attention-pool": ["pool: mean → attention"],
        "query-from-mean": ["pool: attention → query-from-mean"],
        "self-attention": [f"layers: 0 → {1 if data == FILMS else 3}"],
        "+residual": ["block: plain → residual"],
        "+positions": ["position: none → sinusoidal"],
        "+residual+positions": ["position: none → sinusoidal"],
        "+cls": ["pool: mean → cls"],
    }
    assert changed == {rung: change for rung, change in expected.items() if rung in found}
    assert len(found) == (5 if data == FILMS else 13)


@pytest.mark.parametrize("data", [*(data for data in PRESETS if data != ANY_DATA), "mine.csv"])
def test_all_words_begin_at_one_scale(data: str) -> None:
    settings = [flat(config) for config in configs(LabRequest(data=data)).values()]
    assert len({own["init_std"] for own in settings if "init_std" in own}) == 1
    assert {own["data"] for own in settings} == {data}


def test_a_sweep_of_depths_trains_the_layered_arms_at_each() -> None:
    plan = LAB.plan(LabRequest(overrides=["layers=1,3"]))
    assert [arm.name for arm in plan.arms] == [
        "mean", *(f"{name} ×{depth}" for name in LAYERED for depth in (1, 3))
    ]  # fmt: skip
    assert ("+residual ×3", "self-attention ×3") in plan.ladder
    found = configs(LabRequest(overrides=["layers=1,3"]))
    one, three = (flat(found[f"+cls ×{depth}"]) for depth in (1, 3))
    assert ladder.changes(three, one) == ["layers: 1 → 3"]


def test_claims_about_real_sentences_and_word_order() -> None:
    arms = {
        "mean": {"real": 0.70, "generated": 0.64},
        "self-attention": {"real": 0.68, "generated": 0.66},
        "+positions": {"real": 0.66, "generated": 0.81},
        "tfidf": {"real": 0.71, "generated": 0.80},
    }
    found = claims_of_films(spread(arms))
    assert found.values["best_real"] == "mean"
    assert found.values["best_blind"] == "self-attention"
    assert {key: holds for key, (_, holds) in found.claims.items()} == {
        "real": True, "blind": True, "positions": True,
    }  # fmt: skip
    assert found.claims["real"][0] == pytest.approx(-0.01)
    assert found.claims["positions"][0] == pytest.approx(0.15)
    arms["mean"]["real"], arms["+positions"]["generated"] = 0.74, 0.69
    claims = claims_of_films(spread(arms)).claims
    assert [holds for _, holds in claims.values()] == [False, True, False]


def test_the_chart_of_both_kinds_has_a_row_for_each_arm_and_kind() -> None:
    arms = [SimpleNamespace(name="mean", family="network", trained=True)]
    chart = kinds_chart(arms, spread({"mean": {"real": 0.7, "generated": 0.64}}))  # type: ignore[arg-type]
    assert "real: mean 70.0 [69.0, 71.0]; generated: mean 64.0 [63.0, 65.0]" in str(chart)


def spread(arms: dict[str, dict[str, float]]) -> dict[str, dict[str, Interval]]:
    """Return accuracies with an interval of one point on either side."""
    return {
        name: {kind: (mean, mean - 0.01, mean + 0.01) for kind, mean in kinds.items()}
        for name, kinds in arms.items()
    }


def test_accuracy_is_read_by_kind_of_sentence(tmp_path: Path) -> None:
    given = {"data": "film-sentences", "examples": 80, "length": 8}
    run = regard.train("classification", model="tfidf", out=tmp_path / "run", **given)
    (arm,) = by_kind([SimpleNamespace(name="tfidf", folders=[run.folder.path])]).values()  # type: ignore[list-item]
    right = run.evaluate().correct
    assert {kind: ends[0] for kind, ends in arm.items()} == {
        "real": pytest.approx(right[:1000].mean()),
        "generated": pytest.approx(right[1000:].mean()),
    }
    assert all(low < mean < high for mean, low, high in arm.values())
    assert len(right) == 1500


@pytest.mark.parametrize("layers", ["three", "0", "1,1", "1,,3", "-2"])
def test_layers_that_are_no_numbers_are_refused(layers: str) -> None:
    with pytest.raises(RegardError, match=f"layers={layers}: give a number of layers"):
        LAB.plan(LabRequest(overrides=[f"layers={layers}"]))


def test_the_self_pretrained_arm() -> None:
    plan = LAB.plan(LabRequest(data="imdb"))
    assert [arm.name for arm in plan.arms] == list(ARMS), "only on request: it takes hours"
    assert plan.pretrain_first == []
    wanted = ["width=16", "pretrained=train"]
    plan = LAB.plan(LabRequest(data="imdb", overrides=wanted, budget="7 steps"))
    arm = plan.arms[-1]
    assert (arm.name, arm.model) == ("self-pretrained", "bert")
    (first,) = plan.pretrain_first
    assert "width=16" in first.settings, "the network is the same before and after"
    assert "steps=7" in first.settings
    assert not any(pair.startswith("tokens=") for pair in first.settings)
    jobs = first.jobs(Path("out"), plan.seeds)
    for job in jobs:
        config = Config.make(job.task.task, job.task.model, job.task.overrides)
        assert flat(config)["width"] == 16
        assert not flat(config)["next_sentence"]
    assert [job.seed for job in jobs] == [0, 1, 2]
    assert jobs[2].task.folder == "out/pretrained/self-pretrained/seed-2"
    begun = plan.initialized(Path("out"))[-1]
    assert begun.overrides[0] == "init=out/pretrained/self-pretrained/seed-{seed}"

    given = LAB.plan(LabRequest(data="imdb", overrides=["pretrained=runs/mine"]))
    assert given.pretrain_first[0].jobs(Path("out"), 3) == []
    begun = given.initialized(Path("out"))[-1]
    assert "init=runs/mine" in begun.overrides
    assert not any(pair.startswith("width=") for pair in begun.overrides)
    with pytest.raises(RegardError, match="no arm is pretrained on film-sentences"):
        LAB.plan(LabRequest(overrides=["pretrained=train"]))


def test_the_users_budget_and_settings_come_last() -> None:
    plan = LAB.plan(LabRequest(overrides=["size=full", "steps=7", "width=24", "hidden=5"], seeds=9))
    assert plan.seeds == 9
    assert "steps=7" in plan.overrides
    assert "width=24" in plan.overrides
    assert not any(pair.startswith("epochs=") for pair in plan.overrides)
    assert not any(pair.startswith("hidden=") for arm in plan.arms for pair in arm.overrides)
    assert not any(p.startswith("epochs=") for p in LAB.plan(LabRequest(budget="1m")).overrides)


def test_layers_are_for_the_arms_that_have_some() -> None:
    given = {arm.name: arm.overrides for arm in LAB.plan(LabRequest(overrides=["layers=2"])).arms}
    assert "layers=2" in given["transformer"]
    assert "layers=2" in given["self-attention"]
    assert given["mean"] == ()
    assert "layers=2" not in LAB.plan(LabRequest(overrides=["layers=2"])).overrides


def test_a_setting_without_equals_is_refused() -> None:
    with pytest.raises(RegardError, match="key=value, not 'width'"):
        LAB.plan(LabRequest(overrides=["width"]))


def record(**means: float) -> dict[str, Any]:
    return {
        "arms": [{"name": name.replace("_", "-"), "mean": mean} for name, mean in means.items()]
    }


def found(rows: dict[str, Any], data: str, *overrides: str) -> Result:
    plan = LAB.plan(LabRequest(data=data, overrides=overrides))
    return Result(plan, Path(), rows, arms_of(rows, Path("nowhere")))


def claims(result: Result) -> list[dict[str, Any]]:
    """The claims as the page words them."""
    return [*findings(result).described(PAGE, summary=[]).claims]


def test_claims_on_real_reviews() -> None:
    told = claims(found(record(mean=0.871, transformer=0.889, nb_svm=0.914), "imdb"))
    assert [(c["value"], c["holds"]) for c in told] == [(0.871, True), (0.889, False)]
    assert "labels alone, transformer" in told[1]["says"], "a baseline is no network"
    rows = record(mean=0.871, rnn=0.891)
    rows["arms"].append({"name": "self-pretrained", "model": "bert", "mean": 0.926})
    told = claims(found(rows, "imdb"))
    assert [(c["value"], c["holds"]) for c in told[1:]] == [(0.891, True), (0.926, True)]


def verdict(a: str, b: str, difference: float, p: float) -> dict[str, Any]:
    return {"a": a, "b": b, "difference": difference, "low": 0.0, "high": 0.3, "p": p}


def test_each_rung_of_imdb_is_a_claim_and_has_its_cost() -> None:
    rows = record(mean=0.87, attention_pool=0.89, self_attention=0.86)
    cost = {"seconds": 12.0, "parameters": 1_500_000, "flops": 40_000.0}
    rows["arms"] = [{**row, **cost, "seeds": 3} for row in rows["arms"]]
    rows |= {"seeds": 3}
    rows["verdicts"] = [
        verdict("attention-pool", "mean", 0.02, 0.01), verdict("self-attention", "mean", -0.01, 0.3)
    ]  # fmt: skip
    result = found(rows, "imdb")
    settings = configs(LabRequest(data="imdb"))
    for arm in result.arms:
        vars(arm)["config"] = flat(settings[arm.name])  # in place of the run's folder
    told = claims(result)[2:]
    assert [(c["value"], c["holds"]) for c in told] == [(0.02, True), (-0.01, False)]
    assert told[0]["says"].endswith("in points: +2.0 (0.0 to 30.0), p = 0.010")
    section = ladder.steps(result)
    assert section.tables["ladder"][1][0] == [
        "attention-pool", "mean", "pool: mean → attention", "89.0", 2.0, "0.0 to 30.0", "0.010",
        "12 s → 12 s", "1,500,000", 0.04,
    ]  # fmt: skip
    assert "Gain of each step" in str(section.figures["gains"])


def test_imdb_has_a_limit_of_epochs_unless_the_user_gives_a_budget() -> None:
    trained = flat(configs(LabRequest(data="imdb"))["transformer"])
    assert (trained["epochs"], trained["evaluate_every"]) == (3, 176)
    own = LAB.plan(LabRequest(data="imdb", budget="9 steps")).overrides
    assert not any(pair.startswith("epochs=") for pair in own)


def test_claims_about_depth() -> None:
    means = {"self-attention ×1": 0.6, "self-attention ×6": 0.5}
    means |= {"+residual ×1": 0.62, "+residual ×6": 0.63}
    rows: dict[str, Any] = {"arms": [{"name": name, "mean": mean} for name, mean in means.items()]}
    rows["verdicts"] = [verdict("+residual ×6", "self-attention ×6", 0.13, 0.2)]
    swept = found(rows, "reviews", "layers=1,6")
    told = claims(swept)
    assert [(c["value"], c["holds"]) for c in told] == [
        (pytest.approx(0.11), True),
        (0.13, False),
    ]
    assert "loses 10.0 points and +residual −1.0" in told[0]["says"]
    _, table = ladder.depth_table(swept, [1, 6])
    assert table[0] == ["self-attention", "60.0", "50.0"]
    assert table[6] == [
        "+residual − self-attention", "–", "+13.0 (0.0 to 30.0), p = 0.200"
    ]  # fmt: skip


def test_claims_about_word_order() -> None:
    both = {"mean": {"both": 0.0, "same": 1.0}, "cnn": {"both": 0.9, "same": 0.1}}
    rows = found(record(mean=0.61, self_attention=0.68, cnn=0.97), "reviews")
    order = claims_of_order(rows.means, {"arms": both})
    assert order.claims == {"blind": (0.68, True), "pairs-blind": (0.0, True), "pairs": (0.9, True)}
    (*_, told) = order.described(PAGE, summary=[]).claims
    assert told["says"] == "same words, opposite labels: cnn gets both right in 90.0 %"
    assert claims(found(record(mean=0.9), "mine.csv")) == []


def test_the_command_says_what_was_asked() -> None:
    request = LabRequest(data="my reviews.csv", seeds=5, budget="10m", overrides=["width=8"])
    said = open_lab("sentiment").command(request)
    assert said == "regard lab sentiment --data 'my reviews.csv' --seeds 5 --budget 10m width=8"


def test_a_small_lab_from_end_to_end(tmp_path: Path) -> None:
    said: list[str] = []
    shares: list[tuple[float, float]] = []
    request = LabRequest(seeds=1, out=tmp_path / "lab", overrides=SMALL, workers=1)
    result = open_lab("sentiment").run(
        request, said.append, lambda done, total, *_: shares.append((done, total))
    )
    assert [row["name"] for row in result["arms"]] == list(ARMS)
    assert shares[-1] == (len(ARMS), len(ARMS))
    bases = [base for base in BUILT_ON.values() if base != "mean"]
    assert len(result["verdicts"]) == len(ARMS) - 1 + len(bases)
    (table,) = result["tables"]
    assert [row[:3] for row in table["rows"]][-1] == [
        "+cls", "+residual+positions", "pool: mean → cls"
    ]  # fmt: skip
    assert {"says", "value", "holds"} == set(result["claims"][0])
    blind = [result["word_order"]["arms"][name]["both"] for name in BLIND]
    assert blind == [0.0] * 5, "who ignores order is never right about both sentences"
    page = Path(result["report"]).read_text(encoding="utf-8")
    for part in ("Dependence on word order", "Attention on test texts",
                 "Dot products of sinusoidal positions", "Learning curves",
                 "The ladder, one change at a time", "1 layer of x"):  # fmt: skip
        assert part in page, part
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    words = "\n".join(said)
    assert f"report: {tmp_path / 'lab' / 'report.html'}" in words
    assert "next:   regard lab sentiment layers=1,3,6" in words
    assert "3 layers of" not in page, "one layer was trained"

    told: list[str] = []
    again = open_lab("sentiment").run(request, said.append, lambda *shown: told.append(shown[2]))
    assert all("already complete" in words for words in told)
    assert again["arms"] == result["arms"]


@pytest.mark.usefixtures("one_process")
def test_a_small_sweep_with_a_pretrained_arm_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Preset(1, {"length": 40, "steps": 1})
    monkeypatch.setitem(plans.PRESETS, "reviews", small)
    request = LabRequest(out=tmp_path / "deep", overrides=["layers=1,2", *SMALL[:3]], workers=1)
    result = open_lab("sentiment").run(request, quiet, quiet)
    assert len(result["arms"]) == 1 + 2 * len(LAYERED)
    page = Path(result["report"]).read_text(encoding="utf-8")
    assert "Accuracy over depth" in page
    assert "Does depth need a residual?" in page
    assert [row[0] for row in result["tables"][0]["rows"]][: len(LAYERED)] == list(LAYERED)

    sizes = {"width": 8, "heads": 2, "layers": 1, "feedforward": 8, "length": 40}
    before = Pretraining(
        {**sizes, "tokenizer": "words", "minimum": 2}, {"steps": 1, "examples": 200}, {"steps": 1}
    )
    pretrained = Preset(1, {"length": 40, "steps": 1}, pretraining=before)
    monkeypatch.setitem(plans.PRESETS, "reviews", pretrained)
    lab = replace(open_lab("sentiment"), arms=[Arm("mean", "mean")])
    wanted = ["size=full", "examples=80", "pretrained=train"]
    request = LabRequest(out=tmp_path / "before", overrides=wanted, workers=1)
    result = lab.run(request, quiet, quiet)
    assert [row["name"] for row in result["arms"]] == ["mean", "self-pretrained"]
    assert (
        tmp_path / "before" / "pretrained" / "self-pretrained" / "seed-0" / "MANIFEST.json"
    ).exists()


@pytest.mark.usefixtures("one_process")
@pytest.mark.deep
def test_a_lab_ends_where_its_forecast_says(tmp_path: Path) -> None:
    """In steps: typically, within a factor of four, and at most."""
    settings = [pair for pair in SMALL if pair.partition("=")[0] not in ("steps", "epochs")]
    lab = replace(LAB, arms=["mean", "self-attention", "tfidf"])
    request = LabRequest(out=tmp_path / "lab", overrides=[*settings, "patience=2"], seeds=1)
    forecast = lab.dry_run(request, quiet)["forecast"]
    lab.run(request, quiet, quiet)
    assert len(forecast) == 3
    for row in forecast:
        file = tmp_path / "lab" / row["name"] / "seed-0" / "metrics.jsonl"
        steps = json.loads(file.read_text().splitlines()[-1])["step"]
        assert row["steps"] / 4 <= steps <= row["most_steps"], row
        assert steps <= 4 * row["steps"], row
        assert row["seconds"] <= row["most_seconds"]


def test_a_dry_run_trains_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    told = open_lab("sentiment").dry_run(
        LabRequest(out=tmp_path / "lab", overrides=SMALL, seeds=1), said.append
    )
    assert [row["name"] for row in told["forecast"]] == list(ARMS)
    assert told["seconds"] > 0
    assert not (tmp_path / "lab").exists()
    assert said[-1].startswith("total: typically")
