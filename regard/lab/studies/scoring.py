"""Score an arm from its runs, and the difference between two arms.

Right and wrong answers, and log losses, form a table of seeds × examples. A score that is not a
mean over examples (BLEU, macro-F1, balanced accuracy) enters this table as jackknife pseudo-values,
whose mean over the texts is the score of a seed. So the differences of paired seeds decide, with
the variance of the texts (or groups) added. With one seed there is only the variance of texts.
"""

from collections.abc import Sequence

import numpy as np

from regard.lab.studies.job import RunScore
from regard.lab.studies.statistics import Difference, compare_runs
from regard.lab.tasks.estimates import Scores, arm_interval


def table(runs: Sequence[RunScore]) -> Scores:
    """Return the scores of runs by example, (seeds, examples)."""
    return np.stack([run.per_example for run in runs])


def interval(runs: Sequence[RunScore]) -> tuple[float, float, float]:
    """Compute mean, low and high of an arm, as shares or nats."""
    mean, low, high = arm_interval(table(runs), runs[0].groups)
    unit = runs[0].unit
    if unit.lower:
        mean, low, high = -mean, -high, -low
    mean, low, high = (max(unit.least, min(unit.most, x)) for x in (mean, low, high))
    return mean, low, high


def difference(a: Sequence[RunScore], b: Sequence[RunScore], names: tuple[str, str]) -> Difference:
    """Compute how much better arm `a` is than arm `b`, whose runs are paired by seed.

    Raises: other test examples.
    """
    unit = a[0].unit.points
    return compare_runs(table(a), table(b), names, unit=unit, groups=a[0].groups)
