"""Pretraining, progress and forecasts of the runs of a comparison lab."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import regard
from regard.core.errors import RegardError
from regard.lab.labs import Say, Show
from regard.lab.reports.scales import forecast as ahead
from regard.lab.studies.forecasts import Planned, costs, total
from regard.lab.studies.job import train_and_score
from regard.lab.studies.launch import Event, Job, Launcher, launch
from regard.lab.studies.spec import JobSpec

if TYPE_CHECKING:
    from regard.lab.runs import Run


def load_complete(folder: Path) -> "Run | None":
    """Return a run if it can be loaded and is complete, else None."""
    try:
        run = regard.load(folder)
    except RegardError:
        return None
    return run if run.complete else None


def follow(show: Show, say: Say | None = None) -> Callable[[Event], None]:
    """Return a listener that turns events of single runs into overall progress.

    `say` prints why a comparison gets more seeds.
    """
    done: dict[tuple[str, int], float] = {}

    def hear(event: Event) -> None:
        if event.kind == "extended" and say:
            say(event.message)
            return
        done[event.arm, event.seed] = event.done
        words = f"{event.arm}, seed {event.seed} {event.message}"
        show(sum(done.values()), event.total, words, event.left)

    return hear


def pretrain(jobs: Sequence[Job], launcher: Launcher, show: Show) -> None:
    """Run the pretraining jobs of a comparison that have no result. Raises: one of them failed."""
    hear = follow(show)
    outcomes = launch(
        [job for job in jobs if not JobSpec.of(train_and_score, job).finished()],
        train_and_score,
        launcher,
        lambda event: hear(replace(event, total=len(jobs))),
    )
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RegardError(f"{failed[0].job.arm}, pretraining: {failed[0].error}")


def forecast(lab: str, planned: Sequence[Planned], workers: int, say: Say) -> dict[str, Any]:
    """Forecast the time and memory of all runs by some steps of each.

    A run initialized from another one is measured with random weights, at the same cost. Return
    the object that ``--json`` prints: task, forecast, seconds, most_seconds, workers.
    """
    rows: list[dict[str, Any]] = []
    widest = max(len(one.name) for one in planned)
    for one, cost in costs(planned):
        rows.append({"name": one.name, "seconds": cost.seconds, "most_seconds": cost.most_seconds,
                     "steps": cost.steps, "most_steps": cost.most_steps,
                     "memory_mb": cost.memory_mb})  # fmt: skip
        fewest = f"{one.first} to " if 0 < one.first < one.times else ""
        times = f"{fewest}{one.times} × " if one.times > 1 else ""
        say(f"  {one.name:<{widest}}  {times}{ahead(cost.seconds, cost.most_seconds)}, "
            f"{cost.memory_mb:,.0f} MB")  # fmt: skip
    many, few = [one.times for one in planned], [one.first or one.times for one in planned]
    workers = min(workers, sum(many))
    seconds, most = total(rows, many, workers, few)
    say(f"total: {ahead(seconds, most)} with {workers} workers")
    return {"task": lab, "forecast": rows, "seconds": seconds, "most_seconds": most,
            "workers": workers}  # fmt: skip
