"""Time of a cold process from torch's import to its first result.

    python -m benchmarks.cold ours --n 2048

prints seconds. Importing regard, or FlexAttention, making the inputs and the call all count;
importing torch, which both need, does not.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from statistics import median
from tempfile import TemporaryDirectory

import torch

BEGUN = time.perf_counter()
HEADS, WIDTH = 8, 64
PATIENCE = 600.0


@torch.no_grad()
def ours(n: int) -> torch.Tensor:
    """regard's scaled dot with ALiBi."""
    from regard.attention import attend, make_score

    q, k, v = (torch.randn(1, HEADS, n, WIDTH) for _ in range(3))
    return attend(q, k, v, make_score("scaled-dot", "alibi", heads=HEADS)).output


@torch.no_grad()
def theirs(n: int) -> torch.Tensor:
    """FlexAttention with ALiBi."""
    from benchmarks.peers import flex_alibi

    slopes = torch.tensor([2.0 ** -(h + 1) for h in range(HEADS)])
    q, k, v = (torch.randn(1, HEADS, n, WIDTH) for _ in range(3))
    return flex_alibi(slopes, q, k, v)()


def fresh(side: str, n: int) -> float:
    """Return the seconds of a side in a separate process with an empty compiler cache."""
    words = [sys.executable, "-m", "benchmarks.cold", side, "--n", str(n)]
    with TemporaryDirectory() as room:
        settings = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": room}
        done = subprocess.run(  # noqa: S603
            words, capture_output=True, text=True, check=True, env=settings, timeout=PATIENCE
        )
    return float(done.stdout.splitlines()[-1])


def measured(n: int, rounds: int) -> tuple[float, float]:
    """Return the median seconds of both sides, in turns."""
    pairs = [(fresh("ours", n), fresh("theirs", n)) for _ in range(rounds)]
    our_s, their_s = (median(side) for side in zip(*pairs, strict=True))
    return our_s, their_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Seconds to a cold process's first result.")
    parser.add_argument("side", choices=["ours", "theirs"])
    parser.add_argument("--n", type=int, default=2048)
    asked = parser.parse_args(arguments)
    result = {"ours": ours, "theirs": theirs}[asked.side](asked.n)
    result[..., 0].sum().item()
    sys.stdout.write(f"{time.perf_counter() - BEGUN}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
