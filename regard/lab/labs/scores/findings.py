"""Rows, answers and claims of the scores lab, task by task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.random import default_rng

from regard.lab.data.symbols import Recall
from regard.lab.labs.comparison import AHEAD, AHEAD_SO_FAR, BEHIND, BEHIND_SO_FAR, UNCLEAR, Result
from regard.lab.labs.lab import Claim, Findings, claim
from regard.lab.labs.scores.arms import DOT, REFERENCE, SOFTMAX, name_of, pair_of
from regard.lab.reports.answer import percent
from regard.lab.reports.findings import Cell
from regard.lab.tasks import unit_of

SYNTHESIZERS = "synthesizer"
SPARSE = ("sparsemax", "entmax15", "entmax", "adaptive-entmax", "top-k")
TOGETHER = (name_of("cosine", "sparsemax"), name_of(DOT, "sparsemax"))
PAIRS = "-pairs"  # the end of a member's name that has all pairs
NAMED = 8  # arms of one side that are all named
#: No reader blind to order passes this share of the reviews: `regard.lab.data.synthetic`.
BAG_OF_WORDS = 0.73


def rows(task: str, result: Result) -> list[list[Cell]]:
    """Return the arms of a task: task, arm, score in %, difference in points, evidence."""
    unit = unit_of(str(result.record["metric"]))
    table: list[list[Cell]] = []
    for row in result.record["arms"]:
        name = str(row["name"])
        verdict = result.verdict(name, REFERENCE)
        points = unit.write(verdict["difference"], "+") if verdict else ""
        standing = result.standing(name, REFERENCE) if verdict else ""
        table.append([task, name, unit.write(row["mean"]), points, standing])
    return table


def summary(table: Sequence[Sequence[Cell]]) -> Findings:
    """Return the arms beside the tasks, and which are ahead, behind, or neither."""
    tasks = dict.fromkeys(str(row[0]) for row in table)
    values = [_of_task(task, [row for row in table if row[0] == task]) for task in tasks]
    return Findings(
        {}, {"tasks": values, "reference": REFERENCE}, tables={"overview": overview(table)}
    )


def overview(table: Sequence[Sequence[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """Return the columns and rows of the arms beside the tasks."""
    single = [row for row in table if not str(row[0]).endswith(PAIRS)] or table
    tasks = list(dict.fromkeys(str(row[0]) for row in single))
    cells: dict[str, dict[str, Cell]] = {}
    for task, name, score, points, standing in single:
        star = "*" if standing in (AHEAD, BEHIND) else ""
        cell = f"{score} ({points}{star})" if points else score
        cells.setdefault(str(name), {})[str(task)] = cell
    rows = [[name, *(row.get(task, "–") for task in tasks)] for name, row in cells.items()]
    return ["arm", *tasks], rows


def _of_task(task: str, table: Sequence[Sequence[Cell]]) -> dict[str, Any]:
    """Return the values of a task for the page."""
    scores = {str(row[1]): str(row[2]) for row in table}
    groups = {
        standing: Group.of(names, scores)
        for standing in (AHEAD, BEHIND, AHEAD_SO_FAR, BEHIND_SO_FAR)
        if (names := [str(row[1]) for row in table if row[4] == standing])
    }
    unclear = sum(row[4] == UNCLEAR for row in table)
    plain = scores.get(REFERENCE, "–")
    return {"name": task, "plain": plain, "groups": groups, "unclear": unclear,
            "others": len(table) - 1}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Arms on one side of the reference.

    `arms`: their names and scores, the best first. If they are more than `NAMED`, `whole` has the
    scores that all take part, by "normaliser", and such normalisers, by "score"; `arms` are those
    that are left.
    """

    number: int
    arms: Sequence[tuple[str, str]]
    whole: Mapping[str, Sequence[str]]
    many: bool

    @classmethod
    def of(cls, names: Sequence[str], scores: Mapping[str, str]) -> "Group":
        """Sort the arms by their scores.

        >>> Group.of(["dot", "× sum"], {"dot": "3.0", "× sum": "9.1"}).arms
        [('× sum', '9.1'), ('dot', '3.0')]
        """
        left = sorted(names, key=lambda name: -float(scores[name].replace("–", "0")))
        whole: dict[str, list[str]] = {}
        for part, along in ((0, "normaliser"), (1, "score")) if len(names) > NAMED else ():
            for kind in dict.fromkeys(pair_of(name)[part] for name in names):
                group = [n for n in scores if pair_of(n)[part] == kind and n != REFERENCE]
                if len(group) > 1 and all(name in names for name in group):
                    whole.setdefault(along, []).append(kind)
                    left = [name for name in left if name not in group]
        arms = [(name, scores[name]) for name in left]
        return cls(len(names), arms, whole, len(names) > NAMED)


def recall_claims(result: Result) -> list[Claim]:
    """Return what recalling values by their keys needs."""
    return [*_no_match(result), *_no_gradient(result), *_normalizers(result, "recall")]


def sorting_claims(result: Result) -> list[Claim]:
    """Return what sorting needs."""
    return [*_no_need(result), *_sees_all(result), *_normalizers(result, "sorting")]


def reviews_claims(result: Result) -> list[Claim]:
    """Return whether word order is read."""
    return [*_order(result), *_normalizers(result, "reviews")]


