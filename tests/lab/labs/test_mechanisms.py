"""The lab of mechanisms: its arms, its summary by hand, a small run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.attention import MECHANISMS, named_mechanism
from regard.lab.labs import LabRequest, mechanisms, open_lab
from regard.lab.labs.comparison import Result
from regard.lab.labs.equal import parameters
from regard.lab.labs.lab import LabReport
from regard.lab.runs import Config

LAB = mechanisms.LAB
PLAN: Any = None


def at_time(result: Result) -> LabReport:
    """The section of a task's results at equal time."""
    page = LAB.members[0].lab.page
    assert page
    return mechanisms.times(result).described(page)


def arm(name: str, mean: float, seconds: float) -> dict[str, Any]:
    return {
        "name": name, "mean": mean, "low": mean - 0.1, "high": mean + 0.1, "seconds": seconds,
        "training": "converged",
    }  # fmt: skip


def verdict(name: str, difference: float, p: float) -> dict[str, Any]:
    ends = {"low": difference - 0.05, "high": difference + 0.05}
    return {"a": name, "b": "multi-head", "difference": difference, "p": p, **ends}


def test_a_summary_says_what_has_evidence_and_what_it_costs() -> None:
    arms = [arm("multi-head", 0.5, 2.0), arm("gated", 0.7, 3.0), arm("linear", 0.2, 1.0),
            arm("delta", 0.6, 4.0)]  # fmt: skip
    verdicts = [verdict("gated", 0.2, 0.01), verdict("linear", -0.3, 0.001),
                verdict("delta", 0.1, 0.2)]  # fmt: skip
    record = {"metric": "accuracy", "arms": arms, "verdicts": verdicts}
    table = mechanisms.rows("mqar", Result(PLAN, Path(), record, []))
    assert table == [
        ["mqar", "multi-head", "50.0 % (40.0 to 60.0)", "", "1.00", "converged", ""],
        ["mqar", "gated", "70.0 % (60.0 to 80.0)", "+20.0 (+15.0 to +25.0), p = 0.010", "1.50",
         "converged", "ahead"],
        ["mqar", "linear", "20.0 % (10.0 to 30.0)", "−30.0 (−35.0 to −25.0), p = 0.001", "0.50",
         "converged", "behind"],
        ["mqar", "delta", "60.0 % (50.0 to 70.0)", "+10.0 (+5.0 to +15.0), p = 0.20", "2.00",
         "converged", "no evidence"],
    ]  # fmt: skip
    open_one = {"verdict": "undecided", "seeds": 4, "delta": 0.01}
    record["verdicts"] = [verdict("delta", 0.02, 0.2) | open_one]
    undecided = mechanisms.rows("mqar", Result(PLAN, Path(), record, []))[3]
    assert undecided[3] == "+2.0 (−3.0 to +7.0), p = 0.20; decided by about 25 seeds"
    described = mechanisms.summary([*table, ["sorting", "multi-head"]]).described(LAB.page)
    assert described.answer == [
        "mqar, beside multi-head: ahead: gated; behind: linear; no evidence: delta.",
        "sorting, beside multi-head: alone.",
    ]
    assert described.sections[0].tables[0].rows == [*table, ["sorting", "multi-head"]]


def test_scores_at_equal_time_are_those_when_the_fastest_had_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows(*given: tuple[float, float | None]) -> list[dict[str, Any]]:
        return [
            {"step": i, "seconds": seconds, "validation": score, "validation_loss": 1.0}
            for i, (seconds, score) in enumerate(given)
        ]

    logs = {
        "quick/seed-0": rows((1.0, 0.2), (2.0, 0.4)),
        "quick/seed-1": rows((1.0, 0.3), (2.2, 0.6)),
        "slow/seed-0": rows((1.5, 0.3), (1.9, None), (5.0, 0.9)),
        "slow/seed-1": rows((2.1, 0.5), (5.0, 0.9)),
        "late/seed-0": rows((3.0, 0.8)),
        "late/seed-1": rows((1.0, 0.8)),
        "late/seed-2": rows((1.0, 0.8)),  # the others failed
    }

    class Run:
        def __init__(self, folder: Path) -> None:
            self.folder = folder

        def metrics(self) -> list[dict[str, Any]]:
            return logs[str(self.folder)]

    class Evidence:
        def __init__(self, name: str) -> None:
            self.name, self.folders = name, [Path(x) for x in logs if x.startswith(name)]

    monkeypatch.setattr("regard.load", Run)
    monkeypatch.setattr(mechanisms, "finished", lambda arm: arm.folders)
    arms: Any = [Evidence(name) for name in ("quick", "slow")]
    result = Result(PLAN, Path(), {"metric": "accuracy"}, arms)
    scores = mechanisms.at_equal_time(result)
    assert scores["quick"] == mechanisms.AtTime(pytest.approx(0.5), pytest.approx(2.1))
    assert scores["slow"] == mechanisms.AtTime(pytest.approx(0.4), 5.0)
    (section,) = at_time(replace(result, measured=scores)).sections
    (table,) = section.tables
    assert table.title == "Validation after 2.1 seconds, when the fastest arm had ended"
    assert table.rows[1] == ["slow", "40.0 %", "5.0", "2.38"]
    with_late = replace(result, arms=[*arms, Evidence("late")])  # type: ignore[list-item]
    scores = mechanisms.at_equal_time(with_late)
    assert scores["late"].score is None
    assert mechanisms.shown(result, None) == "not validated yet"
    loss = replace(result, record={"metric": "tokens predicted correctly"})
    assert mechanisms.at_equal_time(loss)["quick"].score == 1.0
    assert mechanisms.shown(loss, 1.3864) == "1.386 nats"
    assert at_time(replace(result, measured={})).sections == []


def test_every_mechanism_takes_part_with_equal_parameters() -> None:
    for member in mechanisms.LAB.members:
        plan = member.lab.plan(LabRequest())
        assert [arm.name for arm in plan.arms] == [*MECHANISMS]
        sizes = [parameters(plan.task, arm, plan.overrides) for arm in plan.arms]
        assert max(sizes) - min(sizes) <= 0.01 * min(sizes)
        for arm in plan.arms:
            own = {pair.partition("=")[0] for pair in arm.overrides}
            shared = [p for p in plan.overrides if p.partition("=")[0] not in own]
            config = Config.make(plan.task, arm.model, [*shared, *arm.overrides])
            assert named_mechanism(config.network.model_dump()["attention"]) is not None


@pytest.mark.usefixtures("one_process")
def test_a_small_lab_from_end_to_end(tmp_path: Path) -> None:
    settings = ["only=mqar", "steps=2", "examples=40", "held_out=10", "width=8", "threads=1"]
    request = LabRequest(out=tmp_path, overrides=settings)
    lines: list[str] = []
    record = open_lab("mechanisms").run(request, lines.append, lambda *given: None)
    assert [row[1] for row in record["tables"][0]["rows"]] == [*mechanisms.QUICK_ARMS]
    assert record["answer"].startswith("mqar, beside multi-head: ")
    assert "when the fastest arm had ended" in (tmp_path / "report.html").read_text("utf-8")
