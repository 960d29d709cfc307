"""Outcomes of replications: whether a rerun agrees with the published finding."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from scipy.special import stdtrit

import regard
from regard.lab.labs.collection import RATES, Member, finished
from regard.lab.labs.comparison import ComparisonLab, Plan, Preset, Result, Values
from regard.lab.labs.intervals import Interval, interval
from regard.lab.labs.lab import Findings
from regard.lab.reports.findings import Cell
from regard.lab.runs.convergence import ONE_LABEL, TRIVIAL, further_gain
from regard.lab.studies.arms import Arm
from regard.lab.studies.search import Search
from regard.lab.studies.stopping import level
from regard.lab.tasks import unit_of
from regard.lab.tasks.symbols import SymbolSettings

Verdict = Literal["agrees", "disagrees", "equivalent", "undecided", "undecided, needs more steps"]
AGREES: Final = "agrees"
DISAGREES: Final = "disagrees"
EQUAL: Final = "equivalent"  # within δ, where the finding is a difference
UNDECIDED: Final = "undecided"  # by the seeds so far
UNTRAINED: Final = "undecided, needs more steps"  # more seeds would not decide it
OPEN: Final = (UNDECIDED, UNTRAINED)
SEEDS, QUICK_SEEDS = (3, 12), 3
LEFT = 0.005  # below the best possible score: half a point
Judge = Callable[[Result], Verdict]


@dataclass(frozen=True)
class Finding:
    """A published finding, and how a rerun decides it.

    ``source`` is the paper, ``published`` its figure, ``arms`` those whose scores are shown; the
    difference of the first two is the value of the claim. ``measured`` has other numbers in words.
    """

    says: str
    source: str
    published: str
    judge: Judge
    arms: tuple[str, ...]
    measured: Callable[[Result], str] = lambda result: ""

    def outcome(self, result: Result) -> "Outcome":
        """Return what a rerun says about the finding."""
        here = [written(result, *self.arms), self.measured(result)]
        rows = [row for row in map(result.arm, self.arms) if row]
        return Outcome(
            self.says,
            self.source,
            self.published,
            "; ".join(part for part in here if part),
            difference(result, *self.arms[:2]) if self.arms[1:] else mean_of(result, *self.arms),
            self.judge(result),
            max((int(row["seeds"]) for row in rows), default=0),
            hours(result, self.arms),
        )


@dataclass(frozen=True)
class Outcome:
    """A published finding, what the rerun measured, and whether they agree.

    ``here`` are the rerun's figures in words, ``value`` the number on which the verdict rests,
    ``hours`` the hours of one core.
    """

    finding: str
    source: str
    published: str
    here: str
    value: float
    verdict: Verdict
    seeds: int
    hours: float

    def row(self) -> list[Cell]:
        """Return the row of the summary."""
        return [
            self.finding, self.source, self.published, self.here, self.seeds,
            round(self.hours, 2), self.verdict,
        ]  # fmt: skip


COLUMNS = ("finding", "source", "published", "here", "seeds", "core-hours", "verdict")


def summary(rows: Sequence[Sequence[Cell]]) -> Findings:
    """Return how many findings have each verdict, and the table of them."""
    named = {
        verdict: [str(row[0]) for row in rows if str(row[-1]).split(",")[0] == verdict]
        for verdict in (AGREES, DISAGREES, EQUAL, UNDECIDED)
    }
    return Findings({}, {"rows": len(rows), **named}, tables={"summary": (COLUMNS, rows)})


def member(
    name: str,
    question: str,
    task: str,
    arms: Sequence[Arm],
    findings: Sequence[Finding],
    *,
    differs: str,
    hours: float,
    settings: Values,
    quick: Values,
    seeds: tuple[int, int] = SEEDS,
    delta: float | None = None,
    search: Search | None = RATES,
    data: str = "",
    pairs: Sequence[tuple[str, str]] = (),
    adapt: Callable[[Plan], Plan] = lambda plan: plan,
    measure: Callable[[Result], Any] = lambda result: None,
    figures: Callable[[Result], Findings] = lambda result: Findings({}, {"drawn": ""}),
) -> Member:
    """Return a replication as a member of the lab.

    Every arm is compared with the first one; ``pairs`` are compared as well. ``differs`` says what
    differs from the paper's setting, with settings in braces. ``hours`` of one core are declared
    for the whole replication before it runs. Seeds are added until every finding is decided.
    """

    def told(result: Result) -> list[Outcome]:
        return [one.outcome(result) for one in findings]

    least, most = seeds
    preset = Preset(most, settings, least=least, delta=delta, search=search)
    lab = ComparisonLab(
        question=question,
        task=task,
        arms=arms,
        presets={data or task: preset},
        adapt=lambda plan: adapt(replace(plan, ladder=pairs)),
        measure=measure,
        more_seeds=lambda result: {
            arm for one in findings if one.judge(result) == UNDECIDED for arm in one.arms
        },
        page=Path(__file__).with_name("finding.md"),
        findings=lambda result: Findings.joined(
            [described(name, differs, hours, result, told(result)), figures(result)]
        ),
    )
    return Member(
        name,
        lab,
        lambda result: [one.row() for one in told(result)],
        quick=quick,
        quick_seeds=QUICK_SEEDS,
    )


def described(
    name: str, differs: str, declared: float, result: Result, outcomes: Sequence[Outcome]
) -> Findings:
    """Return the outcomes, and the decided ones as claims, which hold if the rerun agrees."""
    numbered = {str(number): one for number, one in enumerate(outcomes, 1)}
    claims = {
        key: (one.value, one.verdict == AGREES)
        for key, one in numbered.items()
        if one.verdict not in OPEN
    }
    settings = dict(pair.split("=", 1) for pair in result.plan.overrides)
    used = hours(result, [arm.name for arm in result.plan.arms])
    about = {"differs": differs.format_map(settings), "declared": declared, "used": used}
    return Findings(claims, {"name": name, "outcomes": numbered, **about})


def hours(result: Result, names: Sequence[str]) -> float:
    """Return the hours of one core that the runs and trials of arms took."""
    tuned = result.record.get("tuning", {}).get("arms", {})
    rows = [row for row in map(result.arm, dict.fromkeys(names)) if row]
    runs = sum(row["seeds"] * (row["seconds"] or 0.0) for row in rows)
    return float(runs + sum(tuned.get(row["name"], {}).get("seconds", 0.0) for row in rows)) / 3600


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


def better(a: str, b: str, *, at_budget: bool = False) -> Judge:
    """Judge whether arm a is better than b: "disagrees" if it is worse, or "equivalent".

    Only an arm that is `settled` and left the trivial answer counts as worse, and only with several
    seeds: one seed compares two models, not two methods. It need not be settled if the finding
    itself is about equal budgets (``at_budget``).
    """

    def judge(result: Result) -> Verdict:
        gap, p, same = _compared(result, a, b)
        arms = [result.arm(name) for name in (a, b)]
        if min(arm.get("seeds", 0) for arm in arms) < 2:
            return UNDECIDED
        if same:
            ended = [arm["trained"] or perfect(result, arm["mean"]) for arm in arms]
            return EQUAL if at_budget or all(ended) else UNTRAINED
        loser = b if gap > 0 else a
        counts = at_budget or settled(result, loser, abs(gap))
        if not p < 0.05:  # more seeds can decide it only if the loser would then count as worse
            return UNDECIDED if counts or any(arm["trained"] for arm in arms) else UNTRAINED
        stuck = {TRIVIAL, ONE_LABEL} & {*result.arm(loser).get("ended", ())}
        if stuck or not counts:
            return UNTRAINED
        return AGREES if loser == b else DISAGREES

    return judge


def perfect(result: Result, score: float) -> bool:
    """Return whether further training could gain next to nothing."""
    return unit_of(str(result.record["metric"])).most - score < LEFT


def settled(result: Result, name: str, gap: float) -> bool:
    """Return whether an arm's training converged, or would not close a gap in the score.

    That is so if as many steps again, at the slope of its last half, would gain less than a tenth
    of the gap (mean over seeds).
    """
    if result.arm(name).get("trained"):
        return True
    gains = []
    for folder in (folder for one in result.arms if one.name == name for folder in finished(one)):
        rows = [row for row in regard.load(folder).metrics() if row["validation"] is not None]
        steps, scores = ([row[key] for row in rows] for key in ("step", "validation"))
        gains.append(further_gain(steps, scores))
    known = [gain for gain in gains if gain is not None]
    return bool(known) and len(known) == len(gains) and float(np.mean(known)) < 0.1 * gap


def difference(result: Result, a: str, b: str) -> float:
    """Return how much better arm a is than b; NaN if they were not compared."""
    return _compared(result, a, b)[0]


def _compared(result: Result, a: str, b: str) -> tuple[float, float, bool]:
    """Return how much better a is than b, p, and whether equivalent; NaN if not compared."""
    row, sign = result.verdict(a, b), 1.0
    if row is None:
        row, sign = result.verdict(b, a), -1.0
    if row is None:
        return float("nan"), float("nan"), False
    p = float("nan") if row["p"] is None else float(row["p"])
    return sign * float(row["difference"]), p, row.get("verdict") == "equivalent"


def same(a: str, b: str) -> Judge:
    """Judge whether two arms are equivalent within δ at equal steps: "disagrees" if different."""

    def judge(result: Result) -> Verdict:
        verdict = better(a, b, at_budget=True)(result)
        return AGREES if verdict == EQUAL else verdict if verdict in OPEN else DISAGREES

    return judge


def both(*judges: Judge) -> Judge:
    """Judge several statements together: "agrees" if all do, else the worst of them."""
    order = (DISAGREES, UNTRAINED, UNDECIDED, EQUAL, AGREES)

    def judge(result: Result) -> Verdict:
        verdicts = {one(result) for one in judges}
        return next(one for one in order if one in verdicts)

    return judge


def above(value: Interval, threshold: float) -> Verdict:
    """Return whether an interval (mean, low, high) is above a threshold, below, or includes it.

    >>> above((0.5, 0.4, 0.6), 0.3), above((0.5, 0.4, 0.6), 0.5)
    ('agrees', 'undecided')
    """
    _, low, high = value
    return AGREES if low > threshold else DISAGREES if high < threshold else UNDECIDED


def below(value: Interval, threshold: float) -> Verdict:
    """Return whether an interval (mean, low, high) is below a threshold; see `above`."""
    mean, low, high = value
    return above((-mean, -high, -low), -threshold)


def solves(name: str, share: float = 0.95, *, at_budget: bool = False) -> Judge:
    """Judge whether an arm's interval is above a share, below it, or includes it.

    That it is below counts only if the arm is `settled`, or ``at_budget``: where another arm solves
    the same with these steps. Both need several seeds. If seeds are added, the interval is that of
    any look.
    """

    def judge(result: Result) -> Verdict:
        row = result.arm(name)
        if row.get("seeds", 0) < 2:
            return UNDECIDED
        value = widened((row["mean"], row["low"], row["high"]), int(row["seeds"]), result.looks)
        verdict = above(value, share)
        if verdict == DISAGREES and not (at_budget or settled(result, name, share - value[0])):
            return UNTRAINED
        return verdict

    return judge


def fails(name: str, share: float = 0.5, *, at_budget: bool = False) -> Judge:
    """Judge whether an arm's interval is below a share: the opposite of `solves`."""
    opposite: dict[Verdict, Verdict] = {AGREES: DISAGREES, DISAGREES: AGREES}

    def judge(result: Result) -> Verdict:
        verdict = solves(name, share, at_budget=at_budget)(result)
        return opposite.get(verdict, verdict)

    return judge


