"""Peak memory of a call: the rise of the process's memory above its previous level.

The C library keeps some freed memory (glibc: up to 64 MB at the top of its heap, and the gaps
below), and this counts. A process started with `PROMPT` in its environment returns blocks of 128
KB and more at once, so that the peak is the memory that the call holds.
"""

from collections.abc import Callable
from typing import NamedTuple

from regard.core.memory import forget_peak, peak_mb, resident_mb

#: Glibc's default, but fixed, and no huge pages, which round a block up.
PROMPT = {"MALLOC_MMAP_THRESHOLD_": str(2**17), "THP_MEM_ALLOC_ENABLE": "0"}


class Memory(NamedTuple):
    """The peak memory of a call in MB, without and with its inputs."""

    extra_mb: float
    total_mb: float


def probe(make: Callable[[], Callable[[], object]], device: str = "cpu") -> Memory:
    """Return the memory of one call, after its inputs are made.

    ``make`` returns the call, which holds its inputs. Warm up first. On a GPU, the memory is that
    allocated by torch.
    """
    if device == "cuda":
        return _probe_gpu(make)
    forget_peak()
    empty = resident_mb()
    work = make()
    forgets = forget_peak()
    full, begin = resident_mb(), peak_mb()
    work()
    top = peak_mb()
    if not forgets:  # only the rise of the all-time peak is visible
        return Memory(top - begin, top - min(begin, empty))
    return Memory(max(top - full, 0.0), max(top - empty, 0.0))


def _probe_gpu(make: Callable[[], Callable[[], object]]) -> Memory:
    import torch

    empty = torch.cuda.memory_allocated()
    work = make()
    full = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    work()
    torch.cuda.synchronize()
    top = torch.cuda.max_memory_allocated()
    return Memory((top - full) / 1e6, (top - empty) / 1e6)
