"""The parts of an attention benchmark: inputs, two implementations, and an aim."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.peers import missing
from regard.attention.kernels import choose
from regard.core.errors import RegardError

#: Largest difference of two answers, as a share of the largest number in them.
TOLERANCE = 1e-4
#: The size of the call that loads and compiles what a probe of memory needs.
SMALL = 128


class Side(NamedTuple):
    """One implementation: a function of the output, and the tensors with gradients in training."""

    output: Callable[[], Tensor]
    of: Sequence[Tensor] = ()


class Problem(NamedTuple):
    """Inputs of one size and both implementations, created (and imported) when called."""

    ours: Callable[[], Side]
    theirs: Callable[[], Side] | None
    upstream: Tensor | None = None


@dataclass(frozen=True)
class Aim:
    """An aim of regard: each number is a bound; 0 is none.

    ``faster`` is the least ratio of the peer's time to regard's, ``leaner`` of memory (``total``:
    with inputs and outputs); ``mb`` the most memory without the inputs; ``exponent`` the largest
    exponent of time and memory; ``seconds`` the longest time.

    >>> Aim(faster=15, mb=64).says, Aim(faster=1 / 1.05).says
    ('≥ 15× faster, ≤ 64 MB', '≤ 1.05× the time')
    """

    faster: float = 0.0
    leaner: float = 0.0
    mb: float = 0.0
    exponent: float = 0.0
    seconds: float = 0.0
    total: bool = False

    @property
    def says(self) -> str:
        """Describe the aim."""
        said = []
        if self.faster:
            said.append(compared(self.faster, "faster", "the time"))
        if self.leaner:
            what = "the memory, inputs included" if self.total else "the memory"
            said.append(compared(self.leaner, "less memory", what))
        said += [f"≤ {self.mb:g} MB"] if self.mb else []
        said += [f"exponent ≤ {self.exponent:g}"] if self.exponent else []
        said += [f"≤ {self.seconds:g} s"] if self.seconds else []
        return ", ".join(said)

    def reached(self, row: dict[str, Any]) -> bool | None:
        """Return whether a row reaches the aim; None if one of its figures was not measured."""
        memory_of = "total_mb" if self.total else "mb"
        theirs, ours = row.get(f"theirs_{memory_of}"), row.get(f"ours_{memory_of}")
        leaner = theirs / max(ours, 1e-3) if theirs is not None and ours is not None else None
        grows = [row.get("time_exponent"), row.get("memory_exponent")]
        at_least = [(row["time_ratio"], self.faster), (leaner, self.leaner)]
        at_most = [(row["ours_mb"], self.mb), (row["ours_s"], self.seconds)]
        at_most += [(figure, self.exponent) for figure in grows]
        answers = [
            None if figure is None else figure >= bound for figure, bound in at_least if bound
        ]
        answers += [
            None if figure is None else figure <= bound for figure, bound in at_most if bound
        ]
        if False in answers:
            return False
        return None if None in answers or not answers else True


def compared(ratio: float, more: str, what: str) -> str:
    """Describe a bound on the ratio of the peer to regard."""
    if ratio > 1:
        return f"≥ {ratio:g}× {more}"
    return more if ratio == 1 else f"≤ {1 / ratio:.3g}× {what}"


@dataclass(frozen=True)
class Case:
    """One row of the table.

    ``make`` returns the problem at a size. ``same``: both sides give one answer, which is checked
    before they are timed. ``sizes``: those for the growth of time and memory.
    ``timed`` and ``probed``: whether time and memory are measured. ``tolerance``: the largest
    difference of the answers. ``floor``: the seconds that no implementation can avoid.
    """

    name: str
    against: str
    make: Callable[[int], Problem]
    n: int
    aim: Aim
    trained: bool = True
    same: bool = True
    sizes: Sequence[int] = ()
    timed: bool = True
    probed: bool = True
    cold: bool = False
    tolerance: float = TOLERANCE
    floor: Callable[[], float] | None = None

    @property
    def skipped(self) -> bool:
        """Return whether the peer is not installed."""
        return bool(self.against) and missing(self.against)

    def work(self, side: str, n: int | None = None) -> Callable[[], Sequence[Tensor]]:
        """Return a call of one side: its output and, if trained, its gradients."""
        torch.manual_seed(0)
        return self.work_of(self.make(n or self.n), side)

    def work_of(self, problem: Problem, side: str) -> Callable[[], Sequence[Tensor]]:
        """Return the same for a problem that both sides share."""
        made = problem.ours if side == "ours" else problem.theirs
        if made is None:
            raise RegardError(f"{self.name} is measured by itself: it has no other side")
        output, of = made()
        if not self.trained:
            return torch.no_grad()(lambda: [output()])
        upstream = problem.upstream

        def both() -> Sequence[Tensor]:
            found = output()
            parts = torch.autograd.grad(found, of, upstream, allow_unused=True)
            return [found, *(x for x in parts if x is not None)]

        return both

    def warm_up(self, side: str, n: int) -> None:
        """Return a small call that takes the path of a call of size ``n``."""
        small = min(n, SMALL)
        with planned_as(small / n):
            self.work(side, small)()

    def check(self, ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
        """Raise an error if the answers differ."""
        for place, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            apart = difference(a.detach(), b.detach())
            if not apart <= self.tolerance:
                what = f"gradient {place}" if place else "output"
                raise RegardError(
                    f"{self.name}: the {what} of regard and of {self.against} differ by {apart:.1e}"
                    ", so their times cannot be compared"
                )


@contextmanager
def planned_as(share: float) -> Iterator[None]:
    """Plan a call with this share of another call's queries and keys like that call."""
    known, pairs = choose.constants(), share**2
    smaller = replace(
        known,
        exact_pairs=int(known.exact_pairs * pairs),
        fused_pairs=int(known.fused_pairs * pairs),
        compile_hidden=math.ceil(known.compile_hidden * pairs),
    )
    with choose.using(smaller):
        yield


def difference(a: Tensor, b: Tensor) -> float:
    """Return the largest difference relative to the largest number; infinity if shapes differ.

    >>> difference(torch.tensor([1.0, 10.0]), torch.tensor([1.0, 10.1])) < 0.011
    True
    """
    if a.shape != b.shape:
        return math.inf
    if not a.numel():
        return 0.0
    return float((a.float() - b.float()).abs().max() / b.float().abs().max().clamp(min=1e-3))
