import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_comparison_on_a_cluster_has_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.clusters", "--seeds", "4", "--kills", "4"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, timeout=1200
    )
    assert done.returncode == 0, done.stderr
    tally = json.loads((tmp_path / "dask.json").read_text())
    assert tally["same_table"]
    assert tally["different"] == tally["pickles"] == 0
