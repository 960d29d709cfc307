"""`Part`: one function that an exercise asks for, as data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Arguments = tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Part:
    """A function that an exercise asks for.

    `reference` is right, and its name, signature and docstring are those of the starter file.
    `cases` builds the arguments of each call, the smallest first; all sizes of a case differ.
    `wrong` maps a sentence that names a fault to a function with this fault.
    """

    reference: Callable[..., Any]
    cases: Callable[[], Sequence[Arguments]]
    wrong: Mapping[str, Callable[..., Any]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the function."""
        return self.reference.__name__


def numbers(*shape: int, seed: int = 0) -> Tensor:
    """Return normal numbers, the same in every process."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))
