"""``regard doctor``: true findings, and a remedy for each that is not well."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regard.cli import doctor
from regard.cli.main import app


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
