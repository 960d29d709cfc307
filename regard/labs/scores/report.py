"""Answers and claims of the scores lab, task by task."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from regard.labs.lab import Claim, arm_row, claim
from regard.labs.scores.tasks import Arm, Task, Trained
from regard.reports.answer import percent
from regard.studies.statistics import Difference, arm_interval, compare_runs

SYNTHESIZERS = "synthesizer"
SPARSE = ("sparsemax", "entmax15", "entmax", "top-k")
#: What a score is made for, where that is not softmax.
MADE_FOR = {"epanechnikov": "sum", "boxcar": "sum"}
SHORTER = {
    "synthesizer": "syn", "factorised": "fact", "random": "rand", "temperature": "temp",
    "softmax-plus-one": "softmax + 1",
}  # fmt: skip
NAMED = 8  # arms of one side that are all named
BAG_OF_WORDS = 0.73  # what no reader blind to order passes on the reviews: data/synthetic.py


@dataclass(frozen=True, eq=False)
class Study:
    """One task: its arms, each but the reference with a verdict in the same order; what failed."""

    task: Task
    reference: Trained
    arms: tuple[Trained, ...]
    verdicts: tuple[Difference, ...]
    lost: Mapping[Arm, str]

    def verdict(self, arm: Arm) -> Difference | None:
        """Return the arm against the reference; None for the reference itself."""
        return next((found for found in self.verdicts if found.a == arm.name), None)

    def found(self, score: str, normalizer: str) -> Trained | None:
        """Return an arm by its parts, if it was run."""
        wanted = Arm(self.task.name, score, normalizer)
        return next((found for found in self.arms if found.arm == wanted), None)

    def sided(self) -> Iterator[tuple[Trained, str]]:
        """Return every arm but the reference, and "better", "worse" or "open"."""
        for arm in self.arms:
            known = self.verdict(arm.arm)
            if known is not None:
                yield arm, side(known)

    def on(self, which: str) -> list[Trained]:
        """Return the arms of one side, the best first."""
        chosen = [arm for arm, found in self.sided() if found == which]
        return sorted(chosen, key=mean, reverse=True)


def side(known: Difference) -> str:
    """Return what there is evidence for."""
    return "open" if not known.significant else "better" if known.mean > 0 else "worse"


def mean(arm: Trained) -> float:
    """Return the share of examples without a mistake."""
    return float(arm.right.mean())


def told(arm: Arm) -> str:
    """Return an arm's name in a sentence: the part in which it differs from scaled-dot × softmax.

    >>> [told(Arm("recall", *parts)) for parts in (("dot", "softmax"), ("scaled-dot", "sum"))]
    ['dot', '× sum']
    """
    if arm.normalizer == "softmax":
        return arm.short if arm.score == "scaled-dot" else arm.score
    return f"× {arm.normalizer}" if arm.score == "scaled-dot" else arm.short


def label(arm: Arm) -> str:
    """Return the same where there is little room."""
    return shorter(told(arm))


def shorter(name: str) -> str:
    """Return the names of parts, shortened."""
    for long, short in SHORTER.items():
        name = name.replace(long, short)
    return name


def in_short(studies: Sequence[Study]) -> str:
    """Return which matter where, a sentence or two a task."""
    return " ".join(of_task(study) for study in studies)


def of_task(study: Study) -> str:
    reference = study.reference
    says = [f"{study.task.name}: {reference.arm.short} is right on {percent(mean(reference))} %"]
    for which in ("better", "worse"):
        if arms := study.on(which):
            count = f" ({len(arms)})" if len(arms) > NAMED else ""
            says.append(f"{which} with evidence{count}: {named(study, arms)}")
    others = len(study.on("open"))
    if others:
        count = "all others" if others < len(study.verdicts) else "any of the others"
        says.append(f"no evidence of a difference for {count} ({others})")
    return "; ".join(says).capitalize() + "."


def named(study: Study, arms: Sequence[Trained]) -> str:
    """Return each arm and its parts; of many arms, the parts that they share."""
    if len(arms) <= NAMED:
        return ", ".join(f"{told(arm.arm)} {percent(mean(arm))} %" for arm in arms)
    left, says = list(arms), []
    for part, along in (("score", "normaliser"), ("normalizer", "score")):
        kinds = dict.fromkeys(getattr(arm.arm, part) for arm in arms)
        whole = []
        for kind in kinds:
            group = [arm for arm in study.arms if getattr(arm.arm, part) == kind]
            if len(group) > 1 and all(arm in arms for arm in group):
                whole.append(kind)
                left = [arm for arm in left if arm not in group]
        says += [f"{', '.join(whole)} with every {along}"] if whole else []
    if left:
        ends = [f"{told(arm.arm)} {percent(mean(arm))} %" for arm in (left[0], left[-1])]
        others = "others " if says else ""
        says.append(
            f"{len(left)} {others}from {ends[0]} to {ends[1]}" if len(left) > 1 else ends[0]
        )
    return "; ".join(says)


def claims(studies: Sequence[Study]) -> list[Claim]:
    """Return what to look for, task by task, of the arms that were run."""
    by_name = {study.task.name: study for study in studies}
    results = []
    if study := by_name.get("recall"):
        results += [_no_match(study), _no_gradient(study), _together(study)]
    if study := by_name.get("sorting"):
        results += [_no_need(study), _even(study)]
    if study := by_name.get("reviews"):
        results.append(_order(study))
    results += [_normalizers(study) for study in studies]
    return [one for one in results if one]


def _best(arms: Sequence[Trained]) -> Trained | None:
    return max(arms, key=mean, default=None)


def _synthesizers(study: Study) -> list[Trained]:
    return [arm for arm in study.arms if arm.arm.score.startswith(SYNTHESIZERS)]


def _no_match(study: Study) -> Claim | None:
    best, guess = _best(_synthesizers(study)), 1 / 8
    if best is None:
        return None
    says = (
        "one layer of a Synthesizer, whose scores read no key, cannot recall: the best of "
        f"{len(_synthesizers(study))}, {best.arm.short}, is right on {percent(mean(best))} %, a "
        f"guess among the eight values shown on {percent(guess)} %, {study.reference.arm.short} on "
        f"{percent(mean(study.reference))} %"
    )
    return claim(says, mean(best), arm_interval(best.right)[1] <= guess)


def _no_gradient(study: Study) -> Claim | None:
    flat = [arm for arm in study.arms if arm.arm.score == "boxcar"]
    best = _best(flat)
    if best is None:
        return None
    known = study.verdict(best.arm)
    says = (
        f"through boxcar no gradient reaches queries and keys: {best.arm.short} recalls "
        f"{percent(mean(best))} %"
    )
    if (beside := study.found("epanechnikov", best.arm.normalizer)) is not None:
        says += f", where {beside.arm.short}, as short of reach, recalls {percent(mean(beside))} %"
    return claim(says, mean(best), known is not None and side(known) == "worse")


def _together(study: Study) -> Claim | None:
    wide, bounded = (study.found(score, "sparsemax") for score in ("scaled-dot", "cosine"))
    if wide is None or bounded is None:
        return None
    known = compare_runs(bounded.right, wide.right, (bounded.arm.short, wide.arm.short))
    says = (
        "score and normaliser act together: sparsemax recalls "
        f"{percent(mean(wide))} % with scaled-dot and {percent(mean(bounded))} % with cosine, "
        f"whose scores stay between −1 and 1 ({percent(known.mean)} points, "
        f"{percent(known.low)} to {percent(known.high)}; a pair picked after a look)"
    )
    return claim(says, known.mean, known.low > 0)


def _no_need(study: Study) -> Claim | None:
    best = _best(_synthesizers(study))
    if best is None:
        return None
    known = study.verdict(best.arm)
    says = (
        "sorting is counting, and needs no key to be read: the best Synthesizer, "
        f"{best.arm.short}, sorts {percent(mean(best))} %, {study.reference.arm.short} "
        f"{percent(mean(study.reference))} %"
    )
    return claim(says, mean(best), known is not None and side(known) != "worse")


def _even(study: Study) -> Claim | None:
    candidates = [study.found("scaled-dot", name) for name in SPARSE]
    arms = [arm for arm in candidates if arm is not None]
    if not arms:
        return None
    worse = [
        f"{arm.arm.normalizer} ({percent(mean(arm))} %)"
        for arm in arms
        if (known := study.verdict(arm.arm)) and side(known) == "worse"
    ]
    says = (
        f"who counts has to see all: {len(worse)} of {len(arms)} normalisers that can leave keys "
        f"out sort worse than softmax ({percent(mean(study.reference))} %) with evidence"
    )
    says += f": {', '.join(worse)}" if worse else ""
    return claim(says, len(worse), 2 * len(worse) > len(arms))


def _order(study: Study) -> Claim:
    middle, low, high = arm_interval(study.reference.right)
    says = (
        f"word order is read: no bag of words passes {percent(BAG_OF_WORDS)} % of the reviews but "
        f"by luck, and the whole interval of {study.reference.arm.short} is above: "
        f"{percent(middle)} % ({percent(low)} to {percent(high)})"
    )
    return claim(says, middle, low > BAG_OF_WORDS)


def _normalizers(study: Study) -> Claim | None:
    arms = [(arm, found) for arm, found in study.sided() if arm.arm.score == "scaled-dot"]
    if not arms:
        return None
    differ = [f"{arm.arm.normalizer} ({found})" for arm, found in arms if found != "open"]
    says = (
        f"{study.task.name}: some normaliser differs from softmax, with scaled-dot and with "
        f"evidence after Holm: {len(differ)} of {len(arms)}"
    )
    return claim(says + (f", {', '.join(differ)}" if differ else ""), len(differ), bool(differ))


def arm_rows(study: Study) -> list[dict[str, Any]]:
    """Return the arms as ``--json`` prints them; seconds and megabytes are one network's share."""
    return [
        arm_row(arm.arm.name, len(arm.right), arm_interval(arm.right), seconds=arm.seconds,
                peak_mb=arm.megabytes, parameters=arm.parameters) | {"rate": arm.rate}
        for arm in study.arms
    ]  # fmt: skip
