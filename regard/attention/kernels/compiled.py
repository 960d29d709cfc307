"""Functions that run compiled where a plan says so: the same formula in one pass over memory.

torch.compile needs a C++ compiler and seconds the first time, so a plan asks for it from a fixed
amount of work on, and the same call always runs the same way.
"""

import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar, cast

import torch

F = TypeVar("F", bound=Callable[..., Any])

_wanted: ContextVar[bool] = ContextVar("regard_compiled", default=False)


@contextmanager
def compiling(wanted: bool) -> Iterator[None]:
    """Whether strips inside the block run compiled."""
    token = _wanted.set(wanted)
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted() -> bool:
    """Whether they do; not in a graph that someone else compiles."""
    return not torch.compiler.is_compiling() and _wanted.get()


def quick(function: F) -> F:
    """The function, compiled where that is wanted; it knows tensors alone, of any sizes."""
    return compile_once(function) if wanted() else function


@cache
def compile_once(function: F) -> F:
    """The function compiled, for inputs of every size; one for each function of a process."""
    return _compile(function, whole=True)


@cache
def compile_leniently(function: F) -> F:
    """The same for a user's function: what cannot be compiled in it runs as it stands."""
    return _compile(function, whole=False)


def _compile(function: F, *, whole: bool) -> F:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch's own, as its compiler loads
        return cast(F, torch.compile(function, dynamic=True, fullgraph=whole))


def can_compile() -> bool:
    """Whether there is a C++ compiler, which torch.compile needs on a CPU."""
    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
