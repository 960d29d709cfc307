"""Outcomes of replications: whether a rerun agrees with what was published."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np

import regard
from regard.labs.collection import Member
from regard.labs.comparison import ComparisonLab, Plan, Preset, Result, Values
from regard.labs.lab import Claim, claim
from regard.reports.evidence import Arm
from regard.reports.findings import Cell, Section
from regard.studies.arms import Arm as Planned
from regard.tasks import unit_of
from regard.tasks.symbols import SymbolSettings

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

    def claim(self) -> Claim:
        """Return the outcome as a claim, which holds if the rerun agrees."""
        says = f"{self.finding} ({self.source}): {self.here}; {self.verdict}"
        return claim(says, self.value, self.verdict == AGREES)


COLUMNS = ("finding", "source", "published", "here", "verdict")


def summary(rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return how many findings agree, disagree and are not decided, in words.

    >>> summary([["x", "", "", "", "agrees"], ["y", "", "", "", "disagrees"]])
    ['Of 2 published findings 1 agrees with the rerun.', 'Disagrees: y.']
    """
    several = {
        verdict: [str(row[0]) for row in rows if row[-1] == verdict]
        for verdict in (AGREES, DISAGREES, UNCLEAR)
    }
    agree = len(several[AGREES])
    sentences = [
        f"Of {len(rows)} published findings {agree} agree{'s' * (agree == 1)} with the rerun."
    ]
    if names := several[DISAGREES]:
        sentences.append(f"Disagrees: {'; '.join(names)}.")
    if names := several[UNCLEAR]:
        sentences.append(f"Cannot be told at this size: {'; '.join(names)}.")
    return sentences


def member(
    name: str,
    question: str,
    task: str,
    arms: Sequence[Planned],
    outcomes: Callable[[Result], Sequence[Outcome]],
    *,
    settings: Values,
    quick: Values,
    about: Sequence[str],
    seeds: int = SEEDS,
    data: str = "",
    pairs: Sequence[tuple[str, str]] = (),
    adapt: Callable[[Plan], Plan] = lambda plan: plan,
    measure: Callable[[Result], Any] = lambda result: None,
    figures: Callable[[Result], Sequence[Section]] = lambda result: (),
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
        figures=figures,
        claims=lambda result: [one.claim() for one in outcomes(result)],
    )
    return Member(
        name,
        lab,
        lambda result: [one.row() for one in outcomes(result)],
        about=about,
        quick=quick,
        quick_seeds=QUICK_SEEDS,
    )


def arm(result: Result, name: str) -> Mapping[str, Any]:
    """Return the record of an arm: mean, low, high, training."""
    return next(row for row in result.record["arms"] if row["name"] == name)


def written(result: Result, *names: str) -> str:
    """Return the scores of arms with their intervals.

    A training that did not converge is named.
    """
    metric = str(result.record["metric"])
    unit = unit_of(metric)
    parts = []
    for name in names:
        row = arm(result, name)
        mean, low, high = (unit.write(row[key]) for key in ("mean", "low", "high"))
        training = "" if row["trained"] else f", {row['training']}"
        parts.append(f"{name} {mean} ({low} to {high}{training})")
    return f"{unit.heading(metric)}: {', '.join(parts)}"


def better(result: Result, a: str, b: str) -> Verdict:
    """Return "agrees" if there is evidence that arm a is better than b, "disagrees" if worse.

    Both have the same budget. That arm a is worse counts only if its training converged.
    """
    row, sign = result.verdict(a, b), 1.0
    if row is None:
        row, sign = result.verdict(b, a), -1.0
    if row is None or row["p"] is None or not row["p"] < 0.05:
        return UNCLEAR
    if sign * row["difference"] > 0:
        return AGREES
    return DISAGREES if arm(result, a)["trained"] else UNCLEAR


def difference(result: Result, a: str, b: str) -> float:
    """Return how much better arm a is than b."""
    row, sign = result.verdict(a, b), 1.0
    if row is None:
        row, sign = result.verdict(b, a), -1.0
    return float("nan") if row is None else sign * float(row["difference"])


def all_of(*verdicts: Verdict) -> Verdict:
    """Return "disagrees" if one does, "agrees" if all do.

    >>> all_of("agrees", "cannot tell at this size")
    'cannot tell at this size'
    """
    if DISAGREES in verdicts:
        return DISAGREES
    return AGREES if set(verdicts) == {AGREES} else UNCLEAR


def at_least(row: Mapping[str, Any], share: float) -> Verdict:
    """Return whether an arm's interval is above a share, below it, or includes it.

    That it is below counts only if the training converged.
    """
    if row["low"] >= share:
        return AGREES
    return DISAGREES if row["high"] < share and row["trained"] else UNCLEAR


def at_lengths(result: Result, lengths: Sequence[int]) -> dict[str, dict[int, list[float]]]:
    """Return the score of every seed of each arm on test examples of other lengths."""
    scores: dict[str, dict[int, list[float]]] = {}
    for one in result.arms:
        scores[one.name] = {n: _at_length(one, n) for n in lengths}
    return scores


def _at_length(one: Arm, length: int) -> list[float]:
    """Return the score of each seed on test examples of a length."""
    values = []
    for folder in one.folders:
        run = regard.load(folder)
        data = run.config.data
        assert isinstance(data, SymbolSettings)
        room = max(data.length, 2 * length + 2)
        longer = data.model_copy(update={"test_length": length, "length": room})
        task = type(run.task)(longer, run.task.tokenizer)
        with run.computing():
            values.append(float(task.answer(run.network).value))
    return values


def half_widths(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean over seeds and its 95 % interval by Student's t.

    >>> [round(x, 3) for x in half_widths([0.4, 0.6])]
    [0.5, -0.771, 1.771]
    """
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    if n < 2:
        return mean, mean, mean
    half = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    return mean, mean - half, mean + half
