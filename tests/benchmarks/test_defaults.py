"""A benchmark run as a user runs it, with its defaults: it measures something possible.

The other benchmarks take five to thirty minutes with their defaults; their quick forms are in the
tests beside this one.
"""

import json
import math

from typer.testing import CliRunner

from regard.lab.cli.main import app


def test_text_training_measures_with_its_defaults() -> None:
    found = CliRunner().invoke(app, ["bench", "text-training", "--json"])
    assert found.exit_code == 0, found.exception
    (row,) = json.loads(found.stdout)["cases"]
    rates = [row[f"{side}_tokens_per_s"] for side in ("ours", "theirs")]
    assert all(0 < rate < math.inf for rate in rates)
    assert row["time_ratio"] > 1
