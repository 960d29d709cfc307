"""`Part`: one function that an exercise asks for, as data."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

Arguments = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A function that an exercise asks for.

    `reference` is right, and its name, signature and docstring are those of the starter file.
    `cases` builds the arguments of each call, the smallest first; all sizes of a case differ.
    `wrong` maps a sentence that names a fault to the change of the reference's text that makes it.
    """

    reference: Callable[..., Any]
    cases: Callable[[], Sequence[Arguments]]
    wrong: Mapping[str, tuple[str, ...]]

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return self.reference.__name__

    @cached_property
    def variants(self) -> dict[str, Callable[..., Any]]:
        """Return the function with the fault that each sentence of `wrong` names."""
        return {says: changed(self.reference, *change) for says, change in self.wrong.items()}


def changed(function: Callable[..., Any], *change: str) -> Callable[..., Any]:
    """Return a function of regard after a change of its text: old, new, and further such pairs.

    Each old text must occur exactly once. A name in the new text means what it means in the
    function's module. Only regard's own source is run here, never a student's.
    """
    text = inspect.getsource(function)
    for old, new in zip(change[::2], change[1::2], strict=True):
        assert text.count(old) == 1, f"{old!r} must occur once in {function.__name__}"
        text = text.replace(old, new)
    made: dict[str, Any] = {}
    exec(text, {**vars(sys.modules[function.__module__])}, made)  # noqa: S102, regard's own source
    return made[function.__name__]  # type: ignore[no-any-return]


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers, the same in every process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
