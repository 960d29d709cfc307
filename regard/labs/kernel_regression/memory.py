"""Kernel regression over very many keys, in a process of its own: seconds and memory.

    python -m regard.labs.kernel_regression.memory 1000000

prints JSON: the number of keys, the seconds, and the megabytes beyond the inputs.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from regard.errors import RegardError

QUERIES = 1000
PATIENCE = 600.0


class Cost(NamedTuple):
    """A call with so many keys: its seconds, and its peak in MB beside what it was given."""

    keys: int
    seconds: float
    extra_mb: float


def measure(keys: int) -> Cost:
    """`QUERIES` points of the noisy sine ask so many keys, in a fresh process."""
    words = [sys.executable, "-m", "regard.labs.kernel_regression.memory", str(keys)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)  # noqa: S603
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RegardError(f"{keys:,} keys could not be asked: {last}; take fewer, or keys=0")
    return Cost(*json.loads(done.stdout.splitlines()[-1]))


def ask(keys: int) -> Cost:
    """Ask so many keys in this process."""
    import torch

    from regard.analysis.memory import probe
    from regard.models.kernel_regression import NadarayaWatson

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
    found = probe(make)
    return Cost(keys, seconds, found.extra_mb)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(ask(int(sys.argv[1]))) + "\n")
