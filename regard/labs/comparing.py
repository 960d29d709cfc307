"""What the labs that compare arms share: progress, pretraining, and the end in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from regard.errors import RegardError
from regard.labs import Say, Show
from regard.reports.answer import answer
from regard.reports.evidence import Arm

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
