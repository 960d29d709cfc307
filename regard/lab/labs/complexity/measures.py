"""Counts and measurements of the lab ``complexity``."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple, Self

import torch
from pydantic import BeforeValidator, Field, model_validator
from torch import nn

from regard.analysis.cost import operations
from regard.analysis.dependence import layers_between_ends, longest_chain, steps_between_ends
from regard.analysis.growth import exponent
from regard.analysis.memory import PROMPT
from regard.analysis.timing import Interval, in_rounds, interval
from regard.attention import use
from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs.aside import Aside
from regard.lab.labs.complexity.layers import (
    ATTENTIONS,
    LAYERS,
    Convolution,
    Recurrence,
    Size,
    make,
    work,
)
from regard.lab.studies.budget import parse_budget

FORWARD, BOTH = "forward", "forward + backward"
#: Lengths at which chains and paths are measured, with narrow layers, whose gradients are cheap.
CHAINS, PATHS, NARROW = (8, 16, 32, 64), (64, 128, 256, 512), 4
#: torch's attention pads narrower vectors to this width, which would blur the order in d.
NARROWEST = 16
Hear = Callable[[float, str], None]
#: A timed call: forward or with gradients, the layer, n, d.
Call = tuple[str, str, int, int]


def _rising(least: int, value: object) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    assert isinstance(parts, Sequence), "whole numbers with commas between, as in 128,512,2048"
    numbers = tuple(int(str(x)) for x in parts if str(x).strip().isdecimal())
    if len(numbers) != len(parts) or len(numbers) < 2 or list(numbers) != sorted(set(numbers)):
        raise ValueError("two or more whole numbers, rising, commas between, as in 128,512,2048")
    if numbers[0] < least:
        raise ValueError(f"the smallest may be {least}, not {numbers[0]}")
    return numbers


Lengths = Annotated[tuple[int, ...], BeforeValidator(partial(_rising, 2))]
Widths = Annotated[tuple[int, ...], BeforeValidator(partial(_rising, NARROWEST))]


class ComplexitySettings(Settings):
    """The layers, lengths and widths to measure.

    `d`: width of the vectors; `lengths`: each n; `widths` and `kernels`: the d and k over which
    operations are counted, `widths` timed too, at the middle one of `lengths`. `kernel`: places of
    the convolution; `window`: how far the window sees on each side; `rank`: rows that Linformer
    leaves of keys and values; `projections`: attention with its four projections, as a layer of a
    model has it, is timed, else the attention alone; `backward`: gradients are timed too;
    `budget`: of the timing alone, six rounds at least; `seed`: of the inputs and weights.
    """

    d: int = Field(64, ge=NARROWEST)
    lengths: Lengths = (128, 256, 512, 1024, 2048, 4096, 8192)
    widths: Widths = (16, 32, 64, 128, 256)
    kernels: Lengths = (2, 3, 5, 9, 17)
    kernel: int = Field(3, ge=2)
    window: int = Field(64, ge=1)
    rank: int = Field(64, ge=1)
    heads: int = Field(1, ge=1)
    batch: int = Field(1, ge=1)
    projections: bool = True
    backward: bool = True
    memory: bool = True
    budget: str = "20s"
    seed: int = Field(0, ge=0, lt=2**40)

    @property
    def seconds(self) -> float:
        """The budget in seconds. Raises: a budget that is not a time."""
        budget = parse_budget(self.budget)
        if "minutes" not in budget:
            raise RegardError(
                f"budget {self.budget!r}: this lab trains nothing; its budget is a time, as in 30s"
            )
        return float(budget["minutes"]) * 60

    @property
    def middle(self) -> int:
        """The length at which widths and kernels are compared."""
        return self.lengths[len(self.lengths) // 2]

    @property
    def passes(self) -> tuple[str, ...]:
        """Return the name of the timed pass."""
        return (FORWARD, BOTH) if self.backward else (FORWARD,)

    def size(self, n: int, d: int = 0, kernel: int = 0) -> Size:
        """Return the size of one call."""
        return Size(
            n, d or self.d, kernel or self.kernel, self.window, self.rank, self.heads, self.batch
        )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        odd = [d for d in (self.d, *self.widths) if d % self.heads]
        if odd:
            raise RegardError(
                f"heads={self.heads} does not divide a width of {odd[0]}: change heads, d or widths"
            )
        assert self.seconds  # a budget that is not a time is an error
        return self


@dataclass(frozen=True)
class Counted:
    """Multiplications with their additions in one forward pass of one sequence, by layer.

    `over_n`, `over_d` and `over_k` count one head without projections, as the table does; `whole`
    counts self-attention with projections, over n and over d; `layers` counts the timed layers.
    """

    over_n: dict[str, list[float]]
    over_d: dict[str, list[float]]
    over_k: list[float]
    whole: tuple[list[float], list[float]]
    layers: dict[str, list[float]]


class Waiting(NamedTuple):
    """Longest chains at each of `CHAINS`, and layers or steps between ends at each of `PATHS`."""

    chains: dict[str, list[int]]
    paths: dict[str, list[float]]


@dataclass(frozen=True)
class Measured:
    """The counts and measurements; `seconds` of each call, by round."""

    settings: ComplexitySettings
    counted: Counted
    waiting: Waiting
    memory: dict[str, list[float]]
    samples: Mapping[Call, Sequence[float]]

    @property
    def last(self) -> str:
        """The name of the pass to report: with gradients if those are timed."""
        return self.settings.passes[-1]

    @property
    def rounds(self) -> tuple[int, int]:
        """The smallest and the largest number of samples of a call."""
        counts = [len(samples) for samples in self.samples.values()]
        return min(counts), max(counts)

    def times(self, how: str, name: str) -> list[Interval]:
        """Return seconds of a layer at each length."""
        d = self.settings.d
        return [interval(self.samples[how, name, n, d]) for n in self.settings.lengths]

    @property
    def longest(self) -> slice:
        """The lengths from which growth is estimated: the longer half, at least 3."""
        return slice(-max(3, len(self.settings.lengths) // 2), None)

    def grows(self, amounts: Sequence[float]) -> float:
        """Return the exponent of an amount in n, over the longest lengths."""
        return exponent(self.settings.lengths[self.longest], amounts[self.longest])

    def memory_grows(self, name: str) -> float:
        """Return the exponent of a layer's memory; less than 0.1 MB counts as none."""
        return self.grows([max(megabytes, 0.1) for megabytes in self.memory[name]])

    def times_over_width(self, name: str) -> list[Interval]:
        """Return seconds of a layer at each width, at the middle length."""
        settings = self.settings
        return [
            interval(self.samples[self.last, name, settings.middle, d]) for d in settings.widths
        ]

    def ratios(self, how: str, ours: str, theirs: str) -> list[Interval]:
        """Return the time of one layer divided by that of another at each length, by round.

        A slow moment of the machine slows both, so that it hardly changes the ratio.
        """
        d = self.settings.d
        pairs = (
            zip(self.samples[how, ours, n, d], self.samples[how, theirs, n, d], strict=False)
            for n in self.settings.lengths
        )
        return [interval([a / b for a, b in rounds]) for rounds in pairs]


