import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_trainings_end_in_the_same_bits(tmp_path: Path) -> None:
    out = tmp_path / "kills.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.kills",
        "--kills",
        "2",
        "--inside-save",
        "1",
    ]
    done = subprocess.run(
        [*command, "--out", str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads(out.read_text())
    assert tally == json.loads(done.stdout)
    assert tally["kills"] >= 2
    assert tally["inside_save"] >= 1
    assert tally["trainings"] >= 1
    assert tally["mismatches"] == tally["unreadable"] == 0
    assert len(tally["reference"]) == 64
