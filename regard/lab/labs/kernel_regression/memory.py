"""Kernel regression over very many keys in a separate process: seconds and memory.

    python -m regard.lab.labs.kernel_regression.memory 1000000

prints JSON: the number of keys, the seconds, and the megabytes beyond the inputs.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from regard.lab.labs.aside import Aside

QUERIES = 1000


class Cost(NamedTuple):
    """The cost of a call: its number of keys, its seconds, its peak memory without inputs in MB."""

    keys: int
    seconds: float
    extra_mb: float


def measure(keys: int) -> Cost:
    """Predict `QUERIES` points of the noisy sine from this many keys, in a fresh process."""
    with Aside("regard.lab.labs.kernel_regression.memory", str(keys)) as aside:
        return Cost(*aside.answer(f"{keys:,} keys", "take fewer, or keys=0"))


def ask(keys: int) -> Cost:
    """Predict from this many keys in this process, and return the cost."""
    import torch

    from regard.analysis.memory import probe
    from regard.nn.models.kernel_regression import NadarayaWatson

    model = NadarayaWatson().requires_grad_(False)
    queries = torch.linspace(0, 5, QUERIES)[:, None]
    seconds = 0.0

    def make() -> Callable[[], object]:
        draw = torch.Generator().manual_seed(0)
        x, values = 5 * torch.rand(keys, 1, generator=draw), torch.randn(keys, 1, generator=draw)

        def call() -> None:
            nonlocal seconds
            begin = time.perf_counter()
            model(queries, x, values)
            seconds = time.perf_counter() - begin

        return call

    model(queries, queries, queries)
    peak = probe(make)
    return Cost(keys, seconds, peak.extra_mb)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ask(int(sys.argv[1]))) + "\n")
