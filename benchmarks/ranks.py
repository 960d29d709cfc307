"""Measurements of several processes that train one network on this machine's processor.

    python -m benchmarks.ranks equality     # losses of 1, 2, 4 processes; resumes between them
    python -m benchmarks.ranks throughput   # bytes, time, overlap of the exchange; tokens a second
    python -m benchmarks.ranks plan --out docs/results/scale.svg   # a simulated plan for GPUs

Processes are joined by gloo over loopback. ``plan`` measures nothing: it computes the time of a
step on 8 to 512 GPUs from published figures and prints where DDP and FSDP2 stop scaling.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.lab.reports.figures import Series, line_chart
from regard.lab.runs.build import build_network
from regard.lab.runs.config import Config
from regard.nn.layers.cross_entropy import word_loss
from regard.training.checkpoints import Checkpoints
from regard.training.learnable import Learnable, Split
from regard.training.loop import SMOOTH, Training, TrainingSettings, train, using_threads
from regard.training.precision import Precision
from regard.training.ranks import ranks

WORDS = 512
TINY = {"width": 16, "layers": 2, "heads": 2, "feedforward": 32, "length": 32}
SMALL = {"width": 256, "layers": 4, "heads": 8, "feedforward": 1024, "length": 128}
FP32 = Precision("fp32", "the benchmark's")


class Rows(NamedTuple):
    """Random rows of words; each word is predicted from those before it."""

    tokens: Tensor
    lengths: Tensor


class Words(Learnable[Rows]):
    """Language modelling on random words, where every second word repeats the previous one."""

    metric = "likelihood"

    def __init__(self, length: int, examples: int) -> None:
        random = np.random.default_rng(0)
        self.rows = random.integers(0, WORDS, (examples, length))
        self.rows[:, 1::2] = self.rows[:, ::2]

    def lengths(self, split: Split, seed: int, epoch: int) -> NDArray[np.integer]:
        return np.full(len(self.rows), self.rows.shape[1])

    def batch(self, split: Split, indexes: NDArray[np.integer]) -> Rows:
        rows = torch.from_numpy(self.rows[indexes])
        return Rows(rows, torch.full((len(rows),), rows.shape[1]))

    def loss(self, model: nn.Module, batch: Rows) -> Tensor:
        states = model(batch.tokens[:, :-1], batch.lengths - 1)
        return word_loss(model, states.flatten(0, 1), batch.tokens[:, 1:].flatten())

    def judge(self, model: nn.Module, split: Split, *, tokens: int = 16_384) -> tuple[float, float]:
        return 0.0, 0.0


def network(sizes: dict[str, int]) -> nn.Module:
    """Return a GPT of these sizes, without dropout, with tied embeddings."""
    words = [f"{name}={value}" for name, value in sizes.items() if name != "length"]
    config = Config.make("language-modeling", "gpt", [*words, "dropout=0", "tie=true"])
    return build_network(config, vocabulary=WORDS, labels=0)


def settings_of(**values: Any) -> TrainingSettings:
    """Return the settings of a training, by default the usual ones."""
    return TrainingSettings(**values)


def losses(job: dict[str, Any]) -> dict[str, Any]:
    """Train the tiny network in float64; return the loss of each step."""
    settings = settings_of(
        threads=1, seed=1, batch_tokens=8 * TINY["length"], learning_rate=3e-3, steps=50,
        evaluate_every=1000, save_every=10, strategy=job["strategy"],
    )  # fmt: skip
    checkpoints = Checkpoints(Path(job["folder"])) if job.get("folder") else None
    task, values, before = Words(TINY["length"], 128), {}, 0.0
    steps = train(network(TINY).double(), task, settings, checkpoints, precision=FP32)
    for progress in islice(steps, job.get("until", 50)):
        mean = progress.loss * (1 - SMOOTH**progress.step)
        values[progress.step] = (mean - SMOOTH * before) / (1 - SMOOTH)
        before = mean
    cast(Any, steps).close()
    if job.get("resumed"):  # the first loss after a resume cannot be told from the running mean
        values.pop(min(values))
    return {"losses": values}


def speed(job: dict[str, Any]) -> dict[str, Any]:
    """Time steps of the small network, then trace some of them."""
    settings = settings_of(
        threads=job["threads"], batch_tokens=16 * SMALL["length"], steps=10_000,
        strategy=job["strategy"], batch_size=16,
    )  # fmt: skip
    model = network(SMALL)
    training = Training(model, Words(SMALL["length"], 1024), settings, FP32)
    with using_threads(job["threads"]):
        plan = training.plan()
        for indexes in plan[:3]:
            training.update(indexes)
        times = []
        for indexes in plan[3 : 3 + job["steps"]]:
            begun = time.perf_counter()
            training.update(indexes)
            times.append(time.perf_counter() - begun)
        result = {"seconds": float(np.median(times)), "tokens": 16 * SMALL["length"]}
        result["parameters"] = sum(p.numel() for p in model.parameters())
        if ranks().world > 1:
            result |= traced(training, plan[3 : 3 + 5])
    return result


def traced(training: Training, plan: Sequence[NDArray[np.integer]]) -> dict[str, Any]:
    """Return the seconds and bytes of a step's exchange, and its share during the backward pass."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as trace:
        for indexes in plan:
            training.update(indexes)
    backward, exchange, size = [], [], 0
    for event in cast(Any, trace).events():
        span = (event.time_range.start, event.time_range.end)
        if event.name.startswith("gloo:"):
            exchange.append(span)
            size += sum(int(np.prod(shape)) for shape in event.input_shapes if shape) * 4
        elif event.name.startswith("autograd::engine::evaluate_function"):
            backward.append(span)
    spans, works = joined(exchange), joined(backward)
    seconds = sum(b - a for a, b in spans)
    beside = sum(max(0.0, min(b, d) - max(a, c)) for a, b in spans for c, d in works)
    return {
        "exchange_seconds": seconds / 1e6 / len(plan), "overlapped": beside / max(seconds, 1e-9),
        "backward_seconds": sum(b - a for a, b in works) / 1e6 / len(plan),
        "bytes": size / len(plan), "calls": len(exchange) / len(plan),
    }  # fmt: skip


def joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of spans.

    >>> joined([(3, 5), (0, 2), (1, 2.5), (4, 6)])
    [(0, 2.5), (3, 6)]
    """
    union: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if union and start <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        else:
            union.append((start, end))
    return union


def run(job: dict[str, Any], world: int, place: Path) -> dict[str, Any]:
    """Run a job in several processes and return its result. Raises: a process fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out, processes = place / "result.json", []
    for rank in range(world):
        env = {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
        env |= {"MASTER_PORT": str(port), "TORCH_CPP_LOG_LEVEL": "ERROR"}
        words = [sys.executable, "-m", "benchmarks.ranks", "work", json.dumps(job)]
        words += ["--out", str(out)]
        processes.append(subprocess.Popen(words, env=os.environ | env))  # noqa: S603
    codes = [process.wait(600) for process in processes]
    if any(codes):
        raise RegardError(f"{job} with {world} processes failed")
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def equality(place: Path) -> dict[str, Any]:
    """Return the largest difference of a loss from that of one process, for each way to train."""
    alone = run({"do": "losses", "strategy": "ddp"}, 1, place)["losses"]
    differences = {}

    def compare(name: str, result: dict[str, Any]) -> None:
        there = result["losses"]
        differences[name] = max(abs(there[step] - alone[step]) for step in there)
        print(f"{name}: {len(there)} steps, {differences[name]:.1e}", file=sys.stderr, flush=True)

    for world in (2, 4):
        for strategy in ("ddp", "fsdp2"):
            result = run({"do": "losses", "strategy": strategy}, world, place)
            compare(f"{strategy}, {world} processes", result)
    folder = str(place / "resumed")
    for name, world, strategy, until in (
        ("4 processes, ddp, killed after step 20", 4, "ddp", 20),
        ("resumed at step 10 by 2, fsdp2, killed after step 30", 2, "fsdp2", 20),
        ("resumed at step 20 by 1, to step 50", 1, "ddp", 50),
    ):
        job = {"do": "losses", "strategy": strategy, "until": until, "folder": folder}
        compare(name, run({**job, "resumed": world < 4}, world, place))
    return {"steps": len(alone), "differences": differences}


def throughput(place: Path, steps: int) -> dict[str, Any]:
    """Time one process with two threads, and two processes with one, in turns."""
    cases = {
        "1 process, 2 threads": ("ddp", 1, 2), "2 processes, ddp": ("ddp", 2, 1),
        "2 processes, fsdp2": ("fsdp2", 2, 1),
    }  # fmt: skip
    results = {}
    for name, (strategy, world, threads) in cases.items():
        job = {"do": "speed", "strategy": strategy, "threads": threads, "steps": steps}
        results[name] = run(job, world, place)
        results[name]["tokens_per_second"] = results[name]["tokens"] / results[name]["seconds"]
        print(name, json.dumps(results[name]), file=sys.stderr, flush=True)
    return results


@dataclass(frozen=True)
class Machine:
    """Published figures of a GPU and its network, each in one direction, and the used share.

    NVIDIA H100 SXM: 989 · 10¹² operations a second in bf16 without sparsity, NVLink 900 GB/s in
    both directions together, 8 GPUs a machine (NVIDIA H100 data sheet). InfiniBand NDR: 400 Gb/s a
    port (NVIDIA ConnectX-7 data sheet). With one port for each GPU, as in a DGX H100, each carries
    an eighth of a machine's exchange.
    """

    ports: int = 8  # of a machine
    operations: float = 989e12
    inside: float = 450e9  # bytes a second
    port: float = 50e9
    gpus: int = 8
    used: float = 0.4  # share of the operations that a training reaches
    reached: float = 0.8  # share of the bandwidths
    latency: float = 10e-6  # seconds of each of a tree's levels


def step_seconds(
    strategy: str, gpus: int, parameters: float, tokens: float, machine: Machine, layers: int = 32
) -> tuple[float, float, float]:
    """Return the seconds of a step, of its computing and of its exchange, for tokens of each GPU.

    Compute: 6 operations for each parameter and token (Kaplan et al. 2020), of which 2/3 are the
    backward pass. A ring moves (w − 1)/w of the bytes once for each all-gather or reduce-scatter:
    DDP all-reduces float32 gradients (8 bytes a parameter) during the backward pass; FSDP2 gathers
    bf16 weights twice and reduces float32 gradients once (8 bytes), during both passes. The slowest
    link counts.
    """
    compute = 6 * parameters * tokens / (machine.operations * machine.used)
    network = min(machine.inside, machine.ports * machine.port)
    link = (machine.inside if gpus <= machine.gpus else network) * machine.reached
    calls = parameters * 4 / 25e6 if strategy == "ddp" else 3 * layers
    exchange = 8 * parameters * (gpus - 1) / gpus / link
    exchange += calls * float(np.log2(gpus)) * machine.latency
    beside = compute * (2 / 3 if strategy == "ddp" else 1)
    return compute + max(0.0, exchange - beside), compute, exchange


def plan() -> tuple[list[dict[str, Any]], bytes]:
    """Return rows of the plan, and the figure of the share that computes over GPUs."""
    rows: list[dict[str, Any]] = []
    series: list[Series] = []
    for parameters, tokens in ((125e6, 16_384), (1.3e9, 8_192), (7e9, 8_192)):
        for strategy in ("ddp", "fsdp2"):
            for ports in (8, 1):
                shares = []
                for gpus in (8, 64, 512):
                    seconds, compute, exchange = step_seconds(
                        strategy, gpus, parameters, tokens, Machine(ports)
                    )
                    shares.append(compute / seconds)
                    rows.append({
                        "parameters": parameters, "strategy": strategy, "ports": ports,
                        "gpus": gpus, "tokens_per_gpu": tokens, "compute": compute,
                        "exchange": exchange, "efficiency": compute / seconds,
                        "tokens_per_second": gpus * tokens / seconds,
                    })  # fmt: skip
                if parameters == 7e9:
                    name = f"{strategy}, {ports} port{'s' * (ports > 1)}"
                    series.append(Series(name, [8, 64, 512], shares, look=len(series)))
    chart = line_chart(
        "A simulated plan: share of a step that computes, 7 billion parameters", series,
        x_label="GPUs (H100)", y_label="share that computes", log_x=True, width=760,
    )  # fmt: skip
    return rows, chart.drawing.svg("light").encode()


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["equality", "throughput", "plan", "work"])
    parser.add_argument("job", nargs="?", help="of work: a job as JSON")
    parser.add_argument("--steps", type=int, default=20, help="timed steps of throughput")
    parser.add_argument("--out", type=Path, help="file of the result (plan: of the figure)")
    asked = parser.parse_args(arguments)
    if asked.what == "work":
        job = json.loads(asked.job)
        result = losses(job) if job["do"] == "losses" else speed(job)
        if ranks().first:
            asked.out.write_text(json.dumps(result))
        return
    if asked.what == "plan":
        rows, figure = plan()
        if asked.out:
            atomic_io.write_bytes(asked.out, figure)
        print(json.dumps(rows))
        return
    with TemporaryDirectory() as place:
        where = Path(place)
        result = equality(where) if asked.what == "equality" else throughput(where, asked.steps)
    print(json.dumps(result))
    if asked.out:
        atomic_io.write_json(asked.out, result)


if __name__ == "__main__":
    main()
