"""What the kills of commands are judged by."""

import json
import subprocess
import sys

import pytest

from benchmarks.killed_commands import Tally, ask, found, left


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


def test_failures_are_summed_and_a_server_that_is_gone_is_told():
    assert Tally(mismatches=1, orphans=2, other_answers=3, compare_kills=9).failures == 6
    with pytest.raises(OSError, match="refused"):
        ask("http://127.0.0.1:9")
