"""Memory is that of one call: what it holds at most beside its inputs."""

from collections.abc import Callable

import pytest
import torch

from regard.analysis import memory
from regard.core.memory import forget_peak


def holding(inputs: int, inside: int) -> Callable[[], Callable[[], object]]:
    def make() -> Callable[[], object]:
        kept = torch.ones(inputs, 2**18)  # megabytes

        def work() -> object:
            return kept[0, 0] + torch.ones(inside, 2**18).sum()

        return work

    return make


@pytest.mark.skipif(not forget_peak(), reason="needs /proc/self/clear_refs")
def test_the_peak_of_a_call_is_told_from_its_inputs() -> None:
    found = memory.probe(holding(40, 100))
    assert found.extra_mb == pytest.approx(105, abs=8)
    assert found.total_mb == pytest.approx(147, abs=12)
    again = memory.probe(holding(40, 20))  # a lower peak after a higher one
    assert again.extra_mb == pytest.approx(21, abs=8)
