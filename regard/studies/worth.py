"""What the runs of an arm are worth together, and how much more one arm is worth than another.

Right and wrong answers are a table of seeds × examples as they are. A corpus score (BLEU) enters
the same table by the jackknife's pseudo-values, whose mean over the texts is the score of a seed:
so the differences of paired seeds decide, with the variance of the texts added. With one seed
there are only texts to draw: Koehn's (2004) paired bootstrap.
"""

from collections.abc import Sequence

import numpy as np

from regard.studies.job import Judged
from regard.studies.statistics import Difference, Scores, arm_interval, compare_runs
from regard.tasks.sequence_metrics import paired_bootstrap


def table(runs: Sequence[Judged]) -> Scores:
    """Seeds × examples: what each run is worth by example."""
    return np.stack([run.scores for run in runs])


def interval(runs: Sequence[Judged]) -> tuple[float, float, float]:
    """Mean, low and high of an arm, as shares."""
    corpus = runs[0].judgement
    if corpus is not None and len(runs) == 1:
        low, high = corpus.interval()
        return runs[0].value, low / 100, high / 100
    mean, low, high = arm_interval(table(runs))
    return mean, max(0.0, low), min(1.0, high)


def difference(a: Sequence[Judged], b: Sequence[Judged], names: tuple[str, str]) -> Difference:
    """The difference of two arms whose runs are paired by seed.

    Errors: other test examples, another measure or signature.
    """
    ours, theirs = a[0].judgement, b[0].judgement
    if ours is None or theirs is None or len(a) > 1:
        unit = "" if ours is None else ours.measure.upper()
        return compare_runs(table(a), table(b), names, unit=unit)
    found = paired_bootstrap(ours, theirs)
    return Difference(
        *names,
        mean=found.difference / 100,
        low=found.low / 100,
        high=found.high / 100,
        p=found.p,
        seeds=1,
        examples=found.texts,
        unit=ours.measure.upper(),
    )
