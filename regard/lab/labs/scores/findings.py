"""Rows, answers and claims of the scores lab, task by task."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.random import default_rng

from regard.lab.data.symbols import Recall
from regard.lab.labs.collection import by_standing
from regard.lab.labs.comparison import AHEAD, BEHIND, BEHIND_SO_FAR, UNCLEAR, Result
from regard.lab.labs.lab import Findings
from regard.lab.labs.scores.arms import DOT, REFERENCE, SOFTMAX, name_of, pair_of
from regard.lab.reports.findings import Cell
from regard.lab.tasks import unit_of

SYNTHESIZERS = "synthesizer"
SPARSE = ("sparsemax", "entmax15", "entmax", "adaptive-entmax", "top-k")
TOGETHER = (name_of("cosine", "sparsemax"), name_of(DOT, "sparsemax"))
PAIRS = "-pairs"  # the end of a member's name that has all pairs
NAMED = 8  # arms of one side that are all named
#: No model without word order is right for a larger share: `regard.lab.data.synthetic`.
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
    """Return the table of arms by task, and which are ahead, behind, or neither."""
    tasks = dict.fromkeys(str(row[0]) for row in table)
    values = [_of_task(task, [row for row in table if row[0] == task]) for task in tasks]
    return Findings(
        {}, {"tasks": values, "reference": REFERENCE}, tables={"overview": overview(table)}
    )


def overview(table: Sequence[Sequence[Cell]]) -> tuple[list[str], list[list[Cell]]]:
    """Return the columns and rows of the table of arms by task."""
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
    standings = by_standing(table)
    unclear = len(standings.pop(UNCLEAR, []))
    groups = {standing: Group.of(names, scores) for standing, names in standings.items()}
    plain = scores.get(REFERENCE, "–")
    return {"name": task, "plain": plain, "groups": groups, "unclear": unclear,
            "others": len(table) - 1}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """Arms on one side of the reference.

    `arms`: their names and scores, the best first. If they are more than `NAMED`, `whole` has the
    normalisers and scores of which all arms are on this side, and `arms` only the other arms.
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


def recall_claims(result: Result) -> Findings:
    """Return the claims about recalling values by their keys."""
    return _joined("recall", result, [_no_match(result), _no_gradient(result)])


def sorting_claims(result: Result) -> Findings:
    """Return the claims about sorting."""
    return _joined("sorting", result, [_no_need(result), _sees_all(result)])


def reviews_claims(result: Result) -> Findings:
    """Return the claims about reading word order."""
    return _joined("reviews", result, [_order(result)])


def pairs_claims(result: Result) -> Findings:
    """Return the claims about a normaliser with scores of a small range.

    The pair was chosen after a look at an earlier run of the lab.
    """
    bounded, wide = TOGETHER
    gap = result.verdict(bounded, wide)
    if gap is None:
        return Findings({})
    claims = {"together": (gap["difference"], result.standing(bounded, wide) == AHEAD)}
    values = {"gap": gap, "bounded": result.means[bounded], "wide": result.means[wide]}
    return Findings(claims, values)


def _joined(task: str, result: Result, parts: Sequence[Findings]) -> Findings:
    """Return the claims about a task, and whether a normaliser makes a difference there."""
    shared = {"name": task, "reference": REFERENCE, "plain": result.arm(REFERENCE)}
    return Findings.joined([*parts, _normalizers(result), Findings({}, shared)])


def _best(result: Result, having: Callable[[str], bool]) -> Mapping[str, Any]:
    """Return the best arm whose score fulfils a condition, or an empty one if there is none."""
    means = {name: mean for name, mean in result.means.items() if having(pair_of(name)[0])}
    return result.arm(max(means, key=lambda name: means[name], default=""))


def _synthesizer(score: str) -> bool:
    return score.startswith(SYNTHESIZERS)


def _no_match(result: Result) -> Findings:
    best = _best(result, _synthesizer)
    if not best:
        return Findings({})
    sizes = dict(pair.split("=", 1) for pair in result.plan.overrides)
    length = int(sizes.get("test_length", 0)) or int(sizes["train_length"])
    guess = guess_by_place(Recall(int(sizes["symbols"]), int(sizes["pairs"])), length)
    holds = best["mean"] <= guess and result.standing(best["name"], REFERENCE) == BEHIND
    return Findings({"match": (best["mean"], holds)}, {"synthesizer": best, "guess": guess})


def guess_by_place(puzzle: Recall, length: int) -> float:
    """Return the accuracy of guessing the pair that is most often asked for at a position.

    Without reading keys no answer is right more often, except by excluding values. Repetitions are
    more frequent nearby, so that the position predicts better than chance.

    >>> round(guess_by_place(Recall(32, 4), 16), 2)
    0.38
    """
    rows = puzzle.draw(default_rng(0), 10_000, length)
    values = rows.symbols[:, 1 : 2 * puzzle.pairs : 2, None] - puzzle.symbols // 2
    times = (rows.targets[:, None] == values).sum(0)  # pairs × places
    return float(times.max(0).sum() / times.sum())


def _no_gradient(result: Result) -> Findings:
    best = _best(result, lambda score: score == "boxcar")
    if not best:
        return Findings({})
    name = str(best["name"])
    beside = result.arm(name_of("epanechnikov", pair_of(name)[1]))
    holds = result.standing(name, REFERENCE) == BEHIND
    claims = {"gradient": (best["mean"], holds)}
    return Findings(claims, {"boxcar": best, "epanechnikov": beside})


def _no_need(result: Result) -> Findings:
    best = _best(result, _synthesizer)
    if not best:
        return Findings({})
    holds = result.standing(best["name"], REFERENCE) not in (BEHIND, BEHIND_SO_FAR)
    return Findings({"counting": (best["mean"], holds)}, {"synthesizer": best})


def _sees_all(result: Result) -> Findings:
    arms = [arm for arm in (result.arm(name_of(DOT, kind)) for kind in SPARSE) if arm]
    if not arms:
        return Findings({})
    worse = [arm for arm in arms if result.standing(arm["name"], REFERENCE) == BEHIND]
    claims = {"all-keys": (len(worse), 2 * len(worse) > len(arms))}
    return Findings(claims, {"worse": worse, "sparse": len(arms)})


def _order(result: Result) -> Findings:
    row = result.arm(REFERENCE)
    if not row:
        return Findings({})
    return Findings({"order": (row["mean"], row["low"] > BAG_OF_WORDS)}, {"bag": BAG_OF_WORDS})


def _normalizers(result: Result) -> Findings:
    arms = {
        name: result.standing(name, REFERENCE)
        for name in result.means
        if pair_of(name)[0] == DOT and pair_of(name)[1] != SOFTMAX
    }
    if not arms:
        return Findings({})
    differ = {name: standing for name, standing in arms.items() if standing in (AHEAD, BEHIND)}
    claims = {"normalisers": (len(differ), bool(differ))}
    return Findings(claims, {"differ": differ, "normalisers": len(arms)})
