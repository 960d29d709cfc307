"""Memory of this process: how much it took, and glibc told to keep what it frees."""

import ctypes
import platform
import sys
from pathlib import Path

M_TRIM_THRESHOLD = -1  # glibc's malloc.h
M_MMAP_MAX = -4
TWO_GIGABYTES = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask glibc to reuse large blocks instead of handing them back to the system.

    Each training step frees and takes the same large blocks; handed back, every page of them is
    faulted in anew. Worth 1.25× on a quiet machine. It changes the whole process for good, so only
    programs of our own call it (the command line, the workers of a comparison), never an import.
    Says whether it was done; elsewhere than glibc nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_MAX, 0)) and bool(mallopt(M_TRIM_THRESHOLD, TWO_GIGABYTES))


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
