"""Laws, their verdicts, and the helpers of their checks."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn

from regard.core.errors import RegardError
from regard.core.plugins import one_line

Outcome = Literal["holds", "fails", "does not apply"]
S = TypeVar("S")
EXACT, CLOSE = 1e-12, 1e-10  # float64 tolerances of outputs, and of gradients, which sum more
SINGLE = 2e-5  # the minimum tolerance for a subject that computes in float32
#: Lengths around the ends of blocks, where errors occur that short texts do not reveal.
LONG = (65, 130, 300)
_least: ContextVar[float] = ContextVar("minimum tolerance of `near`", default=0.0)


@dataclass(frozen=True)
class Verdict:
    """The result of a law: ``message`` and ``numbers`` report what was measured."""

    law: str
    outcome: Outcome
    message: str
    numbers: dict[str, float] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Return the verdict as JSON; numbers that are not finite are strings."""
        numbers = {
            key: value if torch.tensor(value).isfinite() else str(value)
            for key, value in self.numbers.items()
        }
        return {"law": self.law, "outcome": self.outcome, "says": self.message, "numbers": numbers}


@dataclass(frozen=True)
class Measurement:
    """The measurements of a check that passed."""

    message: str
    numbers: dict[str, float] = field(default_factory=dict)


class BrokenError(Exception):
    """Raised by a check if the law does not hold."""

    def __init__(self, message: str, **numbers: float) -> None:
        super().__init__(message)
        self.numbers = numbers


class InapplicableError(Exception):
    """Raised by a check if the law does not apply to the subject."""


@dataclass(frozen=True)
class Law(Generic[S]):
    """A law: its description, and a check that returns a `Measurement` or raises `BrokenError`.

    ``long``: it checks texts of up to 300 words, which takes longer. It does not apply to a subject
    that refuses them with a RegardError.
    """

    description: str
    check: Callable[[S], Measurement]
    long: bool = False

    def judge(self, name: str, subject: S, seed: int = 0) -> Verdict:
        """Run the check with this seed; any exception of the subject breaks the law."""
        single = getattr(subject, "dtype", torch.float64) == torch.float32
        token = _least.set(SINGLE if single else 0.0)
        try:
            with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a law of its own checks for them
                torch.manual_seed(seed)
                result = self.check(subject)
        except BrokenError as broken:
            return Verdict(name, "fails", str(broken), broken.numbers)
        except InapplicableError as reason:
            return Verdict(name, "does not apply", str(reason))
        except Exception as error:  # whatever a user's code raises
            if self.long and isinstance(error, RegardError):
                return Verdict(name, "does not apply", f"it refuses long texts: {error}")
            return Verdict(name, "fails", f"raised {one_line(error)}")
        finally:
            _least.reset(token)
        return Verdict(name, "holds", result.message, result.numbers)


def near(what: str, actual: Tensor, expected: Tensor, most: float) -> float:
    """Return the largest difference of two tensors; raise `BrokenError` above the limit.

    The limit is ``most``, times the largest absolute value of ``expected`` if that exceeds 1. While
    a subject of float32 is judged, the limit is at least `SINGLE`, except for equality (0).

    >>> near("tiles changed a score", torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]), 1e-6)
    Traceback (most recent call last):
    regard.conformance.law.BrokenError: tiles changed a score by 0.5 (at most 2.5e-06)
    """
    if actual.shape != expected.shape:
        raise BrokenError(f"{what}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}")
    if not actual.numel():
        return 0.0
    actual, expected = actual.detach().double(), expected.detach().double()
    if not bool(actual.isfinite().all()):
        raise BrokenError(f"{what}: got {nonfinite_kind(actual)}", difference=float("inf"))
    gap = (actual - expected).abs().max().item()
    limit = (most and max(most, _least.get())) * max(1.0, expected.abs().max().item())
    if not gap <= limit:
        raise BrokenError(f"{what} by {gap:.2g} (at most {limit:.2g})", difference=gap, limit=limit)
    return gap


