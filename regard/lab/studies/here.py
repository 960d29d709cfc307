"""Jobs of arms that only this process has, such as an estimator that was made in a notebook."""

from collections.abc import Sequence

from regard.core.errors import RegardError
from regard.core.names import MEMORY
from regard.core.plugins import one_line
from regard.lab.studies.launch import Event, Job, Launcher, Notify, Outcome, Work
from regard.training.loop import using_threads


class Here(Launcher):
    """Gives the jobs whose model has a name to another launcher, then runs the rest itself."""

    def __init__(self, others: Launcher) -> None:
        self.others = others

    def run(self, jobs: Sequence[Job], work: Work, notify: Notify) -> list[Outcome]:
        """Run the jobs and return their outcomes, in the order of the jobs."""
        mine = [job for job in jobs if job.task.model.startswith(MEMORY)]
        outcomes = self.others.run([job for job in jobs if job not in mine], work, notify)
        with using_threads(0):  # restores their number: jobs have one
            for job in mine:
                if not any(one.error for one in outcomes if one.job.arm == job.arm):
                    outcomes.append(_outcome(job, work, notify))
        return sorted(outcomes, key=lambda outcome: jobs.index(outcome.job))


def _outcome(job: Job, work: Work, notify: Notify) -> Outcome:
    def report(done: float, message: str, warning: str = "", most: float = 1.0) -> None:
        kind = "warning" if warning else "progress"
        notify(Event(kind, job.arm, job.seed, done, warning or message))  # type: ignore[arg-type]

    notify(Event("started", job.arm, job.seed, 0.0))
    try:
        value = work(job.task, report)
    except Exception as error:
        says = str(error) if isinstance(error, RegardError) else one_line(error)
        notify(Event("failed", job.arm, job.seed, 1.0, says))
        return Outcome(job, None, says)
    notify(Event("finished", job.arm, job.seed, 1.0, str(value)))
    return Outcome(job, value)
