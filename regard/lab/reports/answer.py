"""Summary sentences of a comparison's result, for the top of the report and the terminal."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from regard.lab.reports.evidence import Arm
from regard.lab.studies import scoring
from regard.lab.studies.result import claimed
from regard.lab.studies.statistics import Difference, compare_runs, written_margin
from regard.lab.tasks import unit_of
from regard.lab.tasks.units import Unit

percent = Unit().write  # a share as a percentage with one decimal
KINDS = {
    "attention": "attention arm",
    "network": "other network",
    "baseline": "baseline",
}


def answer(comparison: Mapping[str, Any], arms: Sequence[Arm]) -> list[str]:
    """Return the result in a few sentences, the most important first.

    They give the best arm and its score, the best attention arm against the best arms of the other
    families, and the arms with evidence of a difference from the reference. A difference without
    evidence is reported as such.
    """
    ranked = sorted(
        (arm for arm in arms if math.isfinite(arm.mean)), key=lambda arm: arm.rank, reverse=True
    )
    if not ranked:
        return ["No arm has a result, so there is nothing to compare."]
    sentences = [f"{ranked[0].name} ranks first: {with_interval(ranked[0])}."]
    sentences += _across(comparison, ranked)
    sentences += _against_reference(comparison)
    failed = [arm.name for arm in arms if not math.isfinite(arm.mean)]
    if failed:
        sentences.append(f"Arms without a result: {', '.join(failed)}.")
    return sentences


def with_interval(arm: Arm) -> str:
    """Return an arm's metric with its interval, as in "accuracy 91.4 % (91.0 to 91.7)"."""
    mean, low, high = (arm.unit.write(value) for value in (arm.mean, arm.low, arm.high))
    return f"{arm.metric} {mean}{arm.unit.sign} ({low} to {high})"


@dataclass(frozen=True)
class Evidence:
    """A difference as a sentence, and whether there is evidence for it."""

    sentence: str
    significant: bool


def difference(comparison: Mapping[str, Any], a: Arm, b: Arm) -> Evidence | None:
    """Return the difference of two arms: the declared verdict, or a test of their answers."""
    for verdict in comparison.get("verdicts", []):
        if {verdict.get("a"), verdict.get("b")} == {a.name, b.name}:
            return Evidence(str(verdict["says"]), claimed(verdict))
    result = post_hoc(a, b)
    note = "pair chosen after seeing the results, so p is too small"
    return Evidence(f"{result.sentence} ({note})", result.claimed) if result else None


def post_hoc(a: Arm, b: Arm) -> Difference | None:
    """Test the difference of two arms by their runs' answers; None if the runs do not match."""
    result = _tested(a, b)
    unfinished = tuple(arm.name for arm in (a, b) if not arm.row.get("trained", True))
    return replace(result, untrained=unfinished) if result else None


def _tested(a: Arm, b: Arm) -> Difference | None:
    fixed = [arm.deterministic for arm in (a, b)]
    names = {tuple(folder.name for folder in arm.folders) for arm in (a, b)}
    if not any(fixed) and len(names) > 1:
        return None  # some seeds are missing, so the runs cannot be paired
    scores = [arm.scores for arm in (a, b)]
    complete = zip(scores, (a, b), strict=True)
    if all(runs and len(runs) == len(arm.folders) for runs, arm in complete):
        seeds = max(map(len, scores))
        one, other = (
            runs * seeds if deterministic and len(runs) == 1 else runs
            for runs, deterministic in zip(scores, fixed, strict=True)
        )
        same = len({(run.asked, run.signature) for run in (*one, *other)}) == 1
        same = same and len(one) == len(other) and one[0].examples > 1
        return scoring.difference(one, other, (a.name, b.name)) if same else None
    right_a, right_b = a.right, b.right
    if a.metric != "accuracy" or right_a.size == 0 or right_a.shape[-1] != right_b.shape[-1]:
        return None
    if right_a.shape[-1] < 2:
        return None
    seeds = max(len(right_a), len(right_b))
    right_a, right_b = (
        np.repeat(right, seeds, 0) if deterministic and len(right) == 1 else right
        for right, deterministic in zip((right_a, right_b), fixed, strict=True)
    )
    return (
        compare_runs(right_a, right_b, (a.name, b.name)) if len(right_a) == len(right_b) else None
    )


def _across(comparison: Mapping[str, Any], ranked: Sequence[Arm]) -> list[str]:
    """Compare the best attention arm with the best arm of each other family."""
    first = {family: arm for arm in reversed(ranked) for family in [arm.family]}
    attention = first.get("attention")
    sentences = []
    for family in ("baseline", "network"):
        other = first.get(family)
        if attention is None or other is None:
            continue
        ahead, behind = (other, attention) if other.rank > attention.rank else (attention, other)
        kind, result = KINDS[family], difference(comparison, attention, other)
        pair = ", ".join(f"{arm.name} {_value(arm)}" for arm in (ahead, behind))
        if result and result.significant:
            best = KINDS[behind.family]
            sentences.append(
                f"The best {best}, {behind.name}, has {_value(behind)}: {result.sentence}."
            )
        else:
            tested = f"; {result.sentence}" if result else ""
            sentences.append(f"Best {KINDS['attention']} and best {kind}: {pair}{tested}.")
    return sentences


def _value(arm: Arm) -> str:
    return f"{arm.unit.write(arm.mean)}{arm.unit.sign}"


def _against_reference(comparison: Mapping[str, Any]) -> list[str]:
    reference = str(comparison.get("reference") or "")
    names: dict[str, list[str]] = defaultdict(list)
    margin = ""
    for verdict in comparison.get("verdicts", []):
        if reference not in (verdict.get("a"), verdict.get("b")):
            continue
        if verdict.get("family") == "ladder":  # its p is adjusted in another family
            continue
        forward = verdict.get("b") == reference
        name, gain = verdict["a" if forward else "b"], float(verdict["difference"])
        gain = gain if forward else -gain
        group = "better" if gain > 0 else "worse"
        if not claimed(verdict):
            group = "untrained" if float(verdict["p"]) < 0.05 else "undecided"
        if verdict.get("verdict") == "equivalent":
            group = "untrained" if verdict.get("untrained") else "equivalent"
            margin = written_margin(float(verdict["delta"]), unit_of(comparison["metric"]).points)
        names[group].append(str(name))
    sentences = {
        "better": f"Evidence of a gain over {reference}",
        "worse": f"Evidence of a loss against {reference}",
        "equivalent": f"Equivalent to {reference} within {margin}",
        "untrained": f"Training did not converge, so no claim about the method against {reference}",
        "undecided": f"No evidence of a difference from {reference}",
    }
    return [
        f"{says}: {', '.join(names[group])}." for group, says in sentences.items() if names[group]
    ]