def cut_texts(x: Tensor, cuts: Sequence[int]) -> Tensor:
    """Return a copy of a text (1, …, n, width) for each cut, with other words from the cut on."""
    texts = x.detach().repeat(len(cuts), *[1] * (x.ndim - 1))
    for text, cut in zip(texts, cuts, strict=True):
        text[..., cut:, :] = 5 * torch.randn_like(text[..., cut:, :])
    return texts


def worst(gaps: Sequence[float], limit: float) -> Measurement:
    """Return the largest of the differences as a measurement."""
    most = max(gaps, default=0.0)
    message = f"largest difference {most:.1g}" if most else "identical bits"
    return Measurement(message, {"difference": most, "limit": limit})


def same(what: str, actual: Tensor, expected: Tensor) -> None:
    """Raise `BrokenError` if any bit differs."""
    if actual.shape != expected.shape or not torch.equal(actual, expected):
        near(what, actual, expected, 0.0)
        raise BrokenError(f"{what}: the bits differ")


def finite(what: str, *tensors: Tensor) -> None:
    """Raise `BrokenError` for NaN and infinity."""
    for x in tensors:
        if not bool(x.isfinite().all()):
            raise BrokenError(f"{what}: got {nonfinite_kind(x)}")


def zero(what: str, *tensors: Tensor) -> None:
    """Raise `BrokenError` for anything but zeros."""
    finite(what, *tensors)
    for x in tensors:
        if x.numel() and not bool((x == 0).all()):
            most = x.detach().double().abs().max().item()
            raise BrokenError(f"{what}: got {most:.2g}, not 0", most=most)


def nonfinite_kind(x: Tensor) -> str:
    """Return "NaN" or "infinity", whichever the tensor contains."""
    return "NaN" if bool(x.isnan().any()) else "infinity"


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    """Return the gradients of a weighted sum of the output; zeros for unused inputs."""
    weights = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view(output.shape)
    if not output.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    return slopes_of(output, inputs, weights)


def compare_slopes(
    f: Callable[..., Tensor], inputs: Mapping[str, Tensor], module: nn.Module | None = None
) -> Measurement:
    """Compare gradients with finite differences along random directions, in float64.

    Compares v·∇Σ u·f(x) with (Σ u·f(x + εv) − Σ u·f(x − εv)) / 2ε, twice for each input and each
    parameter of the ``module`` that f computes with, like the fast mode of
    `torch.autograd.gradcheck`, and names the one that is wrong. All are changed in place and
    restored.
    """
    named = {} if module is None else dict(module.requires_grad_().named_parameters())
    tensors, step, most, gaps = [*inputs.values(), *named.values()], 1e-6, 1e-5, []
    output = f(*inputs.values())
    upstream = torch.randn_like(output)
    computed = slopes_of(output, tensors, upstream)
    for name, x, gradient in zip([*inputs, *named], tensors, computed, strict=True):
        before = x.detach().clone()
        for _ in range(2):
            direction, sums = torch.randn_like(x), []
            with torch.no_grad():
                for change in (step * direction, -step * direction):
                    x.copy_(before + change)
                    sums.append((f(*inputs.values()) * upstream).sum())
                x.copy_(before)
            high, low = sums
            slope, actual = (high - low) / (2 * step), (gradient * direction).sum()
            what = (
                f"the gradient of {name} is {actual.item():.6g}, the finite difference "
                f"{slope.item():.6g}: off"
            )
            gaps.append(near(what, actual, slope, most))
    return worst(gaps, most)


def slopes_of(output: Tensor, inputs: Sequence[Tensor], upstream: Tensor) -> list[Tensor]:
    """Return the gradients of an output, given its own gradient; zeros for unused inputs."""
    slopes = torch.autograd.grad(output, inputs, upstream, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(slopes, inputs, strict=True)]


@contextmanager
def no_warnings() -> Iterator[None]:
    """Raise `BrokenError` for any warning inside."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    if caught:
        words = str(caught[0].message).splitlines()[0]
        raise BrokenError(f"{caught[0].category.__name__}: {words}")
