"""The memory of one case, in a process that has done nothing else."""

import pytest

from benchmarks import memory
from regard.core.errors import RegardError

CASE = "learned relative bias (t5-bias) n=96 heads=8 width=64 forward + backward"


def test_a_fresh_process_measures_a_case() -> None:
    ours = memory.fresh(CASE, "SDPA", "ours", quick=True)
    assert 0 <= ours.extra_mb <= ours.total_mb < 500
    prompt = memory.fresh(CASE, "SDPA", "ours", n=64, quick=True, prompt=True)
    assert prompt.total_mb < 500


def test_a_probe_that_fails_says_why() -> None:
    with pytest.raises(RegardError, match="no case is called"):
        memory.fresh("a case of nobody's", "SDPA", "ours")
