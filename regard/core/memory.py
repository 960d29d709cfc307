"""Memory, processors and parent of this process, and settings of glibc's allocator."""

import ctypes
import gc
import os
import platform
import signal
import sys
import threading
from pathlib import Path

FREE = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")  # a container's memory: limit and use
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEGABYTE = 1e6
M_TRIM_THRESHOLD = -1  # glibc's malloc.h
M_MMAP_MAX = -4
TWO_GIGABYTES = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask glibc to reuse large blocks instead of handing them back to the system.

    Each training step frees and allocates the same large blocks. If they are handed back, each of
    their pages causes a page fault; keeping them is 1.25× faster on a quiet machine. The setting is
    permanent for the process, so only regard's programs call this (the command line, the workers of
    a comparison), never an import. Return whether it was done; without glibc nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, TWO_GIGABYTES))


def trim() -> bool:
    """Return free pages of glibc's heap to the system; return whether any were released.

    Blocks of changing sizes do not fit the holes of earlier ones, so the heap grows.
    """
    release = None
    if platform.libc_ver()[0] == "glibc":
        release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return release is not None and bool(release(0))


def resident_mb() -> float:
    """Return the memory of the process now, in MB (10⁶ bytes)."""
    return _of(STATUS, "VmRSS") or peak_mb()


def peak_mb() -> float:
    """Return the peak memory in MB since `forget_peak`, or ever if unsupported; 0 if unknown.

    Linux reports this process alone; elsewhere `getrusage` may start from the parent's peak.
    """
    if peak := _of(STATUS, "VmHWM"):
        return peak
    if sys.platform == "win32":
        return 0.0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE


def forget_peak() -> bool:
    """Release free memory and reset the peak; return whether that is supported (Linux)."""
    gc.collect()
    trim()
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return _of(STATUS, "VmHWM") > 0


def free_mb(device: str = "cpu") -> float:
    """Return the memory available to this process, with swap, in MB; 0 if unknown.

    In a container with less memory, that of the container; for "cuda", the GPU's.
    """
    if device == "cuda":
        import torch

        return torch.cuda.mem_get_info()[0] / MEGABYTE if torch.cuda.is_available() else 0.0
    bounds = [_of(FREE, "MemAvailable") + _of(FREE, "SwapFree")]
    try:
        most, now = (
            (GROUP / f"memory.{what}").read_text(encoding="ascii").strip()
            for what in ("max", "current")
        )
        cached = _plain(GROUP / "memory.stat", "inactive_file")
        bounds.append((int(most) - int(now) + cached) / MEGABYTE)
    except (OSError, ValueError):  # no container, or no limit
        pass
    return max(min(bounds), 0.0) if bounds[0] else 0.0


def _plain(path: Path, name: str) -> int:
    """Return the number of a line ``name number``; 0 where there is none."""
    lines = [line.split() for line in path.read_text(encoding="ascii").splitlines()]
    return next((int(line[1]) for line in lines if line[:1] == [name]), 0)


def _of(path: Path, name: str) -> float:
    """Return a line ``name: number kB`` of a file in MB; 0 where there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return 0.0
    fields = [line.split()[1] for line in text.splitlines() if line.startswith(f"{name}:")]
    return int(fields[0]) * 1024 / MEGABYTE if fields else 0.0


def follow_parent() -> None:
    """Leave Ctrl-C to the parent of this worker process, and exit when the parent dies."""
    from multiprocessing import connection, parent_process

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def cores() -> int:
    """Return the number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
