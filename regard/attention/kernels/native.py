"""Kernels in C++ for a CPU, compiled in a second when a call of enough work first needs them.

The source is a file of this package; the library is kept in regard's configuration folder and made
again for another source, other instructions of the processor, or another version of torch. Its
threads are torch's own: the symbols of OpenMP are those that torch has loaded.
"""

import ctypes
import hashlib
import math
import os
import platform
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from regard.attention.kernels import choose
from regard.attention.kernels.compiled import compiler, wanted
from regard.attention.tracing import on_cpu
from regard.core.atomic_io import configuration

#: Instructions by torch's name for them; a machine without has those that its compiler assumes.
INSTRUCTIONS = {
    "AVX2": ("-mavx2", "-mfma", "-mtune=native"),
    "AVX512": ("-mavx2", "-mfma", "-mavx512f", "-mavx512dq", "-mavx512vl", "-mtune=native"),
}
FLAGS = ("-O3", "-std=c++17", "-fPIC", "-fno-math-errno", "-fno-trapping-math")
PATIENCE = 120.0  # seconds


@cache
def library(name: str) -> ctypes.CDLL | None:
    """Return the library of ``name.cpp``, or None without a compiler.

    If the compiler fails, warn with the first line that it said and return None.
    """
    source = Path(__file__).with_name(f"{name}.cpp")
    flags = [*FLAGS, *INSTRUCTIONS.get(torch.backends.cpu.get_cpu_capability(), ())]
    if platform.system() == "Linux":
        flags.append("-fopenmp")
    texts = (x.read_text(encoding="utf-8") for x in (source, source.with_name("functions.h")))
    made_of = [*texts, *flags, platform.platform(), torch.__version__]
    digest = hashlib.sha256("\0".join(made_of).encode()).hexdigest()[:16]
    try:
        path = configuration() / "compiled" / f"{name}-{digest}.so"
        if not path.exists():
            if (command := compiler()) is None:
                return None
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            compile_to(command, source, flags, path)
        return ctypes.CDLL(str(path))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        told = getattr(error, "stderr", "") or str(error)
        first = next(iter(told.strip().splitlines()), type(error).__name__)
        warnings.warn(
            f"{source.name} could not be compiled, so slower operations of torch run: {first}",
            stacklevel=2,
        )
        return None


def compile_to(command: str, source: Path, flags: list[str], path: Path) -> None:
    """Compile a source to a library at ``path``, which other processes see when it is complete.

    Raises: CalledProcessError with what the compiler said, OSError if it cannot be started.
    """
    part, aside = (path.with_name(f"{path.name}.{os.getpid()}.{x}") for x in ("o", "so"))
    # Two steps: a link without -fopenmp takes the library that torch has loaded.
    steps = ["-c", *flags, str(source), "-o", str(part)], ["-shared", str(part), "-o", str(aside)]
    try:
        for words in steps:
            subprocess.run(  # noqa: S603
                [command, *words], check=True, capture_output=True, text=True, timeout=PATIENCE
            )
        os.replace(aside, path)
    finally:
        part.unlink(missing_ok=True)
        aside.unlink(missing_ok=True)


def call(function: str, of: ctypes.CDLL, *arguments: Tensor | int | float | None) -> None:
    """Call the function for the dtype of all tensors: pointers, integers and numbers."""
    first = arguments[0]
    assert isinstance(first, Tensor)
    assert all(x.dtype == first.dtype for x in arguments if isinstance(x, Tensor))
    kind = "double" if first.dtype == torch.float64 else "float"
    given = [
        ctypes.c_void_p(None if x is None else x.data_ptr())
        if x is None or isinstance(x, Tensor)
        else ctypes.c_double(x)
        if isinstance(x, float)
        else ctypes.c_long(x)
        for x in arguments
    ]
    getattr(of, f"{function}_{kind}")(*given)


@contextmanager
def flushing(x: Tensor, pairs: float = math.inf) -> Iterator[None]:
    """Compute with 0 in place of numbers below the smallest normal one, in all threads of torch.

    Weights of far keys and means of old gradients are among them (below 1e-38 in float32), where
    an Intel processor takes a hundred times as long. Calls of few pairs stay as they are.
    """
    of = library("denormals") if on_cpu(x) and pairs >= choose.constants().exact_pairs else None
    if of is None:
        yield
        return
    of.flush(ctypes.c_long(1))
    try:
        yield
    finally:
        of.flush(ctypes.c_long(0))


def in_cpp(x: Tensor) -> bool:
    """Return whether the kernels in C++ compute with tensors like x."""
    return on_cpu(x) and x.dtype in (torch.float32, torch.float64)


def library_for(name: str, x: Tensor, numbers: int) -> ctypes.CDLL | None:
    """Return the library where it computes with tensors like x and so many numbers pay, or None.

    A strip has the library whenever its whole call is `wanted` compiled.
    """
    if choose.asked() == "exact" or not in_cpp(x):
        return None
    least = choose.constants().native_hidden  # a file: not in a graph
    return library(name) if least and (least <= numbers or wanted()) else None


def of_rows(x: Tensor) -> ctypes.CDLL | None:
    """Return the library of ``rows.cpp`` where it computes rows like x, else None."""
    return library("rows") if wanted() and in_cpp(x) else None


def per_row(number: Tensor | float, x: Tensor) -> Tensor:
    """Return a number for each row of x, as C++ reads it."""
    return torch.as_tensor(number, dtype=x.dtype).expand(*x.shape[:-1], 1).contiguous()


def rows_and_columns(x: Tensor) -> tuple[int, int]:
    """Return the numbers of rows and of columns."""
    return x.shape[:-1].numel(), x.shape[-1]


def row_by_row(
    function: str, of: ctypes.CDLL, *given: Tensor | None, numbers: Sequence[int] = ()
) -> Tensor:
    """Return the rows that a function of ``rows.cpp`` writes, of the shape of the first tensor."""
    first = given[0]
    assert first is not None
    result = torch.empty_like(first, memory_format=torch.contiguous_format)
    tensors = (x if x is None else x.contiguous() for x in given)
    call(function, of, *tensors, result, *rows_and_columns(result), *numbers)
    return result
