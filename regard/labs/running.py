"""Pretraining, progress and forecasts of the runs of a comparison lab."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.labs import Say, Show
from regard.reports.scales import duration
from regard.studies.job import RunTask
from regard.studies.launch import Job

if TYPE_CHECKING:
    from regard.studies.launch import Event, Launcher


def follow(show: Show) -> Callable[["Event"], None]:
    """Return a listener that turns events of single runs into overall progress."""
    done: dict[tuple[str, int], float] = {}

    def hear(event: "Event") -> None:
        done[event.arm, event.seed] = event.done
        words = f"{event.arm}, seed {event.seed} {event.message}"
        show(sum(done.values()), event.total, words, event.left)

    return hear


def pretrain(
    jobs: Sequence[Job], workers: int | None, launcher: "Launcher | None", show: Show
) -> None:
    """Run the pretraining jobs of a comparison that have no result. Errors: one of them failed."""
    from regard.studies.job import train_and_score
    from regard.studies.launch import launch
    from regard.studies.spec import JobSpec

    hear = follow(show)
    outcomes = launch(
        [job for job in jobs if not JobSpec.of(train_and_score, job).finished()],
        train_and_score,
        workers=workers,
        launcher=launcher,
        on_event=lambda event: hear(replace(event, total=len(jobs))),
    )
    if failed := [outcome for outcome in outcomes if outcome.error]:
        raise RegardError(f"{failed[0].job.arm}, pretraining: {failed[0].error}")


@dataclass(frozen=True)
class Planned:
    """A run whose cost is forecast, and the number of such runs in the lab."""

    name: str
    task: RunTask
    times: int = 1


def forecast(lab: str, planned: Sequence[Planned], workers: int, say: Say) -> dict[str, Any]:
    """Run one step of each planned run and forecast the time and memory of all.

    A run initialized from another one is measured with random weights, at the same cost. Return
    the object that ``--json`` prints: task, forecast, seconds, workers.
    """
    import torch

    from regard import runs

    threads, rows, total = torch.get_num_threads(), [], 0.0
    widest = max(len(one.name) for one in planned)
    torch.set_num_threads(1)  # as in the workers of a comparison
    try:
        for one in planned:
            cost = runs.forecast(one.task.task, one.task.model, one.task.overrides)
            rows.append({"name": one.name, "seconds": cost.seconds, "memory_mb": cost.memory_mb})
            total += cost.seconds * one.times
            times = f" × {one.times}" if one.times > 1 else ""
            say(f"  {one.name:<{widest}} {duration(cost.seconds):>8}{times}, "
                f"{cost.memory_mb:,.0f} MB")  # fmt: skip
    finally:
        torch.set_num_threads(threads)
    say(f"total: about {duration(total / workers)} with {workers} workers")
    return {"task": lab, "forecast": rows, "seconds": total / workers, "workers": workers}
