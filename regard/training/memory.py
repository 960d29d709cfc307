"""Memory of this process: how much it took, and glibc told what to keep of what it frees."""

import ctypes
import os
import platform
import sys
from pathlib import Path

M_TRIM_THRESHOLD = -1  # glibc's malloc.h
M_MMAP_MAX = -4
TWO_GIGABYTES = 2**31 - 1
PRIMITIVES = 128  # of oneDNN that are kept: several steps' worth


def keep_freed_memory() -> bool:
    """Ask glibc to reuse large blocks instead of handing them back to the system.

    Each training step frees and takes the same large blocks; handed back, every page of them is
    faulted in anew. Worth 1.25× on a quiet machine. It changes the whole process for good, so only
    programs of our own call it (the command line, the workers of a comparison), never an import.
    Says whether it was done; elsewhere than glibc nothing happens.

    Where batches differ in shape, oneDNN makes bfloat16 products anew for each and keeps 1,024 of
    them, some 0.7 MB each, between those blocks: here it keeps fewer, if it has made none yet.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", str(PRIMITIVES))
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, TWO_GIGABYTES))


def trim() -> bool:
    """Hand free pages back to the system, wherever in glibc's heap they lie; says whether it did.

    Blocks of ever other sizes do not fit the holes that earlier ones left, and the heap grows.
    """
    malloc_trim = None
    if platform.libc_ver()[0] == "glibc":
        malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return malloc_trim is not None and bool(malloc_trim(0))


def peak_mb() -> float:
    """The most memory this process has held so far, in MB (10⁶ bytes); 0 where nobody counts.

    Linux tells of this process alone; `getrusage` elsewhere may start from the parent's peak.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    if sys.platform == "win32":
        return 0.0
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
