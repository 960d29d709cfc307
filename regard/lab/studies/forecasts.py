"""Forecast the runs of a comparison: each by some steps, and all of them together."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from regard.lab.studies.job import RunTask

if TYPE_CHECKING:
    from regard.lab.runs import Forecast


#: Seconds in which workers start and the report is written: ten comparisons on two cores with AVX2
#: took 44 s more than their runs.
AROUND = 4.4


@dataclass(frozen=True)
class Planned:
    """A run whose cost is forecast, and the number of such runs: at least `first`, if given.

    `typical`: the typical number of validations of a training, divided by its patience.
    """

    name: str
    task: RunTask
    times: int = 1
    typical: float | None = None
    first: int = 0


def costs(planned: Sequence[Planned]) -> "Iterator[tuple[Planned, Forecast]]":
    """Yield the forecast of each run, with one thread, like the workers of a comparison."""
    from regard.lab import runs
    from regard.training.loop import using_threads

    with using_threads(1):
        for one in planned:
            run = one.task
            yield one, runs.forecast(run.task, run.model, run.overrides, typical=one.typical)


def together(seconds: Sequence[float], times: Sequence[int], workers: int) -> float:
    """Return the seconds of runs in parallel: a share for each worker, at least the longest run.

    Workers beyond the cores of this machine add no speed.

    >>> together([10.0, 4.0], [1, 5], workers=1), together([10.0, 4.0], [1, 1], workers=2)
    (30.0, 10.0)
    """
    whole = sum(one * many for one, many in zip(seconds, times, strict=True))
    return max([whole / max(min(workers, os.cpu_count() or 1), 1), *seconds])


def total(
    rows: Sequence[Mapping[str, Any]],
    times: Sequence[int],
    workers: int,
    first: Sequence[int] | None = None,
) -> tuple[float, float]:
    """Return the seconds of a comparison, typically and at most, from the JSON of each run.

    They are those of all runs `together`, and of what is around them. If seeds are added until the
    comparison is decided, the first number is that of the `first` runs.
    """
    typical, most = ([row[key] for row in rows] for key in ("seconds", "most_seconds"))
    least = together(typical, first or times, workers)
    return AROUND + least, AROUND + together(most, times, workers)