def measure(settings: ComplexitySettings, hear: Hear) -> Measured:
    """Count operations while another process measures memory; measure time when both are done.

    `hear` gets the finished share.
    """
    megabytes = {name: [math.nan] * len(settings.lengths) for name in LAYERS}
    with memory_aside(settings) if settings.memory else nullcontext() as aside:
        counted = count(settings)
        hear(0.1, "operations counted")
        waiting = wait_for(settings)
        hear(0.15, "chains and paths measured")
        if aside:
            megabytes = aside.answer("memory", "memory=0 leaves it out")
    hear(0.2, "memory measured")
    samples = time_all(settings, lambda done, what: hear(0.2 + 0.8 * done, what))
    return Measured(settings, counted, waiting, megabytes, samples)


def count(settings: ComplexitySettings) -> Counted:
    """Run each layer forward once at each size, and count the operations."""

    def of(name: str, size: Size, *, projections: bool = False) -> float:
        done = operations(work(name, size, projections=projections))
        return done / 2 / size.batch

    def plain(n: int, d: int = 0, kernel: int = 0) -> Size:
        return settings.size(n, d, kernel)._replace(heads=1)

    lengths, middle = settings.lengths, settings.middle
    over_n = {name: [of(name, plain(n)) for n in lengths] for name in LAYERS}
    layers = {
        name: [of(name, settings.size(n), projections=settings.projections) for n in lengths]
        for name in ATTENTIONS
    }
    return Counted(
        over_n,
        {name: [of(name, plain(middle, d)) for d in settings.widths] for name in LAYERS},
        [of("cnn", plain(middle, kernel=k)) for k in settings.kernels],
        (
            [of("self-attention", plain(n), projections=True) for n in lengths],
            [of("self-attention", plain(middle, d), projections=True) for d in settings.widths],
        ),
        {name: layers.get(name, over_n[name]) for name in LAYERS},
    )


