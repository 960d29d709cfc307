"""Time of block-routed attention (MoBA) against attention to all earlier words, and skipped pairs.

    python -m benchmarks.block_routing --out routing.json

One causal layer, forward and backward, mechanisms interleaved; the median of the rounds counts.
The words are random, or runs of ``--run`` words about one topic, whose choices are similar.
Skipped is the share of the pairs of earlier words in blocks that the tiled kernel omits.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.attention import MultiHeadAttention, causal, named_mechanism
from regard.attention.kernels.choose import SIZES
from regard.attention.kernels.strips import count, regions
from regard.attention.mask_context import MaskContext
from regard.lab.runs.environment import processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", type=int, default=1024)
    parser.add_argument("--lengths", type=int, nargs="+", default=(4096, 16384))
    parser.add_argument("--names", nargs="+", default=("multi-head", "moba-16-3", "moba-512-3"))
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    torch.manual_seed(0)
    layers = {name: named_mechanism(name)(asked.width, asked.heads) for name in asked.names}
    rows = []
    for n in asked.lengths:
        for words in ("random", "topics"):
            x = words_of(words, n, asked.width, asked.run)
            rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in layers}
            for number in range(asked.rounds + 1):  # the first is a warm-up
                for name, layer in layers.items():
                    taken = timed(layer, x)
                    if number:
                        rounds[name].append(taken)
            for name, layer in layers.items():
                forward, backward = (statistics.median(x) for x in zip(*rounds[name], strict=True))
                row = {"name": name, "n": n, "words": words, "forward_s": forward,
                       "backward_s": backward, "skipped": skipped(layer, x)}  # fmt: skip
                rows.append(row)
                print(f"{n:6d} {words:7s} {name:12s} forward {forward:7.3f} s, backward "
                      f"{backward:7.3f} s, skipped {row['skipped']:.0%}", flush=True)  # fmt: skip
    found = {"processor": processor(), "threads": torch.get_num_threads(), "rows": rows}
    print(f"{found['processor']}, {found['threads']} threads")
    if asked.out:
        asked.out.write_text(json.dumps(found, indent=1))


def words_of(words: str, n: int, width: int, run: int) -> Tensor:
    """Return n random vectors, or runs of vectors near a common centre."""
    x = torch.randn(1, n, width)
    if words == "random":
        return x
    topics = torch.randn(1, -(-n // run), width).repeat_interleave(run, 1)[:, :n]
    return topics + 0.1 * x


def timed(layer: torch.nn.Module, x: Tensor) -> tuple[float, float]:
    """Return the seconds of a forward and of a backward pass."""
    start = time.perf_counter()
    output = layer(x, mask=causal()).sum()
    middle = time.perf_counter()
    output.backward()
    return middle - start, time.perf_counter() - middle


def skipped(layer: Any, x: Tensor) -> float:
    """Return the share of causal pairs that strips of the mask of a call leave out."""
    assert isinstance(layer, MultiHeadAttention)
    kept: list[Any] = []
    handle = layer.attention.register_forward_pre_hook(lambda module, given: kept.append(given[3]))
    with torch.no_grad():
        layer(x, mask=causal())
    handle.remove()
    n, at = x.shape[1], torch.arange(x.shape[1])

    def pairs(mask: Any) -> int:
        shape = torch.Size([1, layer.heads, n, n])
        context = MaskContext(mask, "pairs", at, at, layer.heads, shape)
        return sum(count(columns) * (rows.stop - rows.start)
                   for rows, columns, _ in regions(context, SIZES))  # fmt: skip

    return 1 - pairs(kept[0]) / pairs(causal())


if __name__ == "__main__":
    main()
