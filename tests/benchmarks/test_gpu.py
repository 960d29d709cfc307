"""The rows of a GPU on a CPU with small sizes, and the command that measures them all."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import attention, attention_gpu, gpu, peers
from regard.analysis import calibration
from regard.attention import explain
from regard.core.errors import RegardError

ROOT = Path(__file__).parents[2]
#: torch.compile and FlexAttention take half a minute each.
LATE = ("compiled dense", "FlexAttention")


@pytest.mark.parametrize(
    "case",
    [x for x in attention_gpu.table(quick=True) if x.against not in LATE],
    ids=lambda x: x.name,
)
def test_each_row_is_measured_small(case):
    row = attention.measured(case, attention.AttentionSettings(rounds=1), quick=True)
    assert case.skipped or row["ours_s"] > 0
    assert row["reached"] is None


def test_the_table_has_its_aims():
    table = attention_gpu.table()
    assert {case.against for case in table} - {""} <= set(peers.PEERS)
    aims = {(case.name.split()[0], case.against): case.aim for case in table}
    assert aims["additive", "compiled dense"].faster == 10
    assert aims["dot", "SDPA"].faster == 0.95
    assert aims["entmax-1.5", "entmax"].faster == 5
    long = [case for case in table if case.n == attention_gpu.LONG]
    assert {case.name.split()[0] for case in long} == {"additive", "coordinates"}


def test_a_gpu_that_is_not_there_is_an_error(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RegardError, match="device=cuda"):
        attention.cases(settings=["device=cuda"])


def test_coordinates_have_a_tile(monkeypatch):
    from regard.attention.kernels import triton

    monkeypatch.setattr(triton, "INTERPRETED", True)
    x = torch.randn(1, 2, 200, 6)
    plan = explain(x, x, x, attention_gpu.Near())
    assert plan.kernel == "triton", plan


def test_constants_of_a_gpu_are_measured_with_a_stand_in():
    found = dict(calibration.measured_on_gpu(0.01, 1, "cpu"))
    assert set(found) == {"gpu_exact_pairs", "gpu_fused_pairs", "gpu_strip_numbers"}
    assert found["gpu_strip_numbers"] == calibration.GPU_STRIPS[0]


def test_what_is_missing_is_named():
    machine = {"missing": ["entmax", "transformers"], "gpu": "H100"}
    assert gpu.lacking(gpu.PARTS["rows-256"], machine, False) == ""
    assert gpu.lacking(gpu.PARTS["training"], machine, False) == "not installed: transformers"
    assert "no GPU" in gpu.lacking(gpu.PARTS["rows-256"], {"missing": []}, False)
    assert "torch" in gpu.lacking(gpu.PARTS["rows-256"], {"missing": ["torch"]}, True)


def test_a_part_that_fails_or_takes_too_long_leaves_its_rows(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/sh")
    monkeypatch.setattr(
        subprocess, "Popen", _shell(subprocess.Popen, "echo '{\"name\": 1}'; exit 3")
    )
    assert gpu.run("parity", 20, True)["rows"] == [{"name": 1}]
    assert gpu.run("parity", 20, True)["left_out"].startswith("the rest")


def _shell(popen, script):
    return lambda words, **named: popen(["/bin/sh", "-c", script], **named)


@pytest.mark.slow  # eight processes that import torch
def test_the_command_runs_dry(tmp_path):
    out = tmp_path / "gpu.json"
    done = subprocess.run(
        ["/bin/sh", str(ROOT / "scripts/gpu"), "--dry-run", "--out", str(out)],
        capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    parts = json.loads(out.read_text())["parts"]
    assert set(parts) == set(gpu.PARTS)
    assert all(row["reached"] for row in parts["parity"]["rows"])
    assert len(parts["parity"]["rows"]) == 2
    assert len(parts["calibration"]["rows"]) == 3
    assert [len(parts[f"rows-{n}"]["rows"]) for n in gpu.LENGTHS] == [1, 1, 1]
    assert [row["reached"] for row in parts["graphs"]["rows"]] == [True]
    assert parts["training"]["left_out"] == "needs a GPU"
