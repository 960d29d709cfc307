"""Estimate the remaining time of a job queue from finished jobs of the same kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A job that is being done.

    `spent` seconds since it began here; `done` of it done, of which `before` at its first word: by
    an earlier process, or nearly nothing.
    """

    arm: str
    cost: float
    spent: float
    done: float
    before: float = 0.0

    @property
    def whole(self) -> float | None:
        """Seconds that all of it takes, as fast as it goes here; None before its second word.

        >>> Running("gru", 1.0, spent=30.0, done=0.75, before=0.5).whole
        120.0
        """
        here = self.done - self.before
        return self.spent / here if here > 0 else None


def seconds_left(
    running: Sequence[Running],
    waiting: Sequence[tuple[str, float]],
    took: Mapping[str, float],
    workers: int,
) -> float | None:
    """Seconds until running and waiting jobs (arm, guessed cost) are done; None if nothing tells.

    A job takes what its arm's last one `took`; of an arm that has not ended one, what its running
    job is on the way to; of one that has not begun, its cost, where a unit of cost takes what it
    takes the others. Shared out evenly, but not faster than the longest job alone.

    >>> seconds_left([Running("gru", 1.0, spent=30.0, done=0.25)], [("gru", 1.0)], {"cnn": 20.0}, 2)
    120.0
    """
    whole = {job.arm: job.whole for job in running if job.whole is not None} | dict(took)
    costs = {job.arm: job.cost for job in running} | dict(waiting)
    known = [arm for arm, cost in costs.items() if cost and arm in whole]
    if not known and any(cost and arm not in whole for arm, cost in costs.items()):
        return None
    unit = sum(whole[arm] for arm in known) / (sum(costs[arm] for arm in known) or 1.0)
    whole = {arm: cost * unit for arm, cost in costs.items()} | whole
    left = [max(whole[job.arm] * (1 - job.before) - job.spent, 0.0) for job in running]
    left += [whole[arm] for arm, _ in waiting]
    return max([*left, sum(left) / workers])
