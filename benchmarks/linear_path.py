"""Time and memory of the linear path and of attention in tiles: exponents and crossing lengths.

    python -m benchmarks.linear_path --out linear.json

Each length and mechanism is one causal layer, forward and backward, the lengths in turn and the
mechanisms interleaved; the median of the rounds counts. The exponent is the slope of log time over
log length by least squares.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
import torch

from regard.attention import MECHANISMS, causal, named_mechanism
from regard.attention.mechanisms.recurrent import StateAttention
from regard.lab.runs.environment import processor

LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536)
QUADRATIC_TO = 16384  # attention of all pairs at 65,536 takes minutes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    names = ["multi-head"] + [
        name for name, kind in MECHANISMS.items() if kind and issubclass(kind, StateAttention)
    ]
    layers = {name: named_mechanism(name)(asked.width, asked.heads) for name in names}
    seconds: dict[str, dict[int, float]] = {name: {} for name in names}
    for n in asked.lengths:
        x = torch.randn(1, n, asked.width, generator=torch.Generator().manual_seed(n))
        rounds: dict[str, list[float]] = {name: [] for name in names}
        for number in range(asked.rounds + 1):  # the first is a warm-up
            for name, layer in layers.items():
                if name == "multi-head" and n > QUADRATIC_TO:
                    continue
                start = time.perf_counter()
                layer(x, mask=causal()).sum().backward()
                if number:
                    rounds[name].append(time.perf_counter() - start)
        for name, taken in rounds.items():
            if taken:
                seconds[name][n] = statistics.median(taken)
                print(f"{n:6d} {name:14s} {1e3 * seconds[name][n]:9.1f} ms", flush=True)
    rows = []
    for name, times in seconds.items():
        slope = float("nan")
        if len(times) > 1:
            slope = float(np.polyfit(np.log(list(times)), np.log(list(times.values())), 1)[0])
        dot = seconds["multi-head"]
        faster = [n for n in times if n in dot and times[n] < dot[n]]
        rows.append(
            {"name": name, "exponent": slope, "crosses": min(faster, default=None), "s": times}
        )
        print(f"{name:14s} exponent {slope:.3f}, faster from {rows[-1]['crosses']}")
    found = {"processor": processor(), "threads": torch.get_num_threads(), "rows": rows}
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
