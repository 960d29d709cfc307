"""The lab of three ways to pretrain: its plan and a small run from end to end."""

import re
from dataclasses import replace

import pytest

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs import pretraining as lab
from regard.lab.labs.comparison import Preset, Pretraining, Result
from regard.lab.runs.config import Config
from regard.lab.runs.pretrain_first import WAYS
from tests.lab.labs.conftest import configs_of, quiet


def plan(data="", *pairs, budget=""):
    return lab.LAB.plan(LabRequest(data=data, budget=budget, overrides=pairs))


@pytest.mark.parametrize("data", lab.PRESETS)
@pytest.mark.parametrize("model", WAYS)
def test_the_settings_of_every_arm_hold(data, model, tmp_path):
    made = plan(data, "seeds=1")
    first = next(one for one in made.pretrain_first if one.model == model)
    (job,) = first.jobs(tmp_path, made.seeds)
    config = Config.make(job.task.task, job.task.model, job.task.overrides)
    assert config.network.width == lab.PRESETS[data].pretraining.network["width"]
    tuned = configs_of(made)
    assert list(tuned) == [name for one in WAYS for name in (one, f"pretrained {one}")]
    after = tuned[f"pretrained {model}"]
    assert (after.task, after.model) == ("classification", model)
    assert after.data.tokenizer == config.data.tokenizer
    assert after.data.data == data


def test_labels_and_budgets_go_where_they_belong():
    made = plan("reviews", "labels=30", budget="9 steps")
    assert "examples=30" in made.overrides
    assert not any(pair.startswith("steps=") for pair in made.overrides)
    assert all("steps=9" in first.settings for first in made.pretrain_first)
    assert not any("examples=30" in first.settings for first in made.pretrain_first)
    assert plan().seeds == 5
    about = "bert, gpt, t5 on reviews: 800 labels, 3 to 9 seeds each"
    assert plan("reviews", "seeds=3..9").about == about


def test_bad_settings_are_refused():
    with pytest.raises(RegardError, match="models=elmo: 'elmo' is not one of bert, gpt, t5"):
        plan("", "models=elmo")
    with pytest.raises(RegardError, match="this lab supports reviews and imdb"):
        plan("pydoc")


def verdict(a, b, difference, p, family="ladder"):
    says = f"{a} beats {b}" if p < 0.05 else f"no evidence of a difference between {a} and {b}"
    return {"a": a, "b": b, "difference": difference, "low": -0.01, "high": 0.2, "p": p,
            "says": says, "family": family}  # fmt: skip


def test_ways_are_ranked_by_evidence_alone():
    gpt, bert = (verdict(f"pretrained {m}", m, 0.1, p) for m, p in (("gpt", 0.3), ("bert", 0.01)))
    told = lab.sentences([gpt, bert])
    assert told == [
        "No evidence of a difference between pretrained gpt and gpt.",
        "Pretrained bert beats bert.",
    ]
    assert [lab.gain_claim(gpt), lab.gain_claim(bert)] == [(0.1, False), (0.1, True)]
    lost = verdict("pretrained t5", "t5", -0.1, 0.001)
    assert lab.gain_claim(lost) == (-0.1, False), "a loss is no gain, however sure"


@pytest.mark.parametrize(
    ("p", "says"),
    [
        (0.2, "There is no evidence that one way to pretrain is better than another."),
        (0.02, "Pretrained bert beats pretrained gpt."),
    ],
)
def test_the_answer_ranks_ways_by_evidence_alone(p, says, monkeypatch, tmp_path):
    names = ["bert", "pretrained bert", "gpt", "pretrained gpt"]
    verdicts = [verdict(f"pretrained {m}", m, 0.1, 0.01) for m in ("bert", "gpt")]
    verdicts.append(verdict("pretrained bert", "pretrained gpt", 0.05, p))
    record = {"arms": [{"name": name, "mean": 0.5} for name in names], "verdicts": verdicts}
    monkeypatch.setattr(lab, "learned", lambda *given: (1.0, 0.5))
    result = Result(plan("reviews", "models=bert,gpt"), tmp_path, record, [])
    described = lab.findings(result).described(lab.LAB.page, summary=[])
    assert described.answer == [
        "Fine-tuned on 800 labels, 5 seed(s).", "Pretrained bert beats bert.",
        "Pretrained gpt beats gpt.", says,
    ]  # fmt: skip
    assert described.claims[0]["says"] == (
        "bert: pretraining lifts accuracy by 10.0 points (−1.0 to 20.0), with evidence (p = 0.01)"
    )
    (section,) = described.sections
    assert section.tables[1].rows == [
        ["pretrained bert − pretrained gpt", 5.0, "−1.0 to 20.0", f"{p:.3f}"]
    ]


def test_every_two_ways_are_compared_and_each_with_none():
    assert lab.compared(["bert", "gpt", "t5"]) == [
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
    own = Pretraining(few, {"steps": 2, "examples": 300}, {"steps": 2})
    monkeypatch.setitem(lab.PRESETS, "reviews", Preset(5, {"examples": 200}, pretraining=own))
    request = LabRequest(out=tmp_path / "lab", overrides=["models=bert", "seeds=1"], workers=1)
    said: list[str] = []
    record = open_lab("pretraining").run(request, said.append, quiet)
    assert [arm["name"] for arm in record["arms"]] == ["bert", "pretrained bert"]
    gain = record["arms"][1]["mean"] - record["arms"][0]["mean"]
    assert record["claims"][0]["value"] == pytest.approx(gain)
    assert record["answer"].startswith("Fine-tuned on 200 labels, 1 seed(s). No evidence")
    assert (tmp_path / "lab" / "report.html").exists()
    (row,) = record["tables"][0]["rows"]
    assert 20 < row[3] < 80, "of next sentences half follow"
    assert row[6] == pytest.approx(100 * gain, abs=0.05)
    assert len(record["tables"]) == 1, "one way has no rival"

    done: list[str] = []
    ranged = ["models=bert", "seeds=2..3", "delta=0.001"]  # undecided after 2 seeds
    more = replace(request, overrides=ranged)
    record = open_lab("pretraining").run(more, said.append, lambda *now: done.append(now[2]))
    runs = [re.split(" (?=accuracy|tokens)| already", words) for words in done]
    assert [name for name, *result in runs if "complete" not in result[0]] == [
        "pretrained bert, seed 1", "bert, seed 1", "pretrained bert, seed 1",  # seed 0 is there
        "pretrained bert, seed 2", "bert, seed 2", "pretrained bert, seed 2",
    ]  # fmt: skip
    assert record["seeds"] == 3
    assert record["answer"].startswith("Fine-tuned on 200 labels, 2–3 seed(s).")

    told: list[str] = []
    found = open_lab("pretraining").dry_run(request, told.append)
    names = ["pretrained bert, pretraining", "bert", "pretrained bert"]
    assert [row["name"] for row in found["forecast"]] == names
    told.clear()
    assert open_lab("pretraining").dry_run(more, told.append)["most_seconds"] > found["seconds"]
    assert sum("  2 to 3 × " in line for line in told) == 3
