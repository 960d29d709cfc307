"""The scores lab: its arms, what it claims, and one small run from end to end."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.attention import NORMALIZERS, SCORES
from regard.errors import RegardError
from regard.labs import LABS, LabRequest, open_lab
from regard.labs.scores.lab import LAB, ScoresSettings, pairs_of, study
from regard.labs.scores.report import Study, claims, in_short, label
from regard.labs.scores.tasks import (
    HELD,
    TASKS,
    Arm,
    Budget,
    Kept,
    Trained,
    Work,
    alike,
    reviews,
    task_of,
    train,
)


def chosen(*pairs: str) -> ScoresSettings:
    return LAB.settings_for(LabRequest(overrides=pairs))


def result(task: str, score: str, normalizer: str, share: float) -> Trained:
    """An arm whose seeds are right on about this share of 200 examples."""
    draw = np.random.default_rng(0).random((5, 200))
    right = draw < np.clip(share + np.linspace(-0.02, 0.02, 5), 0, 1)[:, None]
    return Trained(
        Arm(task, score, normalizer), right, (share,) * 5, 0.01, (share, 0.0), ((10, share),), 0.1,
        1.0, 99,
    )  # fmt: skip


def studied(task: str, shares: dict[tuple[str, str], float]) -> Study:
    return study(task, {(r := result(task, *p, s)).arm: r for p, s in shares.items()}, {})


def test_every_row_of_both_tables_once() -> None:
    pairs = pairs_of(chosen())
    assert pairs[0] == ("scaled-dot", "softmax")
    assert {score for score, _ in pairs} == set(SCORES)
    assert {name for _, name in pairs} == set(NORMALIZERS)
    assert len(pairs) == len(set(pairs)) == len(SCORES) + len(NORMALIZERS) - 1
    assert ("boxcar", "sum") in pairs
    assert ("boxcar", "softmax") not in pairs


def test_all_pairs_and_chosen_ones() -> None:
    assert len(pairs_of(chosen("pairs=all"))) == len(SCORES) * len(NORMALIZERS)
    some = chosen("scores=dot", "normalizers=sink,softmax")
    reference = ("scaled-dot", "softmax")
    assert pairs_of(some) == [reference, ("dot", "softmax"), ("scaled-dot", "sink")]


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("tasks=recal", "no task is called 'recal'; did you mean recall"),
        ("scores=", "no score is called ''"),
        ("scores=dot,dot", "one score or more, each once"),
        ("rates=0.01,fast", "learning rates above 0 and at most 1"),
        ("rates=0", "learning rates above 0 and at most 1"),
        ("seeds=1", "greater than or equal to 2"),
        ("effort=-1", "greater than 0"),
        ("effort=nan", "finite number"),
        ("pairs=some", "'once' or 'all'"),
        ("held=5000", "less than or equal to 500"),
    ],
)
def test_bad_settings_are_one_line(pair: str, says: str) -> None:
    with pytest.raises(RegardError, match=says) as error:
        chosen(pair)
    assert "\n" not in str(error.value)


def test_a_score_of_ones_own_may_take_part() -> None:
    assert chosen("scores=dot,mine.py:Mine").scores == ("dot", "mine.py:Mine")


def test_a_score_of_ones_own_that_cannot_be_made_stops_the_lab_before_it_trains(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text("x = 1")
    request = LabRequest(out=tmp_path, overrides=[f"scores={tmp_path / 'mine.py'}:Mine"])
    shown: list[str] = []
    with pytest.raises(RegardError, match="Mine"):
        open_lab("scores").run(
            request, shown.append, lambda done, total, says, left=None: shown.append(says)
        )
    assert shown == [LABS["scores"].question], "nothing was begun"


SMALL = Budget(seeds=2, rates=(0.03, 1e-9), effort=0.1, held=40)


@pytest.mark.parametrize("name", TASKS)
def test_an_arm_learns_and_its_rate_is_chosen_on_validation(name: str) -> None:
    heard: list[float] = []
    work = Work(Arm(name, "scaled-dot", "softmax"), replace(SMALL, effort=0.5))
    found = train(work, lambda share, says: heard.append(share))
    assert found.right.shape == (2, 40)
    assert found.rate == 0.03
    assert found.validation[0] > found.validation[1]
    assert found.curve[-1][0] == round(0.5 * task_of(name).steps)
    assert heard == sorted(heard)
    again = train(work, lambda share, says: None)
    assert (again.right == found.right).all()
    assert again.curve == found.curve


def test_held_out_examples_are_nobodys_training_examples() -> None:
    parts, symbols = reviews()
    rows = {name: {tuple(row) for row in part.tokens.tolist()} for name, part in parts.items()}
    assert [len(part) for part in parts.values()] == [3500, 500, 1000]
    assert not rows["train"] & rows["test"]
    assert not rows["validation"] & rows["test"]
    assert symbols == 1 + int(max(part.tokens.max() for part in parts.values()))
    assert not set(HELD.values()) & set(range(1000))
    recall = task_of("recall")
    validation, test = recall.held(5, "validation").tokens, recall.held(5, "test").tokens
    assert not torch.equal(validation, test)


def test_batches_of_one_length_hold_all_examples() -> None:
    drawn = task_of("reviews").draw(256, 0)
    ordered = alike(drawn, 16)
    assert ordered.lengths is not None
    assert drawn.lengths is not None
    assert sorted(ordered.tokens.tolist()) == sorted(drawn.tokens.tolist())
    padded = [lengths.max() for lengths in ordered.lengths.split(16)]
    assert 16 * sum(padded) < 1.2 * drawn.lengths.sum()


def test_memory_kept_is_counted_once() -> None:
    x = torch.ones(10, 10, requires_grad=True)
    with Kept() as kept:
        y = x.exp()
        (y * y).sum()
    assert kept.bytes == 400


def test_claims_speak_of_what_was_found() -> None:
    shares = {
        ("scaled-dot", "softmax"): 0.9, ("synthesizer", "softmax"): 0.08, ("boxcar", "sum"): 0.1,
        ("epanechnikov", "sum"): 0.5, ("scaled-dot", "sparsemax"): 0.3,
        ("gaussian", "softmax"): 0.9,
    }  # fmt: skip
    recall, sorting = studied("recall", shares), studied("sorting", shares)
    found = claims([recall, sorting, studied("reviews", shares)])
    by = {name: next(c for c in found if name in c["says"]) for name in (
        "cannot recall", "no gradient", "no key to be read", "has to see all", "word order",
        "recall: some normaliser")}  # fmt: skip
    holds = {name: one["holds"] for name, one in by.items()}
    assert holds == {
        "cannot recall": True, "no gradient": True, "no key to be read": False,
        "has to see all": True, "word order": True, "recall: some normaliser": True,
    }  # fmt: skip
    assert by["cannot recall"]["value"] == pytest.approx(0.08, abs=0.03)
    assert "1 of 1, sparsemax (worse)" in by["recall: some normaliser"]["says"]
    says = in_short([recall])
    assert says.startswith("Recall: scaled-dot × softmax is right on 9")
    assert "worse with evidence: epanechnikov × sum" in says
    assert says.endswith("no evidence of a difference for all others (1).")


def test_many_arms_are_named_by_what_they_share() -> None:
    names = ("softmax", "sink", "sigmoid")
    low = {(score, name): 0.1 for score in ("dot", "boxcar", "additive") for name in names}
    low |= {("scaled-dot", "sink"): 0.1, ("scaled-dot", "sigmoid"): 0.9}
    says = in_short([studied("recall", {("scaled-dot", "softmax"): 0.9, **low})])
    assert "worse with evidence (10): dot, boxcar, additive with every normaliser; " in says
    assert "sink with every score" in says
    assert "others" not in says.split(";")[2]
    low["boxcar", "softmax"] = 0.9
    says = in_short([studied("recall", {("scaled-dot", "softmax"): 0.9, **low})])
    assert "worse with evidence (9): dot, additive with every normaliser; sink with every s" in says
    assert "; boxcar × sigmoid 8.6 %; no" in says


def test_pairs_that_act_together_are_told_of() -> None:
    shares = {
        ("scaled-dot", "softmax"): 0.9, ("scaled-dot", "sparsemax"): 0.4,
        ("cosine", "sparsemax"): 0.8, ("gaussian", "sum"): 0.1,
    }  # fmt: skip
    first, *_ = claims([studied("recall", shares)])
    assert "sparsemax recalls" in first["says"]
    assert first["holds"]
    assert not claims([studied("recall", shares | {("cosine", "sparsemax"): 0.4})])[0]["holds"]


def test_nothing_is_claimed_where_nothing_was_found() -> None:
    same = studied("sorting", {("scaled-dot", "softmax"): 0.5, ("dot", "softmax"): 0.5})
    assert in_short([same]).endswith("no evidence of a difference for any of the others (1).")
    assert claims([same]) == []


def test_a_failed_arm_is_left_out_and_a_failed_reference_is_an_error() -> None:
    good, lost = result("recall", "scaled-dot", "softmax", 0.5), Arm("recall", "dot", "softmax")
    assert study("recall", {good.arm: good}, {lost: "no room"}).lost == {lost: "no room"}
    with pytest.raises(RegardError, match=r"recall: scaled-dot × softmax is what all .* no room"):
        study("recall", {}, {good.arm: "no room"})


def test_names_where_there_is_little_room() -> None:
    arms = [("scaled-dot", "softmax"), ("synthesizer-factorised-random", "softmax"),
            ("scaled-dot", "softmax-plus-one"), ("cosine-temperature", "top-k")]  # fmt: skip
    assert [label(Arm("recall", *pair)) for pair in arms] == [
        "scaled-dot × softmax", "syn-fact-rand", "× softmax + 1", "cosine-temp × top-k"
    ]  # fmt: skip


def test_the_lab_from_end_to_end(tmp_path: Path) -> None:
    seen: list[float] = []
    overrides = ["scores=synthesizer,dot", "normalizers=softmax,sum", "effort=0.02", "held=20",
                 "rates=0.03", "pairs=all"]  # fmt: skip
    request = LabRequest(seeds=2, workers=2, out=tmp_path, overrides=overrides)
    record: dict[str, Any] = open_lab("scores").run(
        request, lambda says: None, lambda done, total, says, left=None: seen.append(done / total)
    )
    names = [arm["name"] for arm in record["arms"]]
    assert len(names) == 3 * 5
    assert names[0] == "recall: scaled-dot × softmax"
    assert len(record["verdicts"]) == 3 * 4
    assert {v["b"] for v in record["verdicts"] if v["a"].startswith("sorting")} == {
        "sorting: scaled-dot × softmax"
    }
    assert seen[-1] == 1.0
    page = Path(record["report"]).read_text(encoding="utf-8")
    assert page.count("<svg") >= 3 * 4  # forest, grid, costs, curves
    assert "How it was done" in page
    for row in record["arms"][:5]:  # the same in this process, one after the other
        score, name = row["name"].removeprefix("recall: ").split(" × ")
        budget = Budget(2, (0.03,), effort=0.02, held=20)
        alone = train(Work(Arm("recall", score, name), budget), lambda share, says: None)
        assert row["mean"] == alone.right.mean()
