"""The benchmark's cases have the shape that ``regard bench`` prints, and turns are taken."""

import pytest

from regard.benchmarks import attention, timing


def test_cases(monkeypatch):
    monkeypatch.setattr(attention, "BATCH", 2)
    monkeypatch.setattr(attention, "HEADS", 2)
    monkeypatch.setattr(attention, "WIDTH", 4)
    monkeypatch.setattr(attention, "SIZES", ((8, 2), (16, 2)))
    monkeypatch.setattr(attention, "MASKED", 16)
    cases = attention.cases(quick=True)
    names = [case["name"] for case in cases]
    assert len(set(names)) == len(names) == 10
    assert "attend n=8 forward" in names
    assert "attend lengths n=16 forward + backward" in names
    assert "MultiHeadAttention n=16 forward + backward" in names
    for case in cases:
        keys = ("name", "against", "ours_s", "theirs_s", "time_ratio", "ours_mb", "theirs_mb")
        assert tuple(case) == keys
        assert case["time_ratio"] == pytest.approx(case["theirs_s"] / case["ours_s"])


def test_turns(monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])

    def work(name, cost):
        def call():
            order.append(name)
            now[0] += cost

        return call

    case = timing.in_turns("x", "y", work("a", 2.0), work("b", 3.0), 3)
    assert "".join(order) == "ab" + "ab" + "ba" + "ab"
    assert (case["ours_s"], case["theirs_s"], case["time_ratio"]) == (2, 3, 1.5)
