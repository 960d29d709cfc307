"""Peak memory of a call: how far what the process holds rises above what it held before.

The C library keeps some of what a call frees (glibc: up to 64 MB at the top of its heap, and the
gaps below), and it counts. A process started with `PROMPT` in its environment gives blocks of 128
KB and more back at once, so that the peak is what the call holds.
"""

import ctypes
import gc
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEGABYTE = 1e6
PROMPT = {"MALLOC_MMAP_THRESHOLD_": str(2**17)}  # glibc's own, but no longer growing


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
