"""Commands where the system gives too little, and how their end is judged."""

import sys

import pytest

from benchmarks.circumstances import BACK, Found, ask, few_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and clocks of Linux")


def test_a_command_that_ends_well_or_in_a_line_is_well() -> None:
    assert ask("64 open files", ["--version"], before=few_files).well
    said = ask("a clock that goes back", ["predict", "nowhere", "x"], start=("-c", BACK))
    assert said.well
    assert (said.code, said.lines) == (2, 1)
    assert "nowhere" in said.says


def test_a_traceback_is_not_well() -> None:
    broken = ask("x", ["--version"], start=("-c", "raise KeyError('a')"))
    assert not broken.well
    assert not Found("x", "train", 2, 9, "Traceback (most recent call last)").well
    assert not Found("x", "train", -9, 0, "").well
