"""The points of the kernel regression lab: built in or the user's, some of them held out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from regard.core.errors import RegardError
from regard.core.settings import Settings
from regard.lab.data.columns import read_columns
from regard.lab.data.curve import curve
from regard.lab.tasks.regression.evaluation import all_equal

Numbers = NDArray[np.float64]
BUILT_IN = "curve"
HELD_OUT = 500  # of the built-in points
MOST_HELD_OUT = 2000  # of a file: enough to compare arms
FEWEST = 10
SMALL = 5000  # points up to which every kernel is fitted by its own search


def variance(y: Numbers) -> float:
    """Return the variance of numbers, or 1 if they are all equal up to rounding."""
    return 1.0 if all_equal(y) else float(y.var())


def deviations(x: Numbers) -> Numbers:
    """Return the standard deviation of each column, or 1 where it is constant."""
    return np.where(np.ptp(x, axis=0) == 0, 1.0, x.std(0))


class KernelRegressionSettings(Settings):
    """``x`` and ``y`` name columns of a file; ``w`` is 1 / the width that is not learned.

    With ``standardize`` that w is per standard deviation of a column; by default it is for a file.
    The lab chooses ``batch`` and ``neighbors`` that are 0. ``keys``: the number of keys in the last
    section; 0 leaves it out.
    """

    data: str = BUILT_IN
    x: str = ""
    y: str = ""
    points: int = Field(50, ge=FEWEST, le=100_000)
    held_out: float = Field(0.2, gt=0, lt=1)
    seed: int = Field(0, ge=0)
    w: float = Field(1.0, gt=0, allow_inf_nan=False)
    standardize: bool | None = None
    steps: int = Field(120, ge=1)
    batch: int = Field(0, ge=0)
    neighbors: int = Field(0, ge=0)
    keys: int = Field(1_000_000, ge=0)


@dataclass(frozen=True)
class Points:
    """The training points, the held-out points, and notes on how they were read."""

    x: Numbers
    y: Numbers
    new_x: Numbers
    new_y: Numbers
    names: Sequence[str]  # those of x
    target: str
    unit: Numbers  # the width that is not learned, one a column
    notes: Sequence[str] = ()
    built_in: bool = False

    @property
    def scale(self) -> Numbers:
        """The standard deviation of each column; 1 where it is constant."""
        return deviations(self.x)

    @property
    def small(self) -> bool:
        """Whether the points are few enough for a search over all of them."""
        return len(self.x) <= SMALL


def load(how: KernelRegressionSettings) -> Points:
    """Return the requested points, split by the seed.

    Raises: columns of built-in data; too few rows; a y that never changes; those of `read_columns`.
    """
    if how.data == BUILT_IN:
        if how.x or how.y:
            raise RegardError("x and y name columns of a file: give one by --data FILE.csv")
        ours, others = curve(how.points, how.seed), curve(HELD_OUT, how.seed + 1_000_003)
        unit = np.full(1, (ours.x.std() if how.standardize else 1.0) / how.w)
        columns = (ours.x[:, None], ours.y, others.x[:, None], others.y)
        return Points(*columns, ["x"], "y", unit, built_in=True)
    names = [name.strip() for name in how.x.split(",") if name.strip()]
    table = read_columns(how.data, names, how.y)
    count = len(table.values)
    if count < FEWEST:
        rows = "one row" if count == 1 else f"{count} rows"
        raise RegardError(
            f"{how.data}: {rows} with all numbers; to learn and to hold out takes {FEWEST} or more"
        )
    target = table.names[-1]
    if np.ptp(table.y) == 0:
        raise RegardError(
            f"{how.data}: {target!r} is {table.y[0]:g} in every row: nothing to learn"
        )
    out = min(max(2, round(how.held_out * count)), MOST_HELD_OUT, count - 4)
    order = np.random.default_rng(how.seed).permutation(count)
    new, seen_rows = np.sort(order[:out]), np.sort(order[out:])
    x, y = table.x[seen_rows], table.y[seen_rows]
    if np.ptp(y) == 0:
        raise RegardError(f"{how.data}: {target!r} is {y[0]:g} in every row but those held out")
    notes = []
    if table.missing:
        what = "row was" if table.missing == 1 else "rows were"
        notes.append(f"{table.missing} {what} left out for a missing number ({table.first} first)")
    flat = [name for name, s in zip(table.names, np.ptp(x, axis=0), strict=False) if s == 0]
    if flat:
        notes.append(f"{', '.join(flat)}: the same in every row, so without a say")
    same = len(x) - len(np.unique(x, axis=0))
    if same:
        notes.append(f"{same} of {len(x)} points have the x of an earlier one; each counts")
    unit = (np.ones(x.shape[1]) if how.standardize is False else deviations(x)) / how.w
    return Points(x, y, table.x[new], table.y[new], table.names[:-1], target, unit, notes)
