"""Jobs of arms that only this process has, such as an estimator that was made in a notebook."""

from collections.abc import Sequence
from typing import Any

import torch

from regard.core.errors import RegardError
from regard.core.names import MEMORY
from regard.core.plugins import one_line
from regard.lab.studies.launch import Event, Job, Launcher, Notify, Outcome, Work


class Here(Launcher):
    """Gives the jobs whose model has a name to another launcher, then runs the rest itself.

    They run one after another, with one thread like those of workers.
    """

    def __init__(self, others: Launcher) -> None:
        self.others = others

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Run the jobs and return their outcomes, in the order of the jobs."""
        mine = [job for job in jobs if job.task.model.startswith(MEMORY)]
        outcomes = self.others.run([job for job in jobs if job not in mine], work, notify)
        failed: set[str] = set()
        threads = torch.get_num_threads()
        try:
            for job in mine:
                if job.arm not in failed:
                    outcomes.append(_outcome(job, work, notify))
                    failed |= {job.arm} if outcomes[-1].error else set()
        finally:
            torch.set_num_threads(threads)
        places = {id(job): place for place, job in enumerate(jobs)}
        return sorted(outcomes, key=lambda outcome: places[id(outcome.job)])


def _outcome(job: Job, work: Work, notify: Notify) -> Outcome:
    def tell(kind: Any, done: float, message: str) -> None:
        notify(Event(kind, job.arm, job.seed, done, message))

    def report(done: float, message: str, warning: str = "", most: float = 1.0) -> None:
        tell("warning" if warning else "progress", done, warning or message)

    tell("started", 0.0, "")
    try:
        value = work(job.task, report)
    except Exception as error:
        says = str(error) if isinstance(error, RegardError) else one_line(error)
        tell("failed", 1.0, says)
        return Outcome(job, None, says)
    tell("finished", 1.0, str(value))
    return Outcome(job, value)
