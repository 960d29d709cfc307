"""What a comparison found, in plain sentences: for the top of the report and for the terminal."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.reports.evidence import Arm
from regard.studies import scoring
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
        (arm for arm in arms if math.isfinite(arm.mean)), key=lambda arm: arm.rank, reverse=True
    )
    if not judged:
        return ["No arm was judged: there is nothing to compare."]
    says = [f"{judged[0].name} comes first: {told(judged[0])}."]
    says += _across(comparison, judged)
    says += _against_reference(comparison, judged)
    failed = [arm.name for arm in arms if not math.isfinite(arm.mean)]
    if failed:
        says.append(f"Without a result: {', '.join(failed)}.")
    return says


def told(arm: Arm) -> str:
    """An arm's metric with its interval in words: "accuracy 91.4 % (91.0 to 91.7)"."""
    mean, low, high = (arm.unit.write(value) for value in (arm.mean, arm.low, arm.high))
    return f"{arm.metric} {mean}{arm.unit.sign} ({low} to {high})"


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
            worse = verdict["b"] if float(verdict["difference"]) > 0 else verdict["a"]
            claimed = worse not in verdict.get("untrained", [])
            return Known(str(verdict["says"]), claimed and float(verdict["p"]) < 0.05)
    found = looked_back(a, b)
    note = "a pair picked afterwards, so p is too kind"
    return Known(f"{found.says} ({note})", found.found) if found else None


def looked_back(a: Arm, b: Arm) -> Difference | None:
    """The difference of two arms from their runs' answers, or None where these do not match."""
    fixed = [arm.deterministic for arm in (a, b)]
    names = {tuple(folder.name for folder in arm.folders) for arm in (a, b)}
    if not any(fixed) and len(names) > 1:
        return None  # some seeds are missing: these are no pairs
    kept = [arm.judged for arm in (a, b)]
    if all(runs and len(runs) == len(arm.folders) for runs, arm in zip(kept, (a, b), strict=True)):
        seeds = max(map(len, kept))
        one, other = (
            runs * seeds if alike and len(runs) == 1 else runs
            for runs, alike in zip(kept, fixed, strict=True)
        )
        same = len({(run.asked, run.signature) for run in (*one, *other)}) == 1
        same = same and len(one) == len(other) and one[0].examples > 1
        return scoring.difference(one, other, (a.name, b.name)) if same else None
    ours, theirs = a.right, b.right
    if a.metric != "accuracy" or ours.size == 0 or ours.shape[-1] != theirs.shape[-1]:
        return None
    if ours.shape[-1] < 2:
        return None
    seeds = max(len(ours), len(theirs))
    ours, theirs = (
        np.repeat(right, seeds, 0) if alike and len(right) == 1 else right
        for right, alike in zip((ours, theirs), fixed, strict=True)
    )
    return compare_runs(ours, theirs, (a.name, b.name)) if len(ours) == len(theirs) else None


def _across(comparison: Mapping[str, Any], judged: Sequence[Arm]) -> list[str]:
    """The best arm with attention against the best of each other kind, and the other way round."""
    first = {family: arm for arm in reversed(judged) for family in [arm.family]}
    attention = first.get("attention")
    says = []
    for family in ("baseline", "network"):
        other = first.get(family)
        if attention is None or other is None:
            continue
        ahead, behind = (other, attention) if other.rank > attention.rank else (attention, other)
        kind, found = KINDS[family], difference(comparison, attention, other)
        pair = ", ".join(f"{arm.name} {_value(arm)}" for arm in (ahead, behind))
        if found is None:
            says.append(f"The best with attention and the best {kind}: {pair}.")
        elif not found.sure:
            says.append(f"The best with attention and the best {kind}: {pair}: {found.says}.")
        else:
            best = "with attention" if behind is attention else kind
            says.append(f"The best {best}, {behind.name}, has {_value(behind)}: {found.says}.")
    return says


def _value(arm: Arm) -> str:
    return f"{arm.unit.write(arm.mean)}{arm.unit.sign}"


def _against_reference(comparison: Mapping[str, Any], judged: Sequence[Arm]) -> list[str]:
    reference = str(comparison.get("reference") or "")
    better: list[str] = []
    worse: list[str] = []
    open_: list[str] = []
    unclear: list[str] = []
    for verdict in comparison.get("verdicts", []):
        if reference not in (verdict.get("a"), verdict.get("b")):
            continue
        if verdict.get("family") == "ladder":  # its p is one of another family
            continue
        forward = verdict.get("b") == reference
        name, gain = verdict["a" if forward else "b"], float(verdict["difference"])
        gain = gain if forward else -gain
        found = float(verdict["p"]) < 0.05
        if found and (name if gain < 0 else reference) in verdict.get("untrained", []):
            unclear.append(str(name))
            continue
        (better if found and gain > 0 else worse if found else open_).append(str(name))
    says = []
    if better:
        says.append(f"Evidence of a gain over {reference}: {', '.join(better)}.")
    if worse:
        says.append(f"Evidence of a loss against {reference}: {', '.join(worse)}.")
    if unclear:
        says.append(
            f"Not trained to the end, so no claim about the method against {reference}: "
            f"{', '.join(unclear)}."
        )
    if open_:
        says.append(f"No evidence of a difference from {reference}: {', '.join(open_)}.")
    return says
