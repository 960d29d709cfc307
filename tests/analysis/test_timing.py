"""Rounds through several works, and intervals of medians."""

from collections.abc import Callable

import pytest
import torch

from regard.analysis import timing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def lasting(clock: list[float], seconds: float, name: str, order: list[str]) -> Callable[[], None]:
    def work() -> None:
        clock[0] += seconds
        order.append(name)

    return work


def test_rounds_go_forth_and_back(clock: list[float]) -> None:
    order: list[str] = []
    works = {name: lasting(clock, 2.0, name, order) for name in "abc"}
    found = timing.in_rounds(works, budget=1.0)
    assert found == {name: [2.0] * timing.ROUNDS for name in "abc"}
    assert "".join(order) == "aabbcc" + "abccba" * (timing.ROUNDS // 2), "two calls to warm up"


def test_what_is_short_is_timed_more_often(clock: list[float]) -> None:
    order: list[str] = []
    works = {"long": lasting(clock, 1.0, "long", order), "short": lasting(clock, 0.1, "s", order)}
    found = timing.in_rounds(works, budget=14.0)
    assert len(found["long"]) == 7, "its share of 14 seconds"
    assert timing.ROUNDS < len(found["short"]) <= timing.MOST
    assert found["short"] == pytest.approx([0.1] * len(found["short"]))


def test_a_very_short_work_is_called_several_times_a_sample(clock: list[float]) -> None:
    order: list[str] = []
    found = timing.in_rounds({"a": lasting(clock, timing.SHORTEST / 8, "a", order)}, budget=1e-9)
    assert len(order) == 2 + 8 * timing.ROUNDS
    assert found["a"] == pytest.approx([timing.SHORTEST / 8] * timing.ROUNDS)


def test_progress_rises_to_the_end(clock: list[float]) -> None:
    heard: list[float] = []
    works = {"a": lasting(clock, 1.0, "a", []), "b": lasting(clock, 0.2, "b", [])}
    timing.in_rounds(works, 30.0, lambda done, what: heard.append(done))
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)


def test_intervals_hold_the_median_with_95_percent() -> None:
    assert timing.interval([5.0, 1.0, 3.0, 2.0, 9.0, 4.0]) == (3.5, 1.0, 9.0)
    draw = torch.Generator().manual_seed(0)
    for count in (6, 9, 20, 40):
        samples = -torch.rand(2000, count, generator=draw).log()  # median log 2, far from normal
        found = [timing.interval(row) for row in samples.tolist()]
        held = sum(low <= 0.6931 <= high for _, low, high in found) / len(found)
        assert 0.94 <= held <= 0.99, (count, held)
    assert found[0].high < samples[0].max(), "many samples: not the extremes"
