"""Progress: what is told of work that goes on."""

from typing import Any

import pytest

from regard.lab.cli import console


def test_time_left_counts_what_was_done_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 1.0, 11.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    said: list[str] = []

    def hear(text: str, **how: Any) -> None:
        said.append(text)

    monkeypatch.setattr(console.err, "print", hear)
    with console.bar("work", every=5) as show:
        show(900, 1000, "resumed")
        show(910, 1000, "on")
    assert said == ["work: 910 of 1000, 11.0 s, 1 min 39 s left  on"]


def test_who_knows_better_says_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([0.0, 10.0])
    monkeypatch.setattr(console.time, "monotonic", lambda: next(clock))
    with console.bar("runs") as show:
        show(1, 4, "on", (60.0, 7500.0))
    assert capsys.readouterr().err == (
        "runs: 1 of 4, 10.0 s, typically 1 min 0 s, at most 2 h 5 min left  on\n"
    )


def test_rows_of_a_table_are_lines_of_any_width(capsys: pytest.CaptureFixture[str]) -> None:
    console.print_table(
        ["run", "score", "[b]"], [["r/" + "x" * 120, "0.5", "a\nb\x1b"]], right={"score"}
    )
    head, row = (line.rstrip() for line in capsys.readouterr().out.splitlines())
    assert row == "r/" + "x" * 120 + "    0.5  a b\\x1b"
    assert head == "run" + " " * 119 + "  score  [b]"
