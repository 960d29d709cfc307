"""The benchmark's rows: the words of the table, equal answers, figures that mean what they say."""

import pytest
import torch

from benchmarks import attention, cold, peers
from benchmarks.case import Aim, Case, Problem, Side, difference
from regard.analysis import timing
from regard.analysis.growth import exponent
from regard.core.errors import RegardError

KEYS = (
    "name", "against", "ours_s", "theirs_s", "time_ratio", "ours_mb", "theirs_mb", "floor_s", "aim",
)  # fmt: skip
WORDS = (
    "additive", "Gaussian", "dot", "causal", "lengths", "MultiHeadAttention", "t5-bias",
    "sparsemax", "entmax-1.5", "window 256", "BigBird", "ALiBi", "O(n)",
)  # fmt: skip
#: FlexAttention compiles for half a minute.
QUICK = [c for c in attention.table(quick=True) if c.against != "FlexAttention"]


@pytest.mark.parametrize("case", QUICK, ids=lambda case: f"{case.name}, {case.against}")
def test_each_case_is_measured_small(case: Case) -> None:
    how = attention.AttentionSettings(rounds=1)
    row = attention.measured(case, how, quick=True)
    assert tuple(row)[: len(KEYS)] == KEYS
    assert row["reached"] is None  # small sizes prove nothing
    if case.skipped:
        assert row["against"] == f"{case.against} (not installed)"
        assert row["ours_s"] is row["theirs_s"] is None
        return
    assert row["ours_s"] > 0
    if case.against:
        assert row["time_ratio"] == pytest.approx(row["theirs_s"] / row["ours_s"])
    if case.sizes:
        assert row["time_exponent"] == exponent(row["sizes"], row["seconds"])


def test_the_table_has_its_words_and_peers() -> None:
    table = attention.table()
    for word in WORDS:
        assert any(word in case.name for case in table), word
    assert {case.against for case in table} - {""} <= set(peers.PEERS)
    assert len({(case.name, case.against) for case in table}) == len(table)
    sizes = [case.n for case in table if case.name.startswith("dot n=") and case.trained]
    assert sizes == [128, 256, 512, 1024, 2048, 4096]
    for case in table:
        assert case.aim.says
        assert attention.find(case.name, case.against).aim == case.aim


def test_settings_choose_rows() -> None:
    rows = list(
        attention.cases(quick=True, settings=["rows=peers", "case=GAUSSIAN", "against=dense"])
    )
    assert [row["against"] for row in rows] == ["dense", "dense"]
    with pytest.raises(RegardError, match="no case has case=nothing"):
        attention.cases(settings=["case=nothing"])
    with pytest.raises(RegardError, match="did you mean case"):
        attention.cases(settings=["cases=dot"])


def test_a_peer_that_is_not_installed_has_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(peers.PEERS, "KeOps", "a_package_that_nobody_has")
    settings = ["rows=peers", "case=additive", "against=KeOps"]
    rows = list(attention.cases(quick=True, settings=settings))
    assert [row["against"] for row in rows] == ["KeOps (not installed)"]
    assert rows[0]["time_ratio"] is rows[0]["reached"] is None
    with pytest.raises(RegardError, match="pip install"):
        peers.package_of("KeOps")


def case_of(wrong: float = 0.0, gradient: float = 1.0) -> Case:
    x = torch.arange(1.0, 4.0, requires_grad=True)

    def make(n: int) -> Problem:
        return Problem(
            lambda: Side(lambda: x + wrong, [x]),
            lambda: Side(lambda: gradient * x + (1 - gradient) * x.detach(), [x]),
            torch.ones(3),
        )

    return Case("three numbers", "dense", make, 3, Aim(1))


def test_different_answers_are_not_timed() -> None:
    how = attention.AttentionSettings(rounds=1)
    assert attention.times(case_of(), how, quick=True)["ours_s"] > 0
    with pytest.raises(RegardError, match="the output of regard and of dense differ"):
        attention.times(case_of(wrong=0.01), how, quick=True)
    with pytest.raises(RegardError, match="gradient 1 of regard and of dense differ"):
        attention.times(case_of(gradient=1.01), how, quick=True)


def test_differences_are_relative_and_see_nan() -> None:
    a = torch.tensor([100.0, 1.0])
    assert difference(a, torch.tensor([100.0, 2.0])) == pytest.approx(0.01)
    assert difference(a, a[:1]) == float("inf")
    assert not difference(torch.tensor([float("nan")]), torch.ones(1)) <= 1


def test_aims() -> None:
    row = {"time_ratio": 3.0, "ours_s": 0.5, "ours_mb": 10.0, "theirs_mb": 50.0}
    assert Aim(3, 5).reached(row) is True
    assert Aim(3.1).reached(row) is False
    assert Aim(3, 5.1).reached(row) is False
    assert Aim(mb=10).reached(row) is True
    assert Aim(mb=9).reached(row) is False
    assert Aim(seconds=0.4).reached(row) is False
    assert Aim(exponent=1.1).reached(row) is None
    grows = row | {"time_exponent": 1.0, "memory_exponent": 1.2}
    assert Aim(exponent=1.1).reached(grows) is False
    assert Aim(exponent=1.2).reached(grows) is True
    assert Aim(2, 2, total=True).reached(row) is None  # totals were not measured
    assert Aim(3.1, 2, total=True).reached(row) is False  # one miss decides
    assert Aim(1, 6).says == "faster, ≥ 6× less memory"


@pytest.mark.parametrize("normalize", ["sparsemax", "entmax15"])
def test_the_entmax_package_is_compared_where_it_is_installed(normalize: str) -> None:
    pytest.importorskip("entmax")
    case = next(c for c in QUICK if normalize[:6] in c.name)
    case.check(case.work("ours")(), case.work("theirs")())


def test_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    now, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def work(name: str, cost: float):
        def call() -> None:
            order.append(name)
            now[0] += cost

        return call

    a, b = work("a", 2.0), work("b", 3.0)
    assert timing.in_turns(a, b, 3) == (2, 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    order.clear()
    assert timing.in_turns(a, b, budget=30) == (2, 3)
    assert "".join(order) == "ab" + "ab" + "abba" * 3  # two to warm up and to see, six in 30 s
    order.clear()
    assert timing.in_turns(a, b, budget=1) == (2, 3)
    assert len(order) == 2 * (1 + timing.FEWEST)


def test_the_first_result_of_a_cold_process() -> None:
    assert 0 < cold.fresh("ours", 64) < 60
