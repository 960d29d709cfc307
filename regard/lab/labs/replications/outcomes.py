"""Outcomes of replications: whether a rerun agrees with the published finding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

import regard
from regard.lab.labs.collection import Member, finished
from regard.lab.labs.comparison import ComparisonLab, Plan, Preset, Result, Values
from regard.lab.labs.intervals import Interval
from regard.lab.labs.lab import Findings
from regard.lab.reports.evidence import Arm
from regard.lab.reports.findings import Cell
from regard.lab.runs.convergence import ONE_LABEL, TRIVIAL, further_gain
from regard.lab.studies.arms import Arm as Planned
from regard.lab.tasks import unit_of
from regard.lab.tasks.symbols import SymbolSettings

Verdict = Literal["agrees", "disagrees", "cannot tell at this size"]
AGREES: Final = "agrees"
DISAGREES: Final = "disagrees"
UNCLEAR: Final = "cannot tell at this size"
SEEDS, QUICK_SEEDS = 5, 3


@dataclass(frozen=True)
class Outcome:
    """A published finding, what the rerun measured, and whether they agree.

    ``source`` is the paper, ``published`` its figure, ``here`` the rerun's in words, ``value`` the
    number on which the verdict rests.
    """

    finding: str
    source: str
    published: str
    here: str
    value: float
    verdict: Verdict

    def row(self) -> list[Cell]:
        """Return the row of the summary."""
        return [self.finding, self.source, self.published, self.here, self.verdict]


COLUMNS = ("finding", "source", "published", "here", "verdict")


def summary(rows: Sequence[Sequence[Cell]]) -> Findings:
    """Return how many findings agree, disagree and are not decided, and the table of them."""
    named = {
        key: [str(row[0]) for row in rows if row[-1] == verdict]
        for key, verdict in (("agree", AGREES), ("disagree", DISAGREES), ("unclear", UNCLEAR))
    }
    return Findings({}, {"rows": len(rows), **named}, tables={"summary": (COLUMNS, rows)})


def member(
    name: str,
    question: str,
    task: str,
    arms: Sequence[Planned],
    outcomes: Callable[[Result], Sequence[Outcome]],
    *,
    settings: Values,
    quick: Values,
    seeds: int = SEEDS,
    data: str = "",
    pairs: Sequence[tuple[str, str]] = (),
    adapt: Callable[[Plan], Plan] = lambda plan: plan,
    measure: Callable[[Result], Any] = lambda result: None,
    figures: Callable[[Result], Findings] = lambda result: Findings({}, {"drawn": ""}),
) -> Member:
    """Return a replication as a member of the lab.

    Every arm is compared with the first one; ``pairs`` are compared as well.
    """
    lab = ComparisonLab(
        question=question,
        task=task,
        arms=arms,
        presets={data or task: Preset(seeds=seeds, settings=settings)},
        adapt=lambda plan: adapt(replace(plan, ladder=pairs)),
        measure=measure,
        page=Path(__file__).with_name("finding.md"),
        findings=lambda result: Findings.joined(
            [described(name, result, outcomes(result)), figures(result)]
        ),
    )
    return Member(
        name,
        lab,
        lambda result: [one.row() for one in outcomes(result)],
        quick=quick,
        quick_seeds=QUICK_SEEDS,
    )


def described(name: str, result: Result, outcomes: Sequence[Outcome]) -> Findings:
    """Return the outcomes, and the decided ones as claims, which hold if the rerun agrees."""
    numbered = {str(number): one for number, one in enumerate(outcomes, 1)}
    claims = {
        key: (one.value, one.verdict == AGREES)
        for key, one in numbered.items()
        if one.verdict != UNCLEAR
    }
    settings = dict(pair.split("=", 1) for pair in result.plan.overrides)
    return Findings(claims, {"name": name, "outcomes": numbered, "settings": settings})


def mean_of(result: Result, name: str) -> float:
    """Return the mean of an arm, or NaN if it has no result."""
    return float(result.arm(name).get("mean", float("nan")))


def written(result: Result, *names: str) -> str:
    """Return the scores of arms with their intervals.

    A training that did not converge is named.
    """
    metric = str(result.record["metric"])
    unit = unit_of(metric)
    parts = []
    for name in names:
        if not (row := result.arm(name)):
            parts.append(f"{name}: no result")
            continue
        mean, low, high = (unit.write(row[key]) for key in ("mean", "low", "high"))
        training = "" if row["trained"] else f", {row['training']}"
        parts.append(f"{name} {mean} ({low} to {high}{training})")
    return f"{unit.heading(metric)}: {', '.join(parts)}"


def better(result: Result, a: str, b: str, *, at_budget: bool = False) -> Verdict:
    """Return "agrees" if there is evidence that arm a is better than b, "disagrees" if worse.

    Only an arm that is `settled` and left the trivial answer counts as worse, and only with several
    seeds: one seed compares two models, not two methods. It need not be settled if the finding
    itself is about equal budgets (``at_budget``).
    """
    gap, p = _compared(result, a, b)
    if not p < 0.05:
        return UNCLEAR
    loser = b if gap > 0 else a
    if min(result.arm(name).get("seeds", 0) for name in (a, b)) < 2:
        return UNCLEAR
    stuck = {TRIVIAL, ONE_LABEL} & {*result.arm(loser).get("ended", ())}
    if stuck or not (at_budget or settled(result, loser, abs(gap))):
        return UNCLEAR
    return AGREES if loser == b else DISAGREES


def settled(result: Result, name: str, gap: float) -> bool:
    """Return whether an arm's training converged, or would not close a gap in the score.

    That is so if as many steps again, at the slope of its last half, would gain less than a tenth
    of the gap (mean over seeds).
    """
    if result.arm(name).get("trained"):
        return True
    gains = []
    for one in (one for one in result.arms if one.name == name):
        for folder in finished(one):
            rows = [row for row in regard.load(folder).metrics() if row["validation"] is not None]
            steps, scores = ([row[key] for row in rows] for key in ("step", "validation"))
            gains.append(further_gain(steps, scores))
    known = [gain for gain in gains if gain is not None]
    return bool(known) and len(known) == len(gains) and float(np.mean(known)) < 0.1 * gap


def difference(result: Result, a: str, b: str) -> float:
    """Return how much better arm a is than b; NaN if they were not compared."""
    return _compared(result, a, b)[0]


def _compared(result: Result, a: str, b: str) -> tuple[float, float]:
    """Return how much better arm a is than b, and p; NaN if they were not compared."""
    row, sign = result.verdict(a, b), 1.0
    if row is None:
        row, sign = result.verdict(b, a), -1.0
    if row is None:
        return float("nan"), float("nan")
    p = float("nan") if row["p"] is None else float(row["p"])
    return sign * float(row["difference"]), p


def all_of(*verdicts: Verdict) -> Verdict:
    """Return "disagrees" if one does, "agrees" if all do.

    >>> all_of("agrees", "cannot tell at this size")
    'cannot tell at this size'
    """
    if DISAGREES in verdicts:
        return DISAGREES
    return AGREES if set(verdicts) == {AGREES} else UNCLEAR


def above(value: Interval, threshold: float) -> Verdict:
    """Return whether an interval (mean, low, high) is above a threshold, below, or includes it.

    >>> above((0.5, 0.4, 0.6), 0.3), above((0.5, 0.4, 0.6), 0.5)
    ('agrees', 'cannot tell at this size')
    """
    _, low, high = value
    return AGREES if low > threshold else DISAGREES if high < threshold else UNCLEAR


def below(value: Interval, threshold: float) -> Verdict:
    """Return whether an interval (mean, low, high) is below a threshold; see `above`."""
    mean, low, high = value
    return above((-mean, -high, -low), -threshold)


def solved(result: Result, name: str, share: float) -> Verdict:
    """Return whether an arm's interval is above a share, below it, or includes it.

    That it is below counts only if the arm is `settled`, and both only with several seeds.
    """
    row = result.arm(name)
    if row.get("seeds", 0) < 2:
        return UNCLEAR
    verdict = above((row["mean"], row["low"], row["high"]), share)
    if verdict == DISAGREES and not settled(result, name, share - row["mean"]):
        return UNCLEAR
    return verdict


def unsolved(result: Result, name: str, share: float) -> Verdict:
    """Return whether an arm's interval is below a share: the opposite of `solved`."""
    opposite: dict[Verdict, Verdict] = {AGREES: DISAGREES, DISAGREES: AGREES, UNCLEAR: UNCLEAR}
    return opposite[solved(result, name, share)]


def at_lengths(result: Result, lengths: Sequence[int]) -> dict[str, dict[int, list[float]]]:
    """Return the score of every complete seed of each arm on test examples of other lengths."""
    return {one.name: _at_lengths(one, lengths) for one in result.arms}


def _at_lengths(one: Arm, lengths: Sequence[int]) -> dict[int, list[float]]:
    """Return the score of each complete seed of an arm, by the length of the test examples."""
    scores: dict[int, list[float]] = {length: [] for length in lengths}
    for folder in finished(one):
        run = regard.load(folder)
        data = run.config.data
        assert isinstance(data, SymbolSettings)
        for length in lengths:
            room = max(data.length, 2 * length + 2)
            longer = data.model_copy(update={"test_length": length, "length": room})
            task = type(run.task)(longer, run.task.tokenizer)
            with run.computing():
                scores[length].append(float(task.answer(run.network).value))
    return scores
