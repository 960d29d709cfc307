"""Memory is that of one call: what it holds at most, in a process that has done nothing else."""

from collections.abc import Callable

import pytest
import torch

from regard.benchmarks import memory
from regard.errors import RegardError

CASE = "learned relative bias (t5-bias) n=96 heads=8 width=64 forward + backward"


def holding(inputs: int, inside: int) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        kept = torch.ones(inputs, 2**18)  # megabytes

        def work() -> object:
            return kept[0, 0] + torch.ones(inside, 2**18).sum()

        return work

    return make


@pytest.mark.skipif(not memory.resettable(), reason="needs /proc/self/clear_refs")
def test_the_peak_of_a_call_is_told_from_its_inputs() -> None:
    found = memory.probe(holding(40, 100))
    assert found.extra_mb == pytest.approx(105, abs=8)
    assert found.total_mb == pytest.approx(147, abs=12)
    again = memory.probe(holding(40, 20))  # a lower peak after a higher one
    assert again.extra_mb == pytest.approx(21, abs=8)


def test_a_fresh_process_measures_a_case() -> None:
    ours = memory.fresh(CASE, "SDPA", "ours", quick=True)
    assert 0 <= ours.extra_mb <= ours.total_mb < 500
    prompt = memory.fresh(CASE, "SDPA", "ours", n=64, quick=True, prompt=True)
    assert prompt.total_mb < 500


def test_a_probe_that_fails_says_why() -> None:
    with pytest.raises(RegardError, match="no case is called"):
        memory.fresh("a case of nobody's", "SDPA", "ours")
