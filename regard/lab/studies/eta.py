"""Estimate the remaining time of a job queue from finished jobs of the same kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Running:
    """A running job.

    `elapsed` is the time since its start here, in seconds, `done` the share that is finished,
    `before` the share that was finished at its first report, for example by an earlier process, and
    `begun` the seconds until then, in which data are read and the network is built.
    """

    arm: str
    cost: float
    elapsed: float
    done: float
    before: float = 0.0
    begun: float = 0.0
    most: float = 1.0  # the maximum duration, as a multiple of the one that `done` assumes

    @property
    def longest(self) -> "Running":
        """Return the job with its maximum duration.

        >>> Running("gru", 1.0, elapsed=30.0, done=0.5, most=4.0).longest.total
        240.0
        """
        done, before = self.done / self.most, self.before / self.most
        return replace(self, done=done, before=before, most=1.0)

    @property
    def total(self) -> float | None:
        """Return the seconds of the whole job at its present speed; None before its second report.

        >>> Running("gru", 1.0, elapsed=30.0, done=0.75, before=0.5).total
        120.0
        >>> Running("gru", 1.0, elapsed=6.0, done=0.02, before=0.01, begun=5.0).total
        105.0
        """
        share = self.done - self.before
        return self.begun + (self.elapsed - self.begun) / share if share > 0 else None


def seconds_left(
    running: Sequence[Running],
    waiting: Sequence[tuple[str, float]],
    durations: Mapping[str, float],
    workers: int,
) -> float | None:
    """Return the seconds until running and waiting jobs (arm, guessed cost) are done, if known.

    A job takes as long as the last finished job of its arm, in `durations`; if there is none, as
    long as the arm's running job will take; if that is unknown too, its cost times the mean
    seconds per unit of cost of the other arms. The sum is divided by `workers`, but the result is
    at least the time of the longest job. Return None if no duration is known.

    >>> running = [Running("gru", 1.0, elapsed=30.0, done=0.25)]
    >>> seconds_left(running, [("gru", 1.0)], {"cnn": 20.0}, 2)
    120.0
    """
    total = {job.arm: job.total for job in running if job.total is not None} | dict(durations)
    costs = {job.arm: job.cost for job in running} | dict(waiting)
    known = [arm for arm, cost in costs.items() if cost and arm in total]
    if not known and any(cost and arm not in total for arm, cost in costs.items()):
        return None
    unit = sum(total[arm] for arm in known) / (sum(costs[arm] for arm in known) or 1.0)
    total = {arm: cost * unit for arm, cost in costs.items()} | total
    left = [
        max(job.begun + (total[job.arm] - job.begun) * (1 - job.before) - job.elapsed, 0.0)
        for job in running
    ]
    left += [total[arm] for arm, _ in waiting]
    return max([*left, sum(left) / workers])
