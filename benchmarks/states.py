"""Mechanisms beside a loop over tokens, and their time and memory beside multi-head attention.

    python -m benchmarks.states errors
    python -m benchmarks.states speed
    python -m benchmarks.states memory

Errors are the largest difference over the largest number of the loop, in float64: outputs, all
gradients, steps with a cache, packed rows; in float32 outputs of 2,000 tokens with a strong decay.
Times are medians of interleaved turns, forward and backward, as multiples of multi-head attention.
Memory is the peak of forward and backward above the inputs, medians of fresh processes, in the same
multiples.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from unittest.mock import patch

import torch
from torch import Tensor

from regard.analysis.memory import PROMPT, probe
from regard.attention import KeyValueCache, Packing, causal, lengths, named_mechanism
from regard.attention.kernels.linear import by_steps
from regard.attention.mechanism import Mechanism

NAMES = (
    "gla", "delta", "delta-reach-2", "delta-products-3", "delta-reach-2-products-3", "kda",
    "delta+exclusive+gate-heads", "kda+value-residual",
)  # fmt: skip
#: Of those without a state.
CHOOSING = ("multi-head+gate", "multi-head+exclusive", "multi-head+value-residual", "dsa-64")
SIZES = (1, 63, 64, 65, 129)
LONG = (256, 1024, 4096)


@contextmanager
def looping() -> Iterator[None]:
    """Compute every recurrence by a loop over tokens."""
    with patch("regard.attention.mechanisms.recurrent.by_chunks", by_steps):
        yield


def made(name: str, width: int, heads: int) -> Mechanism:
    """Return a layer with random parameters."""
    torch.manual_seed(0)
    layer = named_mechanism(name)(width, heads)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def gap(ours: Tensor, exact: Tensor) -> float:
    """Return the largest difference over the largest number, or over 1e-6 if that is larger."""
    return float((ours - exact).abs().max() / exact.abs().max().clamp(min=1e-6))


def passed(layer: Mechanism, x: Tensor) -> list[Tensor]:
    """Return the output and the gradients of all parameters and of the input."""
    x = x.clone().requires_grad_()
    output = layer(x, mask=causal())
    loss = (output * torch.arange(output.numel()).view_as(output).cos()).sum()
    wanted = [x, *layer.parameters()]
    found = torch.autograd.grad(loss, wanted, allow_unused=True)
    return [output.detach(), *(g for g in found if g is not None)]


def errors() -> None:
    """Print the errors of each mechanism."""
    print("| mechanism | outputs | gradients | cache | packed | 2,000 tokens, float32 |")
    print("|---|--:|--:|--:|--:|--:|")
    for name in NAMES:
        layer = made(name, 12, 3).double()
        found: list[list[float]] = []
        for n in SIZES:
            x = torch.randn(2, n, 12, dtype=torch.float64)
            ours = passed(layer, x)
            with looping():
                exact = passed(layer, x)
            gaps = [gap(one, other) for one, other in zip(ours, exact, strict=True)]
            cache = KeyValueCache()
            with torch.no_grad():
                steps = [layer(part, mask=causal(), cache=cache) for part in x.split(1, 1)]
                packing = Packing(torch.tensor([n, max(1, n // 2)]), n)
                mask = causal() & lengths(torch.tensor([n, max(1, n // 2)]))
                rows = layer(packing.pack(x), mask=mask, packing=packing)
            found.append([gaps[0], max(gaps[1:]), gap(torch.cat(steps, 1), exact[0]),
                          gap(rows, packing.pack(exact[0]))])  # fmt: skip
        long, strong = torch.randn(1, 2000, 12), layer.float()
        for part, rates in strong.named_parameters():
            if part == "log_speed":
                torch.nn.init.constant_(rates, 3.0)  # e³ · softplus of the step: to 0 at once
        with torch.no_grad():
            single = strong(long, mask=causal())
            with looping():
                whole = strong.double()(long.double(), mask=causal())
        cells = [max(row[i] for row in found) for i in range(4)] + [gap(single.double(), whole)]
        print(f"| {name} | {' | '.join(f'{cell:.0e}' for cell in cells)} |", flush=True)


def printed(ratios: dict[str, list[float]]) -> None:
    """Print a row for each mechanism."""
    print("| mechanism | " + " | ".join(f"n = {n:,}" for n in LONG) + " |")
    print("|---|" + "--:|" * len(LONG))
    for name, row in ratios.items():
        print(f"| {name} | {' | '.join(f'{ratio:.2f}' for ratio in row)} |", flush=True)


def speed(turns: int) -> None:
    """Print the time of forward and backward as a multiple of multi-head attention's."""
    layers = {name: made(name, 256, 4) for name in ("multi-head", *CHOOSING, *NAMES)}
    ratios: dict[str, list[float]] = {name: [] for name in layers}
    for n in LONG:
        times: dict[str, list[float]] = {name: [] for name in layers}
        for _ in range(turns):
            for name, layer in layers.items():
                work = passing(layer, n)
                begin = time.perf_counter()
                work()
                times[name].append(time.perf_counter() - begin)
        base = statistics.median(times["multi-head"])
        for name, each in times.items():
            ratios[name].append(statistics.median(each) / base)
    printed(ratios)


def passing(layer: Mechanism, n: int) -> Callable[[], None]:
    """Return forward and backward of two texts of n tokens."""
    x = torch.randn(2, n, 256, requires_grad=True)
    return lambda: layer(x, mask=causal()).sum().backward()


def peak(name: str, n: int) -> float:
    """Return the peak memory of forward and backward above the inputs, in MB."""
    layer = made(name, 256, 4)
    passing(layer, 64)()  # loads and compiles
    layer.zero_grad(set_to_none=True)
    return probe(lambda: passing(layer, n)).extra_mb


def memory(turns: int) -> None:
    """Print the peak memory of forward and backward as a multiple of multi-head attention's."""
    os.environ.update(PROMPT)  # of the processes that are started
    names = ("multi-head", *CHOOSING, *NAMES)
    ratios: dict[str, list[float]] = {name: [] for name in names}
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as processes:
        for n in LONG:
            jobs = {name: [processes.submit(peak, name, n) for _ in range(turns)] for name in names}
            peaks = {name: statistics.median(job.result() for job in jobs[name]) for name in names}
            for name in names:
                ratios[name].append(peaks[name] / peaks["multi-head"])
    printed(ratios)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["errors", "speed", "memory"])
    parser.add_argument("--turns", type=int, default=7, help="turns of each length")
    options = parser.parse_args()
    if options.what == "errors":
        errors()
    elif options.what == "memory":
        memory(options.turns)
    else:
        speed(options.turns)
