"""Functions that run compiled if the plan requires it: the same formula in one pass over memory.

torch.compile needs a C++ compiler and takes seconds the first time, so a plan requires it from a
fixed amount of work on, and equal calls always run in the same way.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])

_wanted: ContextVar[bool] = ContextVar("regard_compiled", default=False)


@contextmanager
def compiling(wanted: bool) -> Iterator[None]:
    """Set whether strips inside the block run compiled, by torch.compile or in C++."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> bool:
    """Return whether strips run compiled; never inside another graph."""
    return not torch.compiler.is_compiling() and _wanted.get()


def quick(function: F) -> F:
    """Return the function, compiled if `wanted`; its arguments are tensors of any size."""
    return compile_once(function) if wanted() else function


@cache
def compile_once(function: F, *, whole: bool = True) -> F:
    """Return a function compiled, once per process: on a CPU for inputs of all sizes.

    Without ``whole``, for a user's function, parts that cannot be compiled run eagerly. On a GPU it
    is compiled for the first shapes that it gets, which strips of one call share, and again for all
    sizes when others follow.
    """
    dynamic = None if torch.cuda.is_available() else True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch's own, when its compiler loads
        return cast(F, torch.compile(function, dynamic=dynamic, fullgraph=whole))


def can_compile(device: str = "cpu") -> bool:
    """Return whether torch.compile works: a C++ compiler, and Triton for a GPU."""
    if device == "cuda" and find_spec("triton") is None:
        return False
    return compiler() is not None


def compiler() -> str | None:
    """Return the path of a C++ compiler, or None."""
    return next((path for x in ("g++", "clang++", "c++") if (path := shutil.which(x))), None)