def wait_for(settings: ComplexitySettings) -> Waiting:
    """Return the longest chains of operations, and the layers or steps between the two ends.

    They are read from the exact path, whose graph shows every operation.
    """

    def narrow(name: str, n: int) -> nn.Module:
        return make(name, settings.size(n)._replace(d=NARROW, heads=1, batch=1)).double()

    def chain(name: str, n: int) -> int:
        x = torch.zeros(1, n, NARROW, dtype=torch.float64, requires_grad=True)
        return longest_chain(narrow(name, n)(x))

    def dilated(i: int) -> nn.Module:
        return Convolution(NARROW, settings.kernel, settings.kernel**i, causal=True).double()

    def path(name: str, n: int) -> float:
        if name == "rnn":
            layer = narrow(name, n)
            assert isinstance(layer, Recurrence)
            return steps_between_ends(layer.rnn, torch.zeros(1, n, NARROW, dtype=torch.float64))
        if name == "dilated cnn":
            return layers_between_ends(dilated, n, NARROW)
        return layers_between_ends(lambda i: narrow(name, n), n, NARROW)

    torch.manual_seed(0)
    with use("exact"):
        chains = {name: [chain(name, n) for n in CHAINS] for name in LAYERS}
        names = ("cnn", "dilated cnn", *LAYERS[1:])
        return Waiting(chains, {name: [path(name, n) for n in PATHS] for name in names})


def memory_aside(settings: ComplexitySettings) -> Aside:
    """Start the measurement of memory in a new process."""
    arguments = settings.size(0)._asdict() | {
        "lengths": settings.lengths,
        "projections": settings.projections,
        "backward": settings.backward,
    }
    del arguments["n"]
    return Aside("regard.lab.labs.complexity.layers", json.dumps(arguments), PROMPT)


def time_all(settings: ComplexitySettings, hear: Hear) -> dict[Call, list[float]]:
    """Return seconds of each layer over lengths and over widths, measured in the same rounds."""
    passes, middle = settings.passes, settings.middle
    calls = [
        (how, name, n, settings.d) for how in passes for name in LAYERS for n in settings.lengths
    ]
    calls += [(passes[-1], name, middle, d) for name in LAYERS for d in settings.widths]
    works = {
        (how, name, n, d): work(
            name,
            settings.size(n, d),
            projections=settings.projections,
            backward=how == BOTH,
            seed=settings.seed,
        )
        for how, name, n, d in calls
    }
    return in_rounds(works, settings.seconds, hear)
