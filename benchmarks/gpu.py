"""All measurements on a GPU, in one command of ten minutes: ``scripts/gpu``.

    scripts/gpu --out gpu.json
    scripts/gpu --dry-run        # tiny, on a CPU, with Triton's interpreter
    scripts/gpu --parts parity,rows --seconds 240

Parts that time nothing run side by side first and compile what the timed ones need: parity, tests,
waiting, graphs. Then constants and speed, one after the other. Each part is a separate process with
a time limit; the file is written after each, and names omitted parts and the reason. The
machine needs no network, and of regard's dependencies only torch: missing ones are named.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

LIMIT = 600.0
#: The packages that regard needs to compute attention, and those that parts need in addition.
NEEDED = ("torch", "numpy", "jaxtyping", "pydantic")
USEFUL = (
    "triton", "pytest", "beartype", "entmax", "pykeops", "adasplash", "fla", "transformers",
    "typer", "rich",
)  # fmt: skip

Row = dict[str, Any]


class Part(NamedTuple):
    """A part of the command: its time limit in seconds, and its rows.

    ``dry``: whether a dry run has it, without a GPU. ``timed``: whether it runs alone.
    """

    seconds: float
    rows: Callable[[bool], Iterator[Row]]
    needs: Sequence[str] = ()
    dry: bool = True
    timed: bool = False


class Call(NamedTuple):
    """A call, described by the names of its parts."""

    score: str
    position: str
    mask: str
    normalize: str


CALLS = (
    Call("additive", "none", "none", "softmax"),
    Call("additive", "alibi", "window & causal", "entmax15"),
    Call("scaled-dot", "alibi", "causal & lengths", "softmax"),
    Call("scaled-dot", "none", "causal", "sparsemax"),
    Call("scaled-dot+soft-cap-5", "none", "none", "entmax15"),
    Call("epanechnikov", "none", "others", "softmax"),
    Call("scaled-dot", "none", "causal", "softmax"),
)
#: Calls that torch's kernels compute by strips of rows.
STRIPS = (
    Call("scaled-dot", "t5-bias", "causal", "softmax"),
    Call("scaled-dot", "fire", "window & causal", "sink"),
    Call("scaled-dot", "kerple", "others", "softmax"),
    Call("scaled-dot", "none", "causal & lengths", "softmax-plus-one"),
    Call("scaled-dot", "none", "causal", "sink"),
)


def parity(dry: bool) -> Iterator[Row]:
    """Compare output and gradients in float32 and bfloat16 with the exact path in float64."""
    import torch

    for call in CALLS[:1] if dry else (*CALLS, *STRIPS):
        kernels = ("fused",) if call in STRIPS else ("triton", "tiled")
        # The interpreter of Triton is wrong for bfloat16.
        for dtype, most in ((torch.float32, 2e-4), (torch.bfloat16, 6e-2))[: 1 if dry else 2]:
            expected, *found = answers(call, dtype, kernels, dry)
            for kernel, given in zip(kernels, found, strict=True):
                pairs = zip(given, expected, strict=True)
                apart = max(float(distance(a, b)) for a, b in pairs)
                yield {
                    "name": f"{' '.join(call)} {str(dtype).removeprefix('torch.')}: {kernel}",
                    "difference": apart,
                    "at_most": most,
                    "reached": apart <= most,
                }


def distance(a: Any, b: Any) -> Any:
    """Return the norm of the difference relative to the norm."""
    return (a - b).norm() / b.norm().clamp(min=1e-6)


def answers(call: Call, dtype: Any, kernels: Sequence[str], dry: bool) -> list[list[Any]]:
    """Return output and gradients by the exact path on the CPU in float64, then by kernels."""
    import copy

    import torch

    from regard.attention import NORMALIZERS, attend, make_score, use

    torch.manual_seed(0)
    device, n, width = ("cpu", 5, 2) if dry else ("cuda", 200, 24)
    kind_of, options = NORMALIZERS.named(call.normalize)
    score = make_score(call.score, call.position, width, width, heads=2)
    normalize = kind_of(2, **options)
    given = [torch.randn(1 if dry else 2, 2, n, width).to(dtype) for _ in range(3)]
    found = []
    for kernel in ("exact", *kernels):
        place, kind = ("cpu", torch.float64) if kernel == "exact" else (device, dtype)
        q, k, v = inputs = [x.to(place, kind).requires_grad_() for x in given]
        moved = copy.deepcopy(score).to(dtype).to(place, kind)
        normalizer = copy.deepcopy(normalize).to(dtype).to(place, kind)
        with use(kernel), in_strips():
            output = attend(q, k, v, moved, mask_of(call.mask, n), normalize=normalizer).output
        weights = torch.linspace(-1, 2, output.numel(), device=place).view(output.shape)
        of = [*inputs, *moved.parameters(), *normalizer.parameters()]
        gradients = torch.autograd.grad((output * weights).sum(), of, allow_unused=True)
        every = [output, *(x for x in gradients if x is not None)]
        found.append([x.detach().cpu().double() for x in every])
    return found


def in_strips() -> AbstractContextManager[None]:
    """Return a context in which a GPU computes small calls by the kernels of large ones."""
    from regard.attention.kernels.choose import Constants, using

    return using(Constants(gpu_bias_pairs=0, gpu_exact_pairs=0))


def mask_of(name: str, n: int) -> Any:
    """Return a mask by its name."""
    from regard.attention import causal, lengths, others, window

    return {
        "none": None,
        "causal": causal(),
        "window & causal": window(n // 8) & causal(),
        "causal & lengths": causal() & lengths([n, n // 3]),
        "others": others(),
    }[name]


def laws(dry: bool) -> Iterator[Row]:
    """Run the tests that are marked ``gpu``."""
    words = [sys.executable, "-m", "pytest", "-m", "gpu", "-n", "0", "-q", "--no-header"]
    files = [f"tests/attention/kernels/{x}.py" for x in ("test_cuda", "test_waiting")]
    done = subprocess.run([*words, *files], capture_output=True, text=True)  # noqa: S603
    last = (done.stdout.strip().splitlines() or [""])[-1]
    counts = {
        word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", last)
    }
    yield {"name": "pytest -m gpu", **counts, "says": last, "reached": done.returncode == 0}


def waiting(dry: bool) -> Iterator[Row]:
    """Measure whether calls wait for the GPU."""
    import torch

    from regard.attention import attend, make_score

    for call in CALLS[:1] if dry else (*CALLS, *STRIPS):
        device, n = ("cpu", 5) if dry else ("cuda", 512)
        score = make_score(call.score, call.position, 8, 8, heads=2).to(device)
        q, k, v = (torch.randn(2, 2, n, 8, device=device, requires_grad=True) for _ in range(3))
        mask, says = mask_of(call.mask, n), ""
        for turn in range(2):  # the first compiles
            if turn and not dry:
                torch.cuda.set_sync_debug_mode("error")
            try:
                with in_strips():
                    output = attend(q, k, v, score, mask, normalize=call.normalize).output
                output.sum().backward()
            except RuntimeError as error:
                says = str(error).splitlines()[0]
            finally:
                if not dry:
                    torch.cuda.set_sync_debug_mode("default")
        yield {"name": " ".join(call), "says": says, "reached": not says}


def calibration(dry: bool) -> Iterator[Row]:
    """Measure the constants of plans."""
    from regard.analysis.calibration import measured_on_gpu

    budget, most, device = (0.01, 1, "cpu") if dry else (0.5, 6, "cuda")
    for name, value in measured_on_gpu(budget, most, device):
        yield {"name": name, "value": value}


def attention(
    dry: bool, rows: Literal["parts", "peers"] = "parts", *, kind: str = "", n: int = 0
) -> Iterator[Row]:
    """Yield rows of ``regard bench attention --device cuda``; with a ``kind`` only compile them."""
    from benchmarks import attention as bench

    how = bench.AttentionSettings(
        rows=rows, device="cpu" if dry else "cuda", dtype="float32" if dry else "bfloat16",
        rounds=1 if dry or kind else 0, seconds=0.2 if n else 0.6, memory=not kind,
    )  # fmt: skip
    for case in bench.rows_of(how, quick=dry)[: 1 if dry else None]:
        if case.name.startswith(kind) and (dry or n in (0, case.n)):
            try:
                row = bench.measured(case, how, quick=dry)
            except Exception as error:  # a peer's or a compiler's: go on with the next row
                says = f"{type(error).__name__}: {error}".splitlines()[0][:300]
                row = {"name": case.name, "against": case.against, "says": says, "reached": False}
            if not kind or "says" in row:
                yield row


def tiles(dry: bool, block: int = 0, warps: int = 0) -> Iterator[Row]:
    """Time calls with tiles of several sizes; with a ``block`` only compile that size."""
    import torch

    from benchmarks import multiples
    from regard.analysis.timing import alone
    from regard.attention.kernels.triton import launch

    shipped = launch.BLOCK, launch.WARPS
    with torch.device("cuda"):
        for kind, name in TILED:
            case = multiples.of(kind, name, 1024, "cuda", "bfloat16")
            for size in [(block, warps)] if block else TILES:
                launch.BLOCK, launch.WARPS = size
                try:
                    seconds = alone(case.work("ours"), 1 if block else 5, device="cuda")
                except Exception as error:  # too large for the GPU's shared memory
                    yield {"name": f"{case.name}: {size}", "says": str(error)[:200]}
                else:
                    if not block:
                        yield {"name": f"{case.name}: {size}", "seconds": seconds}
    launch.BLOCK, launch.WARPS = shipped


def graphs(dry: bool) -> Iterator[Row]:
    """Compare losses of trainings with compiled blocks (on a GPU: CUDA graphs) with plain ones."""
    import torch

    from benchmarks.language_model_training import BORROWED
    from regard.core.settings import build
    from regard.lab.tasks import TASKS
    from regard.training.loop import SMOOTH, Training, TrainingSettings
    from regard.training.precision import choose_precision

    device, steps = ("cpu", 3) if dry else ("cuda", 20)
    for name, task_name in list(BORROWED.items())[: 1 if dry else None]:
        entry, both = TASKS[task_name], []
        task = entry.prepare(entry.configure({"data": "pydoc", "length": 64, "examples": 200}))
        model = entry.models[name]
        sizes = {"width": 32, "heads": 2, "layers": 2, "feedforward": 64, "length": 64}
        settings = {"steps": 1000, "warmup": 0, "device": device, "batch_tokens": 2_048}
        for compiled in (False, True):
            torch.manual_seed(0)
            network = model.build(model.configure({**sizes, "dropout": 0.0}), **task.sizes)
            asked = build(TrainingSettings, {**settings, "compile": compiled})
            training = Training(network, task, asked, choose_precision("fp32", device))
            losses = []
            for indexes in list(training.plan())[:steps]:
                before = training.state.loss
                training.update(indexes)
                losses.append((training.state.loss - SMOOTH * before) / (1 - SMOOTH))
            both.append(torch.tensor(losses))
            training.parallel.close()
        apart = float((both[0] / both[1] - 1).abs().max())
        yield {
            "name": f"{name}, {len(both[0])} steps",
            "difference": apart,
            "at_most": 1e-3,
            "reached": apart <= 1e-3,
        }


def training(dry: bool) -> Iterator[Row]:
    """Yield the rows of ``regard bench language-model-training --device cuda``."""
    from benchmarks import language_model_training as bench

    for compiled in (0, 1):
        settings = ["device=cuda", "case=gpt", "rounds=3", "seconds=3", f"compile={compiled}"]
        for row in bench.cases(settings=settings):
            yield {**row, "compile": bool(compiled)}


#: The lengths of the rows; at the first they are compiled side by side.
LENGTHS = (256, 1024, 4096)
KINDS = ("score", "position", "normaliser", "mask", "mechanism")
#: Parts that are timed with tiles of these sizes: rows and columns, and warps.
TILED = (
    ("score", "additive"), ("score", "epanechnikov"), ("position", "alibi"),
    ("normaliser", "entmax15"), ("mask", "window 64 causal"),
)  # fmt: skip
TILES = ((32, 2), (32, 4), (64, 4), (64, 8), (128, 4), (128, 8))
PARTS = {
    "parity": Part(100, parity, ["triton"]),
    "laws": Part(100, laws, ["pytest", "beartype"], dry=False),
    "waiting": Part(100, waiting),
    "graphs": Part(100, graphs),
    **{f"compile-{x}": Part(100, partial(attention, kind=x, n=256), dry=False) for x in KINDS},
    **{
        f"compile-{block}-{warps}": Part(100, partial(tiles, block=block, warps=warps), dry=False)
        for block, warps in TILES
    },
    "calibration": Part(60, calibration, timed=True),
    "tiles": Part(60, tiles, dry=False, timed=True),
    **{f"rows-{n}": Part(100, partial(attention, n=n), timed=True) for n in LENGTHS},
    "peers": Part(180, partial(attention, rows="peers"), dry=False, timed=True),
    "training": Part(90, training, ["transformers"], dry=False, timed=True),
}
#: Parts whose rows must hold for the command to succeed.
MUST_HOLD = ("parity", "laws", "waiting", "graphs")


def environment() -> Row:
    """Return facts about this machine."""
    found: Row = {"python": sys.version.split()[0], "missing": []}
    found["missing"] = [x for x in (*NEEDED, *USEFUL) if find_spec(x) is None]
    if "torch" not in found["missing"]:
        import torch

        found |= {"torch": torch.__version__, "cuda": torch.version.cuda}
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return found


def lacking(part: Part, machine: Row, dry: bool) -> str:
    """Return the reason why a part cannot run here, or ""."""
    gone = [x for x in (*NEEDED, *part.needs) if x in machine["missing"]]
    if gone:
        return f"not installed: {', '.join(gone)}"
    if dry:
        return "" if part.dry else "needs a GPU"
    return "" if "gpu" in machine else "torch sees no GPU; try --dry-run"


def run(name: str, seconds: float, dry: bool) -> Row:
    """Run a part in a separate process; keep its rows if it ends early."""
    begun = time.monotonic()
    words = [sys.executable, "-W", "ignore", "-m", "benchmarks.gpu", "--part", name]
    words += ["--dry-run"] if dry else []
    more = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if dry else {}
    process = subprocess.Popen(  # noqa: S603
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", **more},
    )  # fmt: skip
    left_out = None
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        left_out = f"the rest: {seconds:.0f} s were over"
    if process.returncode and left_out is None:
        left_out = f"the rest: {(errors.strip().splitlines() or ['it ended'])[-1]}"
    rows = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    return {"seconds": round(time.monotonic() - begun, 1), "rows": rows, "left_out": left_out}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; exit code 0 if all executed parts passed, else 1."""
    parser = argparse.ArgumentParser(description="Measure regard on a GPU in ten minutes.")
    parser.add_argument("--out", type=Path, default=Path("gpu.json"), help="the file to write")
    parser.add_argument("--dry-run", action="store_true", help="tiny sizes, on a CPU")
    parser.add_argument("--parts", default=",".join(PARTS), help="of " + ", ".join(PARTS))
    parser.add_argument("--seconds", type=float, default=LIMIT, help="limit of the whole command")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.part:
        if asked.dry_run:
            from regard.attention.kernels import triton
            from regard.attention.kernels.triton import launch

            triton.INTERPRETED, launch.BLOCK = True, 4
        for row in PARTS[asked.part].rows(asked.dry_run):
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()
        return 0
    begun, machine = time.monotonic(), environment()
    parts: dict[str, Row] = {}
    result = {"machine": machine, "dry": asked.dry_run, "parts": parts}

    def done(name: str) -> tuple[str, Row]:
        left = asked.seconds - (time.monotonic() - begun)
        why = lacking(PARTS[name], machine, asked.dry_run)
        if why or left < 5:
            return name, {"seconds": 0.0, "rows": [], "left_out": why or "the time was over"}
        return name, run(name, min(PARTS[name].seconds, left), asked.dry_run)

    def keep(name: str, part: Row) -> None:
        parts[name] = part
        aside = asked.out.with_suffix(".partial")
        aside.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        aside.replace(asked.out)
        held = [row.get("reached") for row in part["rows"]]
        note = f"; left out: {part['left_out']}" if part["left_out"] else ""
        sys.stdout.write(
            f"{name}: {len(held)} rows in {part['seconds']} s, "
            f"{held.count(False)} not reached{note}\n"
        )
        sys.stdout.flush()

    chosen = [name for name in PARTS if name in asked.parts.split(",")]
    with ThreadPoolExecutor(os.cpu_count()) as together:
        jobs = [together.submit(done, name) for name in chosen if not PARTS[name].timed]
        for job in as_completed(jobs):
            keep(*job.result())
    for name in chosen:
        if PARTS[name].timed:
            keep(*done(name))
    sys.stdout.write(f"{asked.out} written\n")
    wrong = [r for x in MUST_HOLD if x in parts for r in parts[x]["rows"] if not r["reached"]]
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
