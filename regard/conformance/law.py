"""What a law is, what it finds, and how a check says so."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from regard.plugins import one_line

Outcome = Literal["holds", "fails", "does not apply"]
S = TypeVar("S")
EXACT, CLOSE = 1e-12, 1e-10  # in float64: of outputs, and of gradients through more sums


@dataclass(frozen=True)
class Verdict:
    """What a law found: ``says`` in words what was measured, ``numbers`` the same as numbers."""

    law: str
    outcome: Outcome
    says: str
    numbers: dict[str, float] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The verdict as JSON; a number that is not finite is given as a word."""
        numbers = {
            key: value if torch.tensor(value).isfinite() else str(value)
            for key, value in self.numbers.items()
        }
        return {"law": self.law, "outcome": self.outcome, "says": self.says, "numbers": numbers}


@dataclass(frozen=True)
class Measured:
    """What a check that went well measured."""

    says: str
    numbers: dict[str, float] = field(default_factory=dict)


class BrokenError(Exception):
    """A check found the law broken."""

    def __init__(self, says: str, **numbers: float) -> None:
        super().__init__(says)
        self.numbers = numbers


class InapplicableError(Exception):
    """The law says nothing about this subject, for the reason given."""


@dataclass(frozen=True)
class Law(Generic[S]):
    """A law in words, and the check: it gives what it measured, or raises what it found."""

    says: str
    check: Callable[[S], Measured]

    def judge(self, name: str, subject: S, seed: int = 0) -> Verdict:
        """The check's verdict, by this seed; whatever the subject raises breaks the law."""
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # one law is about them
                torch.manual_seed(seed)
                found = self.check(subject)
        except BrokenError as broken:
            return Verdict(name, "fails", str(broken), broken.numbers)
        except InapplicableError as reason:
            return Verdict(name, "does not apply", str(reason))
        except Exception as error:  # whatever a user's code raises
            return Verdict(name, "fails", f"raised {one_line(error)}")
        return Verdict(name, "holds", found.says, found.numbers)


def near(what: str, ours: Tensor, theirs: Tensor, most: float) -> float:
    """The largest difference of two tensors, at most ``most`` times their size where that is > 1.

    >>> near("tiles changed a score", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 1e-6)
    Traceback (most recent call last):
    regard.conformance.law.BrokenError: tiles changed a score by 0.5 (at most 2.5e-06)
    """
    if ours.shape != theirs.shape:
        raise BrokenError(f"{what}: the shape is {tuple(ours.shape)}, not {tuple(theirs.shape)}")
    if not ours.numel():
        return 0.0
    ours, theirs = ours.detach().double(), theirs.detach().double()
    if not bool(ours.isfinite().all()):
        raise BrokenError(f"{what}: {unlike(ours)} came out", difference=float("inf"))
    gap = (ours - theirs).abs().max().item()
    limit = most * max(1.0, theirs.abs().max().item())
    if not gap <= limit:
        raise BrokenError(f"{what} by {gap:.2g} (at most {limit:.2g})", difference=gap, limit=limit)
    return gap


def worst(gaps: Sequence[float], limit: float) -> Measured:
    """The largest of the differences that were found small enough."""
    most = max(gaps, default=0.0)
    says = f"differs by {most:.1g}" if most else "the same bits"
    return Measured(says, {"difference": most, "limit": limit})


def same(what: str, ours: Tensor, theirs: Tensor) -> None:
    """Refuse any different bit."""
    if ours.shape != theirs.shape or not torch.equal(ours, theirs):
        near(what, ours, theirs, 0.0)
        raise BrokenError(f"{what}: the bits differ")


def finite(what: str, *tensors: Tensor) -> None:
    """Refuse NaN and infinity."""
    for x in tensors:
        if not bool(x.isfinite().all()):
            raise BrokenError(f"{what}: {unlike(x)} came out")


def zero(what: str, *tensors: Tensor) -> None:
    """Refuse anything but zeros."""
    finite(what, *tensors)
    for x in tensors:
        if x.numel() and not bool((x == 0).all()):
            most = x.detach().double().abs().max().item()
            raise BrokenError(f"{what}: {most:.2g} came out, not 0", most=most)


def unlike(x: Tensor) -> str:
    """NaN or infinity, whichever a tensor holds."""
    return "NaN" if bool(x.isnan().any()) else "infinity"


def gradients(output: Tensor, of: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of an uneven sum of the output; zeros where it does not reach."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in of]
    return filled(torch.autograd.grad((output * weights).sum(), of, allow_unused=True), of)


def slopes(f: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Measured:
    """Autograd's gradient along a random direction, beside the slope of f there, in float64.

    (Σ u·f(x + εv) − Σ u·f(x − εv)) / 2ε beside v·∇Σ u·f(x), for each input by itself, twice:
    what `torch.autograd.gradcheck` does in its fast mode, with words for what it finds.
    """
    tensors, step, most, gaps = list(inputs.values()), 1e-6, 1e-5, []
    output = f(*tensors)
    upstream = torch.randn_like(output)
    found = filled(torch.autograd.grad(output, tensors, upstream, allow_unused=True), tensors)
    for i, (name, x) in enumerate(inputs.items()):
        for _ in range(2):
            along = torch.randn_like(x)
            with torch.no_grad():
                high, low = (
                    (f(*tensors[:i], x + by, *tensors[i + 1 :]) * upstream).sum()
                    for by in (step * along, -step * along)
                )
            slope, ours = (high - low) / (2 * step), (found[i] * along).sum()
            what = f"to {name} the gradient is {ours.item():.6g}, the slope {slope.item():.6g}: off"
            gaps.append(near(what, ours, slope, most))
    return worst(gaps, most)


def filled(found: Sequence[Tensor | None], of: Sequence[Tensor]) -> list[Tensor]:
    """Gradients, zeros where there is none."""
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, of, strict=True)]


@contextmanager
def silence() -> Iterator[None]:
    """Refuse any warning inside."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if caught:
        words = str(caught[0].message).splitlines()[0]
        raise BrokenError(f"{caught[0].category.__name__}: {words}")
