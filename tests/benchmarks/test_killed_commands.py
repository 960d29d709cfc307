"""What the kills of commands are judged by."""

import argparse
import json
import subprocess
import sys

import pytest

from benchmarks.killed_commands import Tally, ask, found, left
from benchmarks.kills import tallied


def test_a_comparison_is_the_same_but_for_its_costs(tmp_path):
    def written(seconds, mean):
        arm = {"name": "a", "mean": mean, "seconds": seconds, "peak_mb": seconds}
        (tmp_path / "comparison.json").write_text(json.dumps({"arms": [arm], "verdicts": []}))
        return found(tmp_path)

    assert written(1.0, 0.5) == written(2.0, 0.5)
    assert written(1.0, 0.5) != written(1.0, 0.25)


@pytest.mark.skipif(sys.platform == "win32", reason="needs groups of processes")
@pytest.mark.parametrize(("stays", "count"), [(False, 0), (True, 1)])
def test_a_process_that_a_killed_command_leaves_is_counted(stays, count):
    inner = "import subprocess; subprocess.Popen(['sleep', '60'])"
    process = subprocess.Popen(
        [sys.executable, "-c", inner if stays else "pass"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
    )
    process.wait()
    assert left(process.pid, patience=0.3) == count


def test_failures_are_the_exit_status(tmp_path):
    for orphans in (0, 2):
        parser, tally = argparse.ArgumentParser(), Tally(compare_kills=9, orphans=orphans)
        out = ["--out", str(tmp_path / "tally.json")]
        code = tallied(lambda place, tally=tally: tally, parser, out, ("mismatches", "orphans"))
        assert code == (orphans > 0)
        assert json.loads((tmp_path / "tally.json").read_text())["orphans"] == orphans


def test_a_server_that_is_gone_is_told():
    with pytest.raises(OSError, match="refused"):
        ask("http://127.0.0.1:9")
