"""Verdicts of replications by hand, and a small run of one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.collection import Member
from regard.lab.labs.comparison import Result
from regard.lab.labs.intervals import interval
from regard.lab.labs.replications import findings, letters
from regard.lab.labs.replications import outcomes as outcomes_of
from regard.lab.labs.replications.curves import Curves
from regard.lab.labs.replications.lab import LAB
from regard.lab.labs.replications.outcomes import (
    AGREES,
    COLUMNS,
    DISAGREES,
    EQUAL,
    OPEN,
    UNDECIDED,
    UNTRAINED,
    Judge,
    above,
    at_lengths,
    below,
    better,
    both,
    fails,
    hours,
    settled,
    solves,
    summary,
    widening,
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
    plan = findings.INDEXING.lab.plan(LabRequest(seeds=5))
    return Result(plan, Path(), record, [], measured)


def outcomes(member: Member, arms: list[Any], verdicts: list[Any], measured: Any = None) -> Any:
    """Return the outcomes of a member as its rows tell them, and its claims."""
    seen = replace(result(arms, verdicts, measured), plan=member.lab.plan(LabRequest()))
    return [dict(zip(COLUMNS, row, strict=True)) for row in member.rows(seen)], seen


def test_a_verdict_needs_evidence_and_a_disagreement_a_trained_arm() -> None:
    arms = [arm("a", 0.5), arm("b", 0.4), arm("c", 0.3, trained=False)]
    ahead, none = verdict("a", "b", 0.1, 0.01), verdict("a", "b", 0.1, 0.2)
    assert better("a", "b")(result(arms, [ahead])) == AGREES
    assert better("b", "a")(result(arms, [ahead])) == DISAGREES
    assert better("a", "b")(result(arms, [none])) == UNDECIDED
    assert better("a", "b")(result(arms, [])) == UNDECIDED
    late = result(arms, [verdict("c", "a", -0.2, 0.01)])
    assert better("c", "a")(late) == UNTRAINED
    assert better("a", "c")(late) == UNTRAINED
    assert better("a", "c", at_budget=True)(late) == AGREES
    assert better("a", "b")(result(arms[:1], [ahead])) == UNDECIDED, "an arm without a result"
    once = [arm("a", 0.5, seeds=1), arm("b", 0.4)]
    assert better("a", "b")(result(once, [ahead])) == UNDECIDED, "two models, not two methods"
    for row, above_most, below_half in [
        (arm("a", 0.99), AGREES, DISAGREES),
        (arm("a", 0.955), UNDECIDED, DISAGREES),
        (arm("a", 0.3), DISAGREES, AGREES),
        (arm("a", 0.3, trained=False), UNTRAINED, UNTRAINED),
        (arm("a", 0.99, seeds=1), UNDECIDED, UNDECIDED),
    ]:
        assert solves("a")(result([row], [])) == above_most
        assert fails("a")(result([row], [])) == below_half
    assert solves("a")(result([], [])) == UNDECIDED
    assert written(result([], []), "a") == "accuracy, %: a: no result"


def test_equivalent_arms_are_a_verdict_of_their_own() -> None:
    same = {**verdict("a", "b", 0.002, 0.8), "verdict": "equivalent"}
    arms = [arm("a", 0.5), arm("b", 0.5)]
    assert better("a", "b")(result(arms, [same])) == EQUAL
    assert better("b", "a")(result(arms, [same])) == EQUAL
    rising = [arm("a", 0.5), arm("b", 0.5, trained=False)]
    assert better("a", "b")(result(rising, [same])) == UNTRAINED
    assert better("a", "b", at_budget=True)(result(rising, [same])) == EQUAL
    full = [arm("a", 0.999, trained=False), arm("b", 0.997, trained=False)]
    assert better("a", "b")(result(full, [same])) == EQUAL, "nothing is left to gain"
    both = [arm("a", 0.5, trained=False), arm("b", 0.5, trained=False)]
    close = {**verdict("a", "b", 0.002, 0.8), "verdict": "undecided"}
    assert better("a", "b")(result(rising, [close])) == UNDECIDED
    assert better("a", "b")(result(both, [close])) == UNTRAINED, "more seeds decide nothing"


def test_seeds_are_added_where_the_loser_would_not_catch_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arms = [arm("a", 0.9, trained=False), arm("b", 0.5, trained=False)]
    open_ = result(arms, [verdict("a", "b", 0.4, 0.2)])
    for flat, expected in ((True, UNDECIDED), (False, UNTRAINED)):
        monkeypatch.setattr(outcomes_of, "settled", lambda _, name, gap, flat=flat: flat)
        assert better("a", "b")(open_) == expected


def test_a_hybrid_that_recalls_less_disagrees() -> None:
    arms = [arm("none", 0.2), arm("1 of 4", 0.24), arm("2 of 4", 0.5), arm("all", 1.0)]
    verdicts = [verdict("1 of 4", "none", 0.04, 0.01), verdict("all", "1 of 4", 0.76, 0.001)]
    told, _ = outcomes(findings.HYBRID, arms, verdicts)
    assert [one["verdict"] for one in told] == [AGREES, DISAGREES]


def test_the_worst_of_several_statements_decides() -> None:
    def always(one: Any) -> Judge:
        return lambda result: one

    for given, expected in [
        ((AGREES, AGREES), AGREES),
        ((AGREES, EQUAL), EQUAL),
        ((AGREES, EQUAL, UNDECIDED), UNDECIDED),
        ((AGREES, UNDECIDED, DISAGREES), DISAGREES),
        ((AGREES, UNDECIDED, UNTRAINED), UNTRAINED),
    ]:
        assert both(*map(always, given))(result([], [])) == expected


def test_an_interval_of_any_look_is_wider() -> None:
    near = arm("a", 0.965, half=0.014, seeds=3)
    assert solves("a")(result([near], [])) == AGREES, "three seeds were declared"
    looking = replace(
        result([near], []), plan=findings.INDEXING.lab.plan(LabRequest(seeds=30, least=3))
    )
    assert solves("a")(looking) == UNDECIDED, "more seeds may follow"
    factors = [widening(n, (3, 4, 5)) for n in (3, 4, 5)]
    assert factors == sorted(factors, reverse=True), factors
    failed = [widening(n, (3, 5, 8)) for n in (2, 4, 7)]  # one seed of a look has failed
    assert min(failed) > 1
    assert widening(4, ()) == 1


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
    told, seen = outcomes(findings.RECALL, arms, verdicts)
    assert [one["verdict"] for one in told] == [AGREES, AGREES, AGREES, UNDECIDED]
    assert told[0]["here"] == "accuracy, %: 2 layers 99.0 (98.0 to 100.0)"
    assert {one["seeds"] for one in told} == {5}
    asked = findings.RECALL.lab.more_seeds
    assert asked
    assert asked(seen) == {"delta", "linear"}
    rising = replace(
        seen,
        record={
            **seen.record,
            "arms": [{**row, "trained": False} for row in arms],
            "verdicts": [*verdicts[:3], verdict("delta", "linear", 0.4, 0.01)],
        },
    )
    assert asked(rising) == set(), "at equal steps it does not matter that they still rise"
    page = findings.RECALL.lab.page
    assert page
    described = findings.RECALL.lab.findings(seen).described(page)
    assert len(described.claims) == 3, "what is not decided is no claim"
    claim = described.claims[1]
    assert (claim["value"], claim["holds"]) == (pytest.approx(-0.4), True)
    assert claim["says"] == (
        "one layer of attention does not (When recalling in-context (2508.19029)): "
        "accuracy, %: 1 layer 20.0 (19.0 to 21.0), 2 layers 99.0 (98.0 to 100.0); agrees"
    )
    about, *texts = described.sections[0].paragraphs
    assert "8 pairs among 32, all models with at most 6000 steps here." in about
    assert "at most 2.2 hours of one core" in about
    assert len(texts) == 4
    assert texts[0].startswith("Published: about 100 %, 2 layers. attention solves")
    rows = findings.RECALL.rows(seen)
    assert summary(rows).described(LAB.page).answer == [
        "Of 4 published findings 3 agree with the rerun.",
        "Undecided: the delta rule recalls what linear attention forgets.",
    ]


def test_a_measured_interval_holds_at_any_look_too() -> None:
    gains = {"plain": {"a": 0.3, "b": 0.35, "c": 0.44}, "gate": dict.fromkeys("abc", 0.2)}
    fixed, looking = (
        replace(result([], [], gains), plan=letters.STAGES.lab.plan(LabRequest(seeds=seeds)))
        for seeds in (3, 0)
    )
    assert letters.first_gap(fixed) == pytest.approx(interval([0.1, 0.15, 0.24]))
    assert letters.first_gap(looking)[1] < letters.first_gap(fixed)[1]


def test_the_hours_are_those_of_runs_and_trials() -> None:
    seen = result([arm("a", 0.5), arm("b", 0.5)], [])
    seen.record["tuning"] = {"arms": {"a": {"seconds": 3595.0}}}
    assert hours(seen, ["a"]) == pytest.approx(1.0)
    assert hours(seen, ["a", "b", "missing"]) == pytest.approx(1.0 + 5 / 3600)


def test_every_pair_that_a_verdict_needs_is_compared() -> None:
    for member in LAB.members:
        plan = member.lab.plan(LabRequest())
        names = [arm.name for arm in plan.arms]
        assert plan.reference == names[0]
        assert {name for pair in plan.ladder for name in pair} <= {*names}
    assert [*findings.RECALL.lab.plan(LabRequest()).ladder] == [("delta", "linear")]


def test_a_full_replication_searches_five_rates_and_a_given_rate_none() -> None:
    lab = findings.RECALL.lab
    plan = lab.plan(LabRequest())
    assert plan.study(plan.arms, Path()).trials == dict.fromkeys(
        ["2 layers", "1 layer", "linear", "retention", "delta"], 5
    )
    assert (plan.least, plan.seeds) == (3, 12)
    assert lab.plan(LabRequest(overrides=["learning_rate=0.01"])).search is None
    assert lab.plan(LabRequest(seeds=4)).least == 0, "a number of seeds is a number of seeds"


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
    (first, second), _ = outcomes(findings.GROKKING, arms, verdicts, measured)
    assert "after 4.0 (4.0 to 4.0) times the steps of memorising" in first["here"]
    assert (first["verdict"], second["verdict"]) == (AGREES, AGREES)


def test_dispersion_is_a_score_of_the_largest_number() -> None:
    plain = {16: [0.99, 0.98], 64: [0.9, 0.9], 256: [0.7, 0.7], 1024: [0.5, 0.5]}
    arms = [arm("softmax", 0.5), arm("scalable-softmax", 0.6)]
    verdicts = [verdict("scalable-softmax", "softmax", 0.1, 0.01)]
    (first, second), _ = outcomes(findings.RETRIEVAL, arms, verdicts, {"softmax": plain})
    assert first["finding"].endswith("(32 levels)")
    assert (first["verdict"], second["verdict"]) == (AGREES, AGREES)
    assert first["here"].endswith("98.5 at 16, 90.0 at 64, 70.0 at 256, 50.0 at 1024")


def test_a_gate_lowers_the_weight_on_the_first_token() -> None:
    arms = [arm(name, 0.4) for name in ("plain", "gate", "exclusive", "both")]
    alike = {**verdict("both", "exclusive", 0.001, 0.7), "verdict": "equivalent"}
    values = {"plain": [0.4, 0.5, 0.45], "gate": [0.1, 0.2, 0.14]}
    shares = {name: dict(zip("abc", row, strict=True)) for name, row in values.items()}
    told, _ = outcomes(letters.STAGES, arms, [alike, verdict("gate", "plain", 0.02, 0.01)], shares)
    assert [one["verdict"] for one in told] == [AGREES, AGREES, UNDECIDED, AGREES]
    assert told[1]["here"].endswith("plain 45.00 (32.58 to 57.42), gate 14.67 (2.16 to 27.17)")
    shares["plain"] |= {"d": 0.0}  # a seed that failed with a gate
    assert outcomes(letters.STAGES, arms, [alike], shares)[0][1]["verdict"] == AGREES
    other = [verdict("both", "exclusive", 0.02, 0.01)]
    assert outcomes(letters.STAGES, arms, other, {})[0][3]["verdict"] == DISAGREES


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
    assert {row[-1] for row in record["tables"][0]["rows"]} <= {*OPEN}
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