def pairs_claims(result: Result) -> list[Claim]:
    """Return whether a normaliser does better with a score of small range.

    The pair was chosen after a look at an earlier run of the lab.
    """
    bounded, wide = TOGETHER
    known = result.verdict(bounded, wide)
    if known is None:
        return []
    gap, low, high = (percent(known[key]) for key in ("difference", "low", "high"))
    says = (
        f"score and normaliser act together: sparsemax has {_mean(result, wide)} % with scaled-dot "
        f"and {_mean(result, bounded)} % with cosine, whose scores stay between −1 and 1 ({gap} "
        f"points, {low} to {high})"
    )
    return [claim(says, known["difference"], result.standing(bounded, wide) == AHEAD)]


def _mean(result: Result, name: str) -> str:
    return percent(result.means[name])


def _best(result: Result, having: Callable[[str], bool]) -> str:
    """Return the best arm whose score fulfils a condition, or "" if there is none."""
    means = {name: mean for name, mean in result.means.items() if having(pair_of(name)[0])}
    return max(means, key=lambda name: means[name], default="")


def _synthesizer(score: str) -> bool:
    return score.startswith(SYNTHESIZERS)


def _no_match(result: Result) -> list[Claim]:
    best = _best(result, _synthesizer)
    if not best:
        return []
    sizes = dict(pair.split("=", 1) for pair in result.plan.overrides)
    length = int(sizes.get("test_length", 0)) or int(sizes["train_length"])
    guess = guess_by_place(Recall(int(sizes["symbols"]), int(sizes["pairs"])), length)
    row = result.arm(best)
    says = (
        "one layer of a Synthesizer, whose scores read no key, cannot recall: the best, "
        f"{best}, is right on {_mean(result, best)} % ({percent(row['low'])} to "
        f"{percent(row['high'])}), the best guess by the place of a question on "
        f"{percent(guess)} %, {REFERENCE} on {_mean(result, REFERENCE)} %"
    )
    holds = row["mean"] <= guess and result.standing(best, REFERENCE) == BEHIND
    return [claim(says, row["mean"], holds)]


def guess_by_place(puzzle: Recall, length: int) -> float:
    """Return how often the pair most often asked for at a place is the one that is asked for.

    No answer that reads no key is right more often, but by exclusion of values. Near repetitions
    are more frequent, so that a place says more than chance.

    >>> round(guess_by_place(Recall(32, 4), 16), 2)
    0.38
    """
    rows = puzzle.draw(default_rng(0), 10_000, length)
    values = rows.symbols[:, 1 : 2 * puzzle.pairs : 2, None] - puzzle.symbols // 2
    times = (rows.targets[:, None] == values).sum(0)  # pairs × places
    return float(times.max(0).sum() / times.sum())


def _no_gradient(result: Result) -> list[Claim]:
    best = _best(result, lambda score: score == "boxcar")
    if not best:
        return []
    says = (
        f"through boxcar no gradient reaches queries and keys: {best} recalls "
        f"{_mean(result, best)} %"
    )
    beside = name_of("epanechnikov", pair_of(best)[1])
    if beside in result.means:
        says += f", {beside}, with as short a reach, {_mean(result, beside)} %"
    return [claim(says, result.means[best], result.standing(best, REFERENCE) == BEHIND)]


def _no_need(result: Result) -> list[Claim]:
    best = _best(result, _synthesizer)
    if not best:
        return []
    says = (
        f"sorting is counting, and needs no key to be read: the best Synthesizer, {best}, sorts "
        f"{_mean(result, best)} %, {REFERENCE} {_mean(result, REFERENCE)} %"
    )
    return [
        claim(
            says,
            result.means[best],
            result.standing(best, REFERENCE) not in (BEHIND, BEHIND_SO_FAR),
        )
    ]


def _sees_all(result: Result) -> list[Claim]:
    arms = [name for name in (name_of(DOT, kind) for kind in SPARSE) if name in result.means]
    if not arms:
        return []
    worse = [name for name in arms if result.standing(name, REFERENCE) == BEHIND]
    says = (
        f"counting needs all keys: {len(worse)} of {len(arms)} normalisers that can leave keys out "
        f"sort worse than softmax ({_mean(result, REFERENCE)} %) with evidence"
    )
    says += f": {', '.join(f'{name} ({_mean(result, name)} %)' for name in worse)}" * bool(worse)
    return [claim(says, len(worse), 2 * len(worse) > len(arms))]


def _order(result: Result) -> list[Claim]:
    row = result.arm(REFERENCE)
    if not row:
        return []
    says = (
        f"word order is read: no bag of words passes {percent(BAG_OF_WORDS)} % of the reviews but "
        f"by luck, and the whole interval of {REFERENCE} is above: {percent(row['mean'])} % "
        f"({percent(row['low'])} to {percent(row['high'])})"
    )
    return [claim(says, row["mean"], row["low"] > BAG_OF_WORDS)]


def _normalizers(result: Result, task: str) -> list[Claim]:
    arms = {
        name: result.standing(name, REFERENCE)
        for name in result.means
        if pair_of(name)[0] == DOT and pair_of(name)[1] != SOFTMAX
    }
    if not arms:
        return []
    differ = [
        f"{name} ({standing})" for name, standing in arms.items() if standing in (AHEAD, BEHIND)
    ]
    says = (
        f"{task}: some normaliser differs from softmax, with scaled-dot and with "
        f"evidence after Holm: {len(differ)} of {len(arms)}"
    )
    return [claim(says + f", {', '.join(differ)}" * bool(differ), len(differ), bool(differ))]
