"""Calibration writes what regard reads."""

import json
from pathlib import Path

import pytest

from regard.analysis import calibration
from regard.attention.kernels import choose


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "deep" / "kernels.json"
    monkeypatch.setattr(choose, "constants_file", lambda: path)
    choose.load_constants.cache_clear()
    yield path
    choose.load_constants.cache_clear()


def test_constants_are_measured_written_and_read(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "best_strip", lambda candidates, n: 2**18)
    found = calibration.calibrate(quick=True)
    assert json.loads(file.read_text()) == found
    assert choose.constants() == choose.Constants(**found)
    assert found["strip_numbers"] == 2**18
    assert found["compile_hidden"] == choose.SHIPPED.compile_hidden
    assert found["plain_bfloat16_keys"] in (0, *calibration.KEYS[:2])
    assert found["exact_pairs"] in (0, *calibration.EXACT[:2])


def test_the_last_win_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    ratios = {1: 0.5, 2: 0.9, 4: 1.1, 8: 0.5}
    monkeypatch.setattr(calibration, "in_turns", lambda a, b, budget, device: (a, b))
    assert calibration.last_win(list(ratios), lambda n: (ratios[n], 1), 0) == 2
    assert calibration.last_win([4, 8], lambda n: (ratios[n], 1), 0) == 0


def test_the_smallest_strip_that_is_close_to_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = {1: 2.0, 2: 1.02, 4: 1.0, 8: 1.5}
    monkeypatch.setattr(calibration, "trained", lambda *how, **more: None)
    timed = lambda work: cost[choose.constants().strip_numbers]  # noqa: E731
    monkeypatch.setattr(calibration, "clock", lambda device: timed)
    assert calibration.best_strip(list(cost), 16) == 2
