"""The positions lab: its settings, its claims, one small run from end to end."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.positions import tasks as position_tasks
from regard.lab.labs.positions.findings import ASKED, FREE, RELATIVE, of_alibi
from regard.lab.labs.positions.lab import LAB, PositionsSettings, plan, train_all
from regard.lab.labs.positions.reach import reached
from regard.lab.labs.positions.tasks import CLASSES, Experiment
from regard.lab.studies.launch import Job, Outcome

SMALL = Experiment("moved", "none", 0, 2, 12, 24, 1, words=9, width=8, heads=2)
TINY = (
    "steps=2", "copy_steps=2", "seeds=1", "workers=1", "length=10", "trained=4", "reach=2",
    "widths=16,7", "shifts=1,-3", "farthest=64", "width=8", "heads=2", "words=5",
)  # fmt: skip


@pytest.mark.parametrize(
    ("pair", "says"),
    [
        ("width=30", "width=30 does not divide into heads=4"),
        ("back=20", "back=20 asks for a word before a text of trained=20 begins"),
        ("widths=6,0", "widths=6,0: a width is a number of columns, from 1"),
        ("widths=6,,7", "widths='6,,7': whole numbers with commas between"),
        ("shifts=1.5", "shifts='1.5': whole numbers with commas between"),
        ("shifts=8192", "no two positions up to farthest=8192 are so far apart"),
        ("trained=200", "ask for texts of 800|1,024"),
        ("length=9", "length='9': must be at least 10"),
    ],
)
def test_settings_that_do_not_fit(pair: str, says: str) -> None:
    more = ["reach=16"] if pair.startswith("trained") else []
    with pytest.raises(RegardError, match=says):
        LAB.settings_for(LabRequest(overrides=[pair, *more]))


def test_every_position_is_asked_about() -> None:
    planned = plan(PositionsSettings(seeds=2, seed=7))
    assert {one.position for one in planned if one.task == "moved"} == set(ASKED)
    assert {one.position for one in planned if one.task == "distance"} == set(ASKED)
    assert {one.task for one in planned} == {*CLASSES, "copy"}
    assert {one.seed for one in planned} == {7, 8}
    assert len(set(planned)) == len(planned)
    assert {"rotary", "alibi", "t5-bias", "relative-keys"} == set(FREE)
    assert set(RELATIVE) - set(FREE) == {"tree-keys"}


def test_sides_of_a_confusion() -> None:
    said = np.zeros((9, 9), np.int64)
    for distance in range(-4, 5):
        said[distance + 4, distance + 4] += 1
        said[distance + 4, -distance + 4] += 1
    assert of_alibi(said) == (1.0, 0.5)
    assert of_alibi(np.eye(9, dtype=np.int64)) == (1.0, 1.0)
    wrong = np.roll(np.eye(9, dtype=np.int64), 1, axis=1)
    assert of_alibi(wrong)[0] == pytest.approx(1 / 9), "4 taken for −4 is as far"


def test_how_far_it_reaches() -> None:
    right = np.ones((2, 10, 5), bool)
    assert reached(right, 3) == 8
    right[:, :2, 4] = False
    assert reached(right, 3) == 7
    right[0, :, 0] = False
    assert reached(right, 3) == 3


def test_a_network_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(jobs: list[Job], work: Any, launcher: Any, on_event: Any) -> list[Outcome]:
        return [Outcome(job, job.seed, "its worker died" if job.seed == 1 else "") for job in jobs]

    monkeypatch.setattr("regard.lab.labs.positions.lab.launch", launch)
    zero, one = SMALL, dataclasses.replace(SMALL, seed=1)
    assert train_all([zero], 2, lambda *_: None) == {zero: 0}
    with pytest.raises(RegardError, match="moved: none, seed 1: its worker died"):
        train_all([zero, one], 2, lambda *_: None)


def test_a_small_lab_from_end_to_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(position_tasks, "HELD_OUT", 30)
    said: list[str] = []
    shares: list[tuple[float, float]] = []
    request = LabRequest(out=tmp_path / "lab", overrides=TINY)
    threads = torch.get_num_threads()
    result = open_lab("positions").run(
        request, said.append, lambda done, total, *_: shares.append((done, total))
    )
    assert torch.get_num_threads() == threads
    assert shares[-1] == (len(plan(LAB.settings_for(request))),) * 2
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert [arm["name"] for arm in result["arms"]] == [n for n in ASKED if "tree" not in n]
    assert len(result["verdicts"]) == len(result["arms"]) - 1
    assert result["claims"][0]["holds"], "no training is in the rotation"
    page = Path(result["report"]).read_text(encoding="utf-8")
    for part in ("pe·pe", "Wavelengths", "M_δ for δ", "Beyond the trained length", "1909.00383"):
        assert part in page, part
    assert any(line.startswith("\nnext:   regard compare") or "next:" in line for line in said)
