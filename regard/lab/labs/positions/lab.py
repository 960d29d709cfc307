"""Measure what each kind of position reveals: positions and distances, also beyond trained lengths.

The lab shows sine positions (`sines`) and trains small networks with nine positions (`tasks`) to
read them (`findings`), also in longer texts (`reach`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.labs import Say, Show
from regard.lab.labs.lab import Findings, MeasuringLab, ReferenceTime
from regard.lab.labs.positions.findings import ASKED, OF_TEXT, probes, trees
from regard.lab.labs.positions.reach import compared, copies
from regard.lab.labs.positions.sines import sines
from regard.lab.labs.positions.tasks import Experiment, Found, experiment, work
from regard.lab.studies.launch import Job, launch
from regard.lab.studies.processes import Local
from regard.training.loop import using_threads

LONGEST = 1024  # words of a text: the lab looks at whole tables of weights


class PositionsSettings(Settings):
    """Probes: texts of `length` words of `words` kinds, networks of `width` and `heads`, `steps`.

    The copy task: trained on `trained` words for `copy_steps`, asked for the word `back` places
    before in texts of up to `reach` × that length. The rotation: `widths`, `shifts` (as 6,7,64),
    positions up to `farthest`; pe·pe has the first of the widths that is 16 or more. `seeds`
    networks of each kind, numbered from `seed`; `workers` processes, one thread each.
    """

    length: int = Field(16, ge=10, le=128)
    words: int = Field(16, ge=2, le=1000)
    width: int = Field(32, ge=2, le=1024)
    heads: int = Field(4, ge=1)
    steps: int = Field(180, ge=1)
    trained: int = Field(20, ge=2, le=256)
    reach: int = Field(4, ge=2, le=16)
    back: int = Field(1, ge=1)
    copy_steps: int = Field(250, ge=1)
    widths: str = "6,7,64,65,128"
    shifts: str = "1,5,64,1000,-8"
    farthest: int = Field(8192, ge=64, le=1_000_000)
    seeds: int = Field(3, ge=1, le=100)
    seed: int = Field(0, ge=0, lt=2**40)
    workers: int = Field(2, ge=1, le=64)

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.width % self.heads:
            raise RegardError(
                f"width={self.width} does not divide into heads={self.heads}: take a multiple"
            )
        if self.back >= self.trained:
            raise RegardError(
                f"back={self.back} asks for a word before a text of trained={self.trained} begins: "
                "take a smaller back or a longer text"
            )
        if self.trained * self.reach > LONGEST:
            raise RegardError(
                f"trained={self.trained} and reach={self.reach} ask for texts of "
                f"{self.trained * self.reach:,} words: this lab goes to {LONGEST:,}"
            )
        if not all(1 <= width <= LONGEST for width in self.all_widths):
            raise RegardError(
                f"widths={self.widths}: a width is a number of columns, from 1 to {LONGEST}"
            )
        if max(map(abs, self.all_shifts)) >= self.farthest:
            raise RegardError(
                f"shifts={self.shifts}: no two positions up to farthest={self.farthest} are so far "
                "apart; take smaller shifts"
            )
        return self

    @property
    def all_widths(self) -> list[int]:
        """The widths as numbers."""
        return numbers("widths", self.widths)

    @property
    def all_shifts(self) -> list[int]:
        """The shifts as numbers."""
        return numbers("shifts", self.shifts)


def numbers(key: str, text: str) -> list[int]:
    """Parse comma-separated integers.

    >>> numbers("shifts", "1, -8")
    [1, -8]
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise RegardError(
            f"{key}={text!r}: whole numbers with commas between are wanted, as in {key}=1,8"
        ) from None


@dataclass(frozen=True)
class Measured:
    """The results of every network, and the findings."""

    settings: PositionsSettings
    found: Mapping[Experiment, Found]
    findings: Findings


def measure(settings: PositionsSettings, say: Say, show: Show) -> Measured:
    """Measure the sines and train every network. Raises: a network that could not be trained."""
    experiments = plan(settings)
    say(f"{len(experiments)} small networks, {settings.workers} at a time")
    drawn = next((width for width in settings.all_widths if width >= 16), settings.all_widths[-1])
    looked = sines(drawn, settings.all_widths, settings.all_shifts, settings.farthest)
    found = train_all(experiments, settings.workers, show)
    far = copies(found, settings.trained, settings.back)
    parts = [looked, probes(found, settings.length), trees(found), far]
    return Measured(settings, found, Findings.joined(parts))


def plan(settings: PositionsSettings) -> list[Experiment]:
    """Return every network that is trained."""
    beside = ["sinusoidal", "relative-keys", "tree-depth", "tree-keys"]
    tasks = {
        "moved": ASKED,
        "begin": OF_TEXT,
        "causal": ["none"],
        "begin, causal": OF_TEXT,
        "distance": ASKED,
        "depth": beside,
        "way": beside,
        "copy": OF_TEXT,
    }
    return [
        Experiment(
            task=task,
            position=name,
            seed=seed,
            steps=settings.copy_steps if task == "copy" else settings.steps,
            length=settings.trained if task == "copy" else settings.length,
            longest=settings.trained * settings.reach if task == "copy" else 2 * settings.length,
            back=settings.back,
            words=settings.words,
            width=settings.width,
            heads=settings.heads,
        )
        for seed in range(settings.seed, settings.seed + settings.seeds)
        for task, names in tasks.items()
        for name in names
    ]


def train_all(
    experiments: Sequence[Experiment], workers: int, show: Show
) -> dict[Experiment, Found]:
    """Return the result of each experiment, independent of the number of workers.

    One worker is this process.
    """
    total = len(experiments)
    if workers == 1:
        found = {}
        with using_threads(1):
            for done, one in enumerate(experiments):
                show(done, total, f"{one.task}: {one.position}")
                found[one] = experiment(one)
        show(total, total, "trained")
        return found
    jobs = [
        Job(f"{one.task}: {one.position}", one.seed, one, 3.0 if one.task == "copy" else 1.0)
        for one in experiments
    ]
    outcomes = launch(jobs, work, Local(workers), counting(total, show))
    for outcome in outcomes:
        if outcome.error:
            raise RegardError(f"{outcome.job.arm}, seed {outcome.job.seed}: {outcome.error}")
    return {outcome.job.task: outcome.value for outcome in outcomes}


def counting(total: int, show: Show) -> Callable[[Any], None]:
    """Return a listener that shows how many jobs are finished."""
    done = 0

    def hear(event: Any) -> None:
        nonlocal done
        done += event.kind == "finished"
        show(done, total, event.arm)

    return hear


LAB = MeasuringLab(
    settings=PositionsSettings,
    reference_time=ReferenceTime(
        44, "two cores, with three seeds", scales_with=("steps", "copy_steps"),
        steps=("steps", "copy_steps"),
    ),
    measure=measure,
    page=Path(__file__).with_suffix(".md"),
    findings=lambda measured: measured.findings,
    next="regard compare classification --data reviews --arms "
    "transformer:position=rotary,transformer:position=relative-keys",
    compared=lambda measured: compared(measured.found, measured.settings.reach),
)  # fmt: skip
