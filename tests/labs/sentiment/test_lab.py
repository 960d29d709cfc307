"""The sentiment lab: its settings, its claims, and one small run of it from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.errors import RegardError
from regard.labs import LABS, Order
from regard.labs.finding import command
from regard.labs.sentiment import lab as sentiment
from regard.labs.sentiment.lab import ARMS, KINDS, claims, plan_for
from regard.models import MODELS
from regard.runs.config import Config

SMALL = ("examples=80", "steps=2", "width=8", "layers=1")


def test_the_table_of_labs_names_this_one() -> None:
    assert LABS["sentiment"].module == "regard.labs.sentiment.lab"
    assert LABS["sentiment"].question.endswith("?")


def test_all_rungs_of_the_seed_and_the_baselines_are_arms() -> None:
    assert set(ARMS) == set(MODELS) - {"gpt", "bert", "t5"}  # those are pretrained first
    assert ARMS[0] == sentiment.REFERENCE == "mean"
    assert {name for pair in sentiment.RUNGS for name in pair} <= set(ARMS)


@pytest.mark.parametrize("data", [*KINDS, "mine.csv"])
def test_every_setting_is_one(data: str) -> None:
    plan = plan_for(Order(data=data))
    for arm in plan.arms:
        entry = MODELS[arm.model]
        fields = {field for part in sentiment._parts(arm.model) for field in part.model_fields}
        shared = [pair for pair in plan.overrides if sentiment.key(pair) in fields]
        own = {sentiment.key(pair) for pair in arm.overrides}
        config = Config.make(
            "sentiment", arm.model,
            [*(p for p in shared if sentiment.key(p) not in own), *arm.overrides],
        )  # fmt: skip
        assert config.entry is entry
        assert config.sections()["data"]["data"] == data


def test_the_users_budget_and_settings_come_last() -> None:
    plan = plan_for(Order(overrides=["steps=7", "width=24", "hidden=5"], seeds=9))
    assert plan.seeds == 9
    assert "steps=7" in plan.overrides
    assert "width=24" in plan.overrides
    assert not any(pair.startswith("epochs=") for pair in plan.overrides)
    assert not any(pair.startswith("hidden=") for arm in plan.arms for pair in arm.overrides)
    assert not any(p.startswith("epochs=") for p in plan_for(Order(budget="1m")).overrides)


def test_layers_are_for_the_arms_that_have_some() -> None:
    given = {arm.name: arm.overrides for arm in plan_for(Order(overrides=["layers=2"])).arms}
    assert "layers=2" in given["transformer"]
    assert "layers=2" in given["self-attention"]
    assert given["mean"] == ()
    assert "layers=2" not in plan_for(Order(overrides=["layers=2"])).overrides


def test_a_setting_without_equals_is_refused() -> None:
    with pytest.raises(RegardError, match="key=value, not 'width'"):
        plan_for(Order(overrides=["width"]))


def record(**means: float) -> dict[str, Any]:
    return {
        "arms": [{"name": name.replace("_", "-"), "mean": mean} for name, mean in means.items()]
    }


def test_claims_on_real_reviews() -> None:
    told = claims(record(mean=0.871, transformer=0.889, nb_svm=0.914), "imdb", None)
    assert [(c["value"], c["holds"]) for c in told] == [(0.871, True), (0.889, False)]
    assert "the best network, transformer" in told[1]["says"], "a baseline is no network"


def test_claims_about_word_order() -> None:
    both = {"mean": {"both": 0.0, "same": 1.0}, "cnn": {"both": 0.9, "same": 0.1}}
    told = claims(record(mean=0.61, self_attention=0.68, cnn=0.97), "reviews", {"arms": both})
    assert [(c["value"], c["holds"]) for c in told] == [(0.68, True), (0.0, True), (0.9, True)]
    assert claims(record(mean=0.9), "mine.csv", None) == []


def test_the_command_says_what_was_asked() -> None:
    order = Order(data="my reviews.csv", seeds=5, budget="10m", overrides=["width=8"])
    said = command("sentiment", order)
    assert said == "regard lab sentiment --data 'my reviews.csv' --seeds 5 --budget 10m width=8"


def test_a_small_lab_from_end_to_end(tmp_path: Path) -> None:
    said: list[str] = []
    shares: list[tuple[float, float]] = []
    order = Order(seeds=1, out=tmp_path / "lab", overrides=SMALL, workers=1)
    result = sentiment.run(order, said.append, lambda done, total, *_: shares.append((done, total)))
    assert [row["name"] for row in result["arms"]] == list(ARMS)
    assert shares[-1] == (len(ARMS), len(ARMS))
    assert len(result["verdicts"]) == len(ARMS) - 1 + len(sentiment.RUNGS)
    assert {"says", "value", "holds"} == set(result["claims"][0])
    blind = [result["word_order"]["arms"][name]["both"] for name in sentiment.BLIND]
    assert blind == [0.0] * 5, "who ignores order is never right about both sentences"
    page = Path(result["report"]).read_text(encoding="utf-8")
    for part in ("Word order decides", "What they look at", "pe·pe", "Learning"):
        assert part in page, part
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    words = "\n".join(said)
    assert words.startswith(LABS["sentiment"].question)
    assert f"report: {tmp_path / 'lab' / 'report.html'}" in words
    assert "next:   regard lab sentiment --data imdb" in words

    told: list[str] = []
    again = sentiment.run(order, said.append, lambda *shown: told.append(shown[2]))
    assert all("complete already" in words for words in told)
    assert again["arms"] == result["arms"]


def test_rehearsal_trains_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    told = sentiment.rehearse(Order(out=tmp_path / "lab", overrides=SMALL, seeds=1), said.append)
    assert [row["name"] for row in told["forecast"]] == list(ARMS)
    assert told["seconds"] > 0
    assert not (tmp_path / "lab").exists()
    assert said[-1].startswith("in all about")
