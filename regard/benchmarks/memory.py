"""Peak memory of one side of one case, in a fresh process that has done nothing else.

    python -m regard.benchmarks.memory "additive n=1024 heads=8 width=64 forward + backward" ours

prints JSON: ``extra_mb``, the peak above what the process held once the inputs were there, and
``total_mb``, the peak above what it held before them, so inputs and outputs included. Before
either, a small call of the same kind has loaded, and compiled, whatever the call needs.

The C library keeps some of what a call frees (glibc: up to 64 MB at the top of its heap, and the
gaps below), and it counts. With ``prompt`` it gives blocks of 128 KB and more back at once, so that
the peak is what the call holds.
"""

import argparse
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from regard.errors import RegardError

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEGABYTE = 1e6
PROMPT = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}  # glibc's own, but no longer growing
PATIENCE = 1800.0  # seconds after which a probe that does not end is an error


class Memory(NamedTuple):
    """Megabytes of a call at its peak: beside its inputs, and with them."""

    extra_mb: float
    total_mb: float


def probe(make: Callable[[], Callable[[], object]]) -> Memory:
    """Make inputs, call once, and see how far memory rose.

    ``make`` gives the call, which holds its inputs. Warm up before.
    """
    trim()
    empty = resident()
    work = make()
    trim()
    full = resident()
    reset_peak()
    begin = peak()
    work()
    top = peak()
    if not resettable():  # all that can be seen is how far the highest point has risen
        return Memory(top - begin, top - min(begin, empty))
    return Memory(max(top - full, 0.0), max(top - empty, 0.0))


def resident() -> float:
    """What the process holds in memory now, in MB."""
    return of_status("VmRSS") or peak()


def peak() -> float:
    """The most that it has held since :func:`reset_peak`, or ever where that cannot be reset."""
    unit = 1 if sys.platform == "darwin" else 1024
    return of_status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        unit / MEGABYTE
    )


def of_status(name: str) -> float:
    """A line of /proc/self/status in MB; 0 where there is none."""
    try:
        text = STATUS.read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")]
    return int(found[0]) * 1024 / MEGABYTE if found else 0.0


def reset_peak() -> None:
    """Count the peak from now on, where the system can (Linux, clear_refs 5)."""
    if resettable():
        RESET.write_text("5", encoding="ascii")


def resettable() -> bool:
    """Whether the system forgets a peak when asked."""
    return RESET.exists() and of_status("VmHWM") > 0


def trim() -> None:
    """Give freed memory back to the system, where the C library has a call for it."""
    gc.collect()
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)


def fresh(
    case: str,
    against: str,
    side: str,
    *,
    n: int | None = None,
    quick: bool = False,
    prompt: bool = False,
) -> Memory:
    """Run this module for a case in a process of its own."""
    words = [sys.executable, "-m", "regard.benchmarks.memory", case, side, "--against", against]
    words += [] if n is None else ["--n", str(n)]
    words += ["--quick"] if quick else []
    done = subprocess.run(  # noqa: S603
        words,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(PROMPT if prompt else {})},
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise RegardError(f"the memory of {case} ({side}) could not be measured: {last}")
    return Memory(**json.loads(done.stdout.splitlines()[-1]))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    from regard.benchmarks.attention import find

    parser = argparse.ArgumentParser(description="Peak memory of one side of a case.")
    parser.add_argument("case", help="its name, as `regard bench attention` prints it")
    parser.add_argument("side", choices=["ours", "theirs"])
    parser.add_argument("--against", default="", help="the peer; by default the case's first")
    parser.add_argument("--n", type=int, help="another size than the case's own")
    parser.add_argument("--quick", action="store_true", help="the small cases")
    asked = parser.parse_args(arguments)
    case = find(asked.case, asked.against, quick=asked.quick)
    n = asked.n or case.n
    case.warm_up(asked.side, n)
    found = probe(lambda: case.work(asked.side, n))
    sys.stdout.write(json.dumps(found._asdict()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
