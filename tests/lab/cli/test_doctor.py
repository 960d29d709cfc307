"""``regard doctor``: true findings, and a remedy for each that is not well."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

from regard.lab.cli import doctor
from regard.lab.cli.main import app


def test_json_names_what_was_found() -> None:
    found = CliRunner().invoke(app, ["doctor", "--json"])
    assert found.exit_code == 0, found.output
    result = json.loads(found.stdout)
    named = {finding["what"]: finding for finding in result["findings"]}
    assert result["well"] is True
    assert named["torch"]["found"].startswith("2.")
    assert named["precision"]["found"].split(":")[0] in {"fp32", "bf16"}


def test_missing_package_and_folder_have_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = doctor.package_finding("no-such-package-anywhere")
    assert (missing.well, missing.found) == (False, "not installed")
    assert "pip install" in missing.remedy
    monkeypatch.setenv("REGARD_DATA", "/no/such/folder")
    assert doctor.data_finding().well is False
    monkeypatch.delenv("REGARD_DATA")
    assert doctor.data_finding().well is None


def test_full_disk_is_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 2**20

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda folder: Usage)
    finding = doctor.folder_finding("temporary", tmp_path)
    assert finding.well is False
    assert "free disk space" in finding.remedy


def gpu(monkeypatch: pytest.MonkeyPatch) -> list[doctor.Finding]:
    """What is found on a machine with one GPU."""
    about = SimpleNamespace(name="Big GPU", total_memory=80 * 2**30, major=9, minor=0)
    for name, value in {
        "is_available": True, "device_count": 1, "get_device_properties": about,
        "is_bf16_supported": True,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, lambda *given, value=value, **named: value)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return list(doctor.gpu_findings())


def test_a_gpu_and_what_is_used_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    found, precision, tiles = gpu(monkeypatch)
    assert found.found == (
        "Big GPU, 80 GiB, compute capability 9.0, CUDA 13.0; use it by `regard train … device=cuda`"
    )
    assert precision.found.startswith("bf16")
    assert tiles.found.startswith("not installed")
    assert tiles.remedy.endswith("'.[triton]'")
    monkeypatch.setattr(doctor, "find_spec", lambda name: "there")
    assert gpu(monkeypatch)[-1].found == "scores without a kernel of torch run as Triton tiles"


@pytest.mark.parametrize(
    ("built", "says"),
    [(None, "this build of torch has no CUDA"), ("13.0", "finds no driver or device")],
)
def test_no_gpu(monkeypatch: pytest.MonkeyPatch, built: str | None, says: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    (found,) = doctor.gpu_findings()
    assert says in found.found
    assert found.well is None
    assert ("nvidia-smi" in found.remedy) is (built is not None)