def over_seeds(result: Result, values: Sequence[float]) -> Interval:
    """Return the mean of values by seed and its 95 % interval, which holds at any look."""
    return widened(interval(values), len(values), result.looks)


def widened(value: Interval, seeds: int, looks: tuple[int, ...]) -> Interval:
    """Return a 95 % interval such that it holds at any look."""
    mean, *ends = value
    low, high = (mean + widening(seeds, looks) * (end - mean) for end in ends)
    return mean, low, high


def widening(seeds: int, looks: tuple[int, ...]) -> float:
    """Return by what a 95 % interval is wider if it holds at any look.

    With fewer seeds than at a look, since some failed, it is that of the look.

    >>> widening(5, (5,)), round(widening(3, (3, 4, 5)), 2)
    (1.0, 1.62)
    """
    if not looks:
        return 1.0
    look = next((n for n in looks if n >= seeds), looks[-1])
    at_any, at_one = stdtrit(seeds - 1, [level(0.05, look, looks) / 2, 0.025])
    return float(at_any / at_one)


def at_lengths(result: Result, lengths: Sequence[int]) -> dict[str, dict[int, list[float]]]:
    """Return the score of every complete seed of each arm on test examples of other lengths."""
    scores: dict[str, dict[int, list[float]]] = {}
    for one in result.arms:
        scores[one.name] = {length: [] for length in lengths}
        for run in map(regard.load, finished(one)):
            data = run.config.data
            assert isinstance(data, SymbolSettings)
            for length in lengths:
                room = max(data.length, 2 * length + 2)
                longer = data.model_copy(update={"test_length": length, "length": room})
                task = type(run.task)(longer, run.task.tokenizer)
                with run.computing():
                    scores[one.name][length].append(float(task.answer(run.network).value))
    return scores
