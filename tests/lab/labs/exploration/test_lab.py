"""The exploration lab: the end of it, its bounds."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from regard.lab.labs import LabRequest, open_lab
from regard.lab.labs.exploration.lab import BETAS, copy_errors, others, uneven_share, unit_rows
from regard.lab.labs.exploration.varying_key import orthonormal
from tests.lab.labs.conftest import quiet


def test_copying_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    keys, values = orthonormal(generator, 6, 4), unit_rows(generator, 4, 6)
    betas = torch.tensor([0.5, 2.0, 9.0], dtype=torch.float64)
    rest = 3 / (betas.exp() + 3)
    wanted = rest * (values[1:].mean(0) - values[0]).norm()
    assert_close(copy_errors(keys, values, betas), wanted)
    assert_close(others(betas, 4), rest)
    assert copy_errors(keys, values, betas, "sparsemax").tolist()[1:] == pytest.approx([0, 0])


def test_unequal_scores_of_two_keys() -> None:
    assert uneven_share(0.0) == 0
    assert uneven_share(1e-3) == pytest.approx(1e-6 / 16, rel=1e-4)  # α_a − ½ ≈ difference / 4
    assert uneven_share(1e4) == pytest.approx(0.25, abs=1e-3)


def test_the_lab(tmp_path: Path) -> None:
    request = LabRequest(out=tmp_path, overrides=["d=12", "keys=6", "draws=2000", "bases=30"])
    shown: list[float] = []
    record = open_lab("exploration").run(
        request, quiet, lambda done, total, says, left=None: shown.append(done)
    )
    assert [one["says"] for one in record["claims"] if not one["holds"]] == []
    assert len(record["claims"]) == 16
    letters = [one["says"].partition(")")[0] for one in record["claims"]]
    assert {*letters} == {"(a", "(b.1", "(b.2", "(c.1", "(c.2", "(d.1", "(d.2"}, (
        "as in the assignment"
    )
    assert record["task"] == "exploration"
    assert "over 2,000 draws" in record["answer"]
    assert record["command"].endswith("d=12 keys=6 draws=2000 bases=30")
    assert json.loads((tmp_path / "results.json").read_text()) == record
    page = (tmp_path / "report.html").read_text()
    assert page.count("<figure") == 13
    averages = next(t for t in record["tables"] if t["title"].startswith("How well"))
    assert averages["rows"][0][1] == BETAS[-1]
    assert shown == sorted(shown)


@pytest.mark.deep
def test_twice_the_same(tmp_path: Path) -> None:
    small = ["d=6", "keys=3", "draws=300", "bases=5", "seed=4"]
    first, second = (
        open_lab("exploration").run(LabRequest(out=tmp_path / name, overrides=small), quiet, quiet)
        for name in ("a", "b")
    )
    assert first["claims"] == second["claims"]
    assert first["tables"] == second["tables"]
    assert all(math.isfinite(one["value"]) for one in first["claims"])
