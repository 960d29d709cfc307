"""What a comparison found, in plain sentences: for the top of the report and for the terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.reports.evidence import Arm
from regard.studies import worth
from regard.studies.result import per_cent
from regard.studies.statistics import Difference, compare_runs

KINDS = {
    "attention": "attention arm",
    "network": "network without attention",
    "baseline": "baseline",
}


def answer(comparison: Mapping[str, Any], arms: Sequence[Arm]) -> list[str]:
    """The result in a few sentences, the plainest first.

    Who is first and by how much; how the best with attention stands to the best without; which
    arms there is evidence for against the reference. Nothing is claimed that was not found.
    """
    judged = sorted(
        (arm for arm in arms if math.isfinite(arm.mean)), key=lambda arm: arm.mean, reverse=True
    )
    if not judged:
        return ["No arm was judged: there is nothing to compare."]
    says = [f"{judged[0].name} comes first: {told(judged[0], comparison)}."]
    says += _across(comparison, judged)
    says += _against_reference(comparison, judged)
    failed = [arm.name for arm in arms if not math.isfinite(arm.mean)]
    if failed:
        says.append(f"Without a result: {', '.join(failed)}.")
    return says


def told(arm: Arm, comparison: Mapping[str, Any]) -> str:
    """An arm's metric with its interval in words: "accuracy 91.4 % (91.0 to 91.7)"."""
    metric = str(comparison.get("metric", "accuracy"))
    unit = per_cent(metric)
    return f"{metric} {percent(arm.mean)}{unit} ({percent(arm.low)} to {percent(arm.high)})"


def percent(share: float) -> str:
    """A share as per cent with one decimal.

    >>> percent(0.9138), percent(float("nan"))
    ('91.4', '–')
    """
    return f"{100 * share:.1f}".replace("-", "−") if math.isfinite(share) else "–"


@dataclass(frozen=True)
class Known:
    """A difference as a sentence, and whether there is evidence of one."""

    says: str
    sure: bool


def difference(comparison: Mapping[str, Any], a: Arm, b: Arm) -> Known | None:
    """What is known of two arms: the declared verdict, or a look back at their answers."""
    for verdict in comparison.get("verdicts", []):
        if {verdict.get("a"), verdict.get("b")} == {a.name, b.name}:
            return Known(str(verdict["says"]), float(verdict["p"]) < 0.05)
    found = looked_back(a, b)
    note = "a pair picked afterwards, so p is too kind"
    return Known(f"{found.says} ({note})", found.found) if found else None


def looked_back(a: Arm, b: Arm) -> Difference | None:
    """The difference of two arms from their runs' answers, or None where these do not match."""
    pair = [arm.judged for arm in (a, b)]
    if all(pair) and len(pair[0]) == len(pair[1]) and pair[0][0].measure:
        same = len({(run.asked, run.signature) for runs in pair for run in runs}) == 1
        return worth.difference(pair[0], pair[1], (a.name, b.name)) if same else None
    ours, theirs = a.right, b.right
    if ours.size == 0 or theirs.size == 0 or ours.shape[-1] != theirs.shape[-1]:
        return None
    seeds = max(len(ours), len(theirs))
    fixed = [arm.family == "baseline" for arm in (a, b)]
    names = {tuple(folder.name for folder in arm.folders) for arm in (a, b)}
    if ours.shape[-1] < 2 or (not any(fixed) and len(names) > 1):
        return None  # some seeds are missing: these are no pairs
    ours, theirs = (
        np.repeat(right, seeds, 0) if alike and len(right) == 1 else right
        for right, alike in zip((ours, theirs), fixed, strict=True)
    )
    return compare_runs(ours, theirs, (a.name, b.name)) if len(ours) == len(theirs) else None


def _across(comparison: Mapping[str, Any], judged: Sequence[Arm]) -> list[str]:
    """The best arm with attention against the best of each other kind, and the other way round."""
    unit = per_cent(str(comparison.get("metric", "accuracy")))
    first = {family: arm for arm in reversed(judged) for family in [arm.family]}
    attention = first.get("attention")
    says = []
    for family in ("baseline", "network"):
        other = first.get(family)
        if attention is None or other is None:
            continue
        ahead, behind = (other, attention) if other.mean > attention.mean else (attention, other)
        kind, found = KINDS[family], difference(comparison, attention, other)
        pair = ", ".join(f"{arm.name} {percent(arm.mean)}{unit}" for arm in (ahead, behind))
        if found is None:
            says.append(f"The best with attention and the best {kind}: {pair}.")
        elif not found.sure:
            says.append(f"The best with attention and the best {kind}: {pair}: {found.says}.")
        else:
            best = "with attention" if behind is attention else kind
            has = f"{percent(behind.mean)}{unit}"
            says.append(f"The best {best}, {behind.name}, has {has}: {found.says}.")
    return says


def _against_reference(comparison: Mapping[str, Any], judged: Sequence[Arm]) -> list[str]:
    reference = str(comparison.get("reference") or "")
    better: list[str] = []
    worse: list[str] = []
    open_: list[str] = []
    for verdict in comparison.get("verdicts", []):
        if reference not in (verdict.get("a"), verdict.get("b")):
            continue
        if verdict.get("family") == "ladder":  # its p is one of another family
            continue
        forward = verdict.get("b") == reference
        name, gain = verdict["a" if forward else "b"], float(verdict["difference"])
        gain = gain if forward else -gain
        found = float(verdict["p"]) < 0.05
        (better if found and gain > 0 else worse if found else open_).append(str(name))
    says = []
    if better:
        says.append(f"Evidence of a gain over {reference}: {', '.join(better)}.")
    if worse:
        says.append(f"Evidence of a loss against {reference}: {', '.join(worse)}.")
    if open_:
        says.append(f"No evidence of a difference from {reference}: {', '.join(open_)}.")
    return says
