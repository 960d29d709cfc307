"""Verdicts of replications by hand, and a small run of one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.comparison import Result
from regard.lab.labs.intervals import interval
from regard.lab.labs.replications import findings
from regard.lab.labs.replications.curves import Curves
from regard.lab.labs.replications.lab import LAB
from regard.lab.labs.replications.outcomes import (
    AGREES,
    DISAGREES,
    UNCLEAR,
    above,
    all_of,
    at_lengths,
    below,
    better,
    settled,
    solved,
    summary,
    unsolved,
    written,
)
from regard.lab.reports.evidence import arms_of
from regard.lab.studies.compare import compare
from regard.lab.studies.processes import Local
from tests.lab.studies.declare import declared


def arm(
    name: str, mean: float, half: float = 0.01, trained: bool = True, seeds: int = 5
) -> dict[str, Any]:
    return {
        "name": name, "mean": mean, "low": mean - half, "high": mean + half, "trained": trained,
        "training": "converged" if trained else "still rising", "seconds": 1.0, "seeds": seeds,
    }  # fmt: skip


def verdict(a: str, b: str, difference: float, p: float) -> dict[str, Any]:
    return {"a": a, "b": b, "difference": difference, "low": 0.0, "high": 0.0, "p": p}


def result(arms: list[Any], verdicts: list[Any], measured: Any = None) -> Result:
    record = {"metric": "accuracy", "arms": arms, "verdicts": verdicts}
    plan: Any = None
    return Result(plan, Path(), record, [], measured)


def test_a_verdict_needs_evidence_and_a_disagreement_a_trained_arm() -> None:
    arms = [arm("a", 0.5), arm("b", 0.4), arm("c", 0.3, trained=False)]
    ahead, none = verdict("a", "b", 0.1, 0.01), verdict("a", "b", 0.1, 0.2)
    assert better(result(arms, [ahead]), "a", "b") == AGREES
    assert better(result(arms, [ahead]), "b", "a") == DISAGREES
    assert better(result(arms, [none]), "a", "b") == UNCLEAR
    assert better(result(arms, []), "a", "b") == UNCLEAR
    assert better(result(arms, [verdict("c", "a", -0.2, 0.01)]), "c", "a") == UNCLEAR
    assert better(result(arms, [verdict("c", "a", -0.2, 0.01)]), "a", "c") == UNCLEAR
    late = result(arms, [verdict("c", "a", -0.2, 0.01)])
    assert better(late, "a", "c", at_budget=True) == AGREES
    assert better(result(arms[:1], [ahead]), "a", "b") == UNCLEAR, "an arm without a result"
    once = [arm("a", 0.5, seeds=1), arm("b", 0.4)]
    assert better(result(once, [ahead]), "a", "b") == UNCLEAR, "two models, not two methods"
    for row, above_most, below_half in [
        (arm("a", 0.99), AGREES, DISAGREES),
        (arm("a", 0.955), UNCLEAR, DISAGREES),
        (arm("a", 0.3), DISAGREES, AGREES),
        (arm("a", 0.3, trained=False), UNCLEAR, UNCLEAR),
        (arm("a", 0.99, seeds=1), UNCLEAR, UNCLEAR),
    ]:
        assert solved(result([row], []), "a", 0.95) == above_most
        assert unsolved(result([row], []), "a", 0.5) == below_half
    assert solved(result([], []), "a", 0.95) == UNCLEAR
    assert written(result([], []), "a") == "accuracy, %: a: no result"
    assert all_of(AGREES, AGREES) == AGREES
    assert all_of(AGREES, UNCLEAR, DISAGREES) == DISAGREES


def test_an_arm_that_could_not_close_the_gap_is_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    curve = [{"step": i, "validation": 0.2 + 0.001 * i} for i in range(11)]  # 5 points in 10 steps

    class Run:
        def __init__(self, folder: str) -> None:
            pass

        def metrics(self) -> list[dict[str, Any]]:
            return curve

    class Evidence:
        name = "a"

    monkeypatch.setattr("regard.load", Run)
    monkeypatch.setattr("regard.lab.labs.replications.outcomes.finished", lambda arm: ["x", "y"])
    known: Any = [Evidence()]
    late = replace(result([arm("a", 0.21, trained=False)], []), arms=known)
    assert settled(late, "a", 0.3)
    assert not settled(late, "a", 0.04)
    curve[:] = curve[:2]
    assert not settled(late, "a", 0.3), "too short to tell"


def test_recall_has_four_findings_with_their_numbers() -> None:
    arms = [arm("2 layers", 0.99), arm("1 layer", 0.2), arm("linear", 0.5), arm("retention", 0.4),
            arm("delta", 0.9)]  # fmt: skip
    verdicts = [
        verdict(name, "2 layers", -0.4, 0.001) for name in ("1 layer", "linear", "retention")
    ]
    verdicts += [verdict("delta", "linear", 0.4, 0.3)]
    told = findings.recall_outcomes(result(arms, verdicts))
    assert [one.verdict for one in told] == [AGREES, AGREES, AGREES, UNCLEAR]
    assert told[0].here == "accuracy, %: 2 layers 99.0 (98.0 to 100.0)"
    assert told[1].value == pytest.approx(0.4)
    known = replace(result(arms, verdicts), plan=findings.RECALL.lab.plan(LabRequest()))
    page = findings.RECALL.lab.page
    assert page
    described = findings.RECALL.lab.findings(known).described(page)
    assert len(described.claims) == 3, "what cannot be told is no claim"
    claim = described.claims[1]
    assert (claim["value"], claim["holds"]) == (pytest.approx(0.4), True)
    assert claim["says"] == (
        "one layer of attention does not (When recalling in-context (2508.19029)): "
        "accuracy, %: 1 layer 20.0 (19.0 to 21.0); agrees"
    )
    about, *texts = described.sections[0].paragraphs
    assert "here: 128 symbols, 4 pairs among 32, width 64, one rate." in about
    assert len(texts) == 4
    assert texts[0].startswith("Published: about 100 %, 2 layers. attention solves")
    assert len(told[0].row()) == 5
    assert summary([one.row() for one in told]).described(LAB.page).answer == [
        "Of 4 published findings 3 agree with the rerun.",
        "Cannot be told at this size: the delta rule recalls what linear attention forgets.",
    ]


def test_every_pair_that_a_verdict_needs_is_compared() -> None:
    for member in findings.MEMBERS:
        plan = member.lab.plan(LabRequest())
        names = [arm.name for arm in plan.arms]
        assert plan.reference == names[0]
        assert {name for pair in plan.ladder for name in pair} <= {*names}
    assert [*findings.RECALL.lab.plan(LabRequest()).ladder] == [("delta", "linear")]
    assert [*findings.LENGTHS.lab.plan(LabRequest()).ladder] == [("t5-bias", "rotary")]


def test_sudden_learning_is_told_from_gradual_learning() -> None:
    steps = list(range(1001))
    jump = [0.1 if x < 500 else 0.9 for x in steps]
    smooth = [0.9 - 0.8 * float(np.exp(-x / 100)) for x in steps]
    curves = Curves([(steps, jump), (steps, smooth)], [(steps, [1 - y for y in jump])])
    sudden, gradual = curves.rises()
    assert sudden == 0
    assert gradual == pytest.approx(21, abs=4)
    longer = Curves([([*steps, 5000], [*jump, 0.9])], [])
    assert longer.rises() == [0], "the budget does not count"
    assert curves.first(0.5)[0] == 500
    assert curves.learned(0.5) == [500]
    assert np.isnan(Curves([(steps, smooth)], []).first(0.95)).all()
    assert np.isnan(Curves([([1, 2, 3], [0.5, 0.2, 0.1]), ([], [])], []).rises()).all()


def test_late_generalisation_is_a_ratio_of_steps() -> None:
    steps = list(range(0, 101, 10))
    known = [1.0 if x < 20 else 0.01 for x in steps]
    late = [0.0 if x < 80 else 1.0 for x in steps]
    curves = Curves([(steps, late)] * 2, [(steps, known)] * 2)
    arms = [arm("weight decay 1", 0.99), arm("no weight decay", 0.1)]
    verdicts = [verdict("no weight decay", "weight decay 1", -0.8, 0.001)]
    measured = {"weight decay 1": curves, "no weight decay": curves}
    known_plan = findings.GROKKING.lab.plan(LabRequest())
    told = replace(result(arms, verdicts, measured), plan=known_plan)
    first, second = findings.grokking_outcomes(told)
    assert first.finding.endswith("(share=0.4)")
    assert (first.value, first.verdict, second.verdict) == (4.0, AGREES, AGREES)


def test_dispersion_is_the_loss_from_the_trained_to_the_largest_number() -> None:
    plain = {16: [0.99, 0.98], 64: [0.9, 0.9], 256: [0.7, 0.7], 1024: [0.5, 0.5]}
    arms = [arm("softmax", 0.5), arm("scalable-softmax", 0.6)]
    verdicts = [verdict("scalable-softmax", "softmax", 0.1, 0.01)]
    told = replace(
        result(arms, verdicts, {"softmax": plain}), plan=findings.RETRIEVAL.lab.plan(LabRequest())
    )
    first, second = findings.retrieval_outcomes(told)
    assert first.finding.endswith("(levels=32)")
    assert first.value == pytest.approx(0.485)
    assert (first.verdict, second.verdict) == (AGREES, AGREES)
    assert first.here == "98.5 at 16, 90.0 at 64, 70.0 at 256, 50.0 at 1024 %"


def test_an_interval_over_seeds_is_students() -> None:
    for few in ([], [0.5], [0.5, float("nan"), 0.4]):
        assert interval(few)[1:] == (-np.inf, np.inf)
    mean, low, high = interval([0.1, 0.2, 0.3])
    assert mean == pytest.approx(0.2)
    assert high - mean == pytest.approx(4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert low == pytest.approx(2 * mean - high)
    assert (above((0.5, 0.4, 0.6), 0.3), below((0.5, 0.4, 0.6), 0.3)) == (AGREES, DISAGREES)


@pytest.mark.usefixtures("one_process")
def test_one_finding_from_end_to_end(tmp_path: Path) -> None:
    lab = open_lab("replications")
    settings = ["steps=3", "examples=60", "held_out=10", "width=8", "test_length=20", "threads=1"]
    lines: list[str] = []
    request = LabRequest(out=tmp_path, workers=2, overrides=["only=max-retrieval", *settings])
    record = lab.run(request, lines.append, lambda *given: None)
    assert [row[-1] for row in record["tables"][0]["rows"]] == [UNCLEAR, UNCLEAR]
    assert record["claims"] == []
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "The maximum of more items" in html
    assert "98.6 / 94.3 / 81.3 / 53.8" in html
    runs = [*(tmp_path / "max-retrieval").glob("*/seed-*")]
    assert len({run.parent.name for run in runs}) == 2


@pytest.mark.usefixtures("one_process")
def test_scores_at_other_lengths_are_of_the_same_network(tmp_path: Path) -> None:
    lab = findings.RETRIEVAL.lab
    pairs = ["steps=3", "examples=60", "held_out=10", "width=8", "test_length=20", "threads=1"]
    plan = lab.plan(LabRequest(seeds=1, overrides=pairs))
    comparison = compare(
        declared(plan.task, plan.arms, seeds=1, out=tmp_path, overrides=plan.overrides), Local(1)
    )
    record = comparison.record()
    seen = Result(plan, tmp_path, record, arms_of(record, tmp_path))
    scores = at_lengths(seen, [20, 40])
    assert scores["softmax"][20] == [comparison.arms[0].mean]
    assert scores["softmax"].keys() == {20, 40}
