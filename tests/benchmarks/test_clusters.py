import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "more"), [("dask", ["--seeds", "4", "--kills", "4"]), ("slurm", ["--seeds", "2"])]
)
def test_a_comparison_on_a_cluster_has_the_same_bits(
    place: str, more: list[str], tmp_path: Path
) -> None:
    if place == "slurm" and not shutil.which("sbatch"):
        pytest.skip("Slurm is not installed")
    command = [sys.executable, "-m", "benchmarks.clusters", place, *more, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    tally = json.loads((tmp_path / f"{place}.json").read_text())
    assert tally["same_table"]
    assert tally["different"] == tally["pickles"] == 0
