"""What the labs that compare arms share: progress, pretraining, forecasts, the end in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.labs import Order, Say, Show
from regard.reports.answer import answer, percent
from regard.reports.evidence import Arm
from regard.reports.findings import Cell
from regard.reports.scales import duration
from regard.studies.job import RunTask

if TYPE_CHECKING:
    from regard.studies.launch import Event, Job


def follow(show: Show) -> Callable[["Event"], None]:
    """Events of single runs as the share of all that is done."""
    done: dict[tuple[str, int], float] = {}

    def hear(event: "Event") -> None:
        done[event.arm, event.seed] = event.done
        words = f"{event.arm}, seed {event.seed} {event.says}"
        show(sum(done.values()), event.total, words, event.left)

    return hear


def given(order: Order) -> dict[str, str]:
    """Return the user's settings by name. Errors: a pair that is not ``key=value``."""
    mine = {}
    for pair in order.overrides:
        name, equals, value = pair.partition("=")
        if not equals:
            raise RegardError(f"settings are written key=value, not {pair!r}")
        mine[name.strip().replace("-", "_")] = value.strip()
    return mine


def told(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Settings as ``key=value``."""
    return tuple(f"{key}={value}" for key, value in settings.items())


def pretrain(jobs: "Sequence[Job]", workers: int, show: Show) -> None:
    """Do the jobs that go before a comparison. Errors: one of them failed."""
    from regard.studies.job import train_and_judge
    from regard.studies.launch import launch

    hear = follow(show)
    outcomes = launch(
        jobs,
        train_and_judge,
        workers=workers or None,
        on_event=lambda event: hear(replace(event, total=len(jobs))),
    )
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RegardError(f"{failed[0].job.arm}, pretraining: {failed[0].error}")


DRY_RUN = "dry-run"  # a folder that is never made: a forecast disturbs no runs that are there


@dataclass(frozen=True)
class Planned:
    """A run whose cost is to be forecast, and how many like it the lab makes."""

    name: str
    task: RunTask
    times: int = 1


def forecast(lab: str, planned: Sequence[Planned], workers: int, say: Say) -> dict[str, Any]:
    """Make one step of each planned run and forecast the time and memory of all of them.

    A run that begins from another is measured from random weights, which cost the same. Returns
    the object that ``--json`` prints: task, forecast, seconds, workers.
    """
    import torch

    from regard import runs

    threads, rows, total = torch.get_num_threads(), [], 0.0
    wide = max(len(one.name) for one in planned)
    torch.set_num_threads(1)  # as the workers of a comparison have it
    try:
        for one in planned:
            pairs = [pair for pair in one.task.overrides if not pair.startswith("init=")]
            seen = runs.forecast(one.task.task, one.task.model, pairs)
            rows.append({"name": one.name, "seconds": seen.seconds, "memory_mb": seen.memory_mb})
            total += seen.seconds * one.times
            times = f" × {one.times}" if one.times > 1 else ""
            say(f"  {one.name:<{wide}} {duration(seen.seconds):>8}{times}, "
                f"{seen.memory_mb:,.0f} MB")  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    say(f"in all about {duration(total / workers)} with {workers} workers")
    return {"task": lab, "forecast": rows, "seconds": total / workers, "workers": workers}


def points_of(verdict: Mapping[str, Any]) -> list[Cell]:
    """Return a verdict as cells of a table: points, their 95 % interval, p.

    >>> points_of({"difference": 0.113, "low": 0.035, "high": 0.19, "p": 0.0104})
    [11.3, '3.5 to 19.0', '0.010']
    """
    gain, low, high, p = (float(verdict[key]) for key in ("difference", "low", "high", "p"))
    shown = f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return [round(100 * gain, 1), f"{percent(low)} to {percent(high)}", shown]


def conclude(
    record: Mapping[str, Any],
    table: Sequence[str],
    found: Sequence[Arm],
    follows: str,
    say: Say,
) -> None:
    """The table, what to look for, the verdict in words, the report, what to try next."""
    say("\n" + "\n".join(table))
    if record["claims"]:
        say("\nWhat to look for:")
    for claimed in record["claims"]:
        say(f"  {'✓' if claimed['holds'] else '✗'} {claimed['says']}")
    say("\nVerdict:")
    for sentence in answer(record, found):
        say(f"  {sentence}")
    say(f"\nreport: {record['report']}")
    say(f"next:   {follows}")
