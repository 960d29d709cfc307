"""Where an arm goes wrong: its confusion, and what it was surest of and wrong about."""

import math
from collections.abc import Sequence

from regard.reports.evidence import Answer, Arm, confusion_of
from regard.reports.maps import confusion
from regard.reports.markup import Html, shorten, tag

SHOWN = 6  # mistakes of the best arm
LENGTH = 600  # signs of a text; longer ones are cut, with a mark
LABELS = 12  # a confusion of more has no room for its numbers


def section(arms: Sequence[Arm]) -> list[Html]:
    """The confusion of the best arm that tells its answers, and its most confident mistakes."""
    best = max((arm for arm in arms if arm.answers), key=lambda arm: arm.rank, default=None)
    if best is None:
        return []
    parts = [tag("h2", "Where it goes wrong")]
    labels, counts = confusion_of(best.answers)
    if 2 <= len(labels) <= LABELS:
        chart = confusion(f"Confusion of {best.name}", labels, counts)
        note = f"{best.folders[0].name} of {best.name}, {len(best.answers):,} test texts."
        parts.append(tag("figure", tag("div", chart, class_="scroll"), tag("figcaption", note)))
    wrong = confident_mistakes(best.answers)
    if not wrong:
        return [*parts, tag("p", f"{best.name} makes no mistake on these texts.")]
    parts.append(tag("h3", f"What {best.name} is surest of, and wrong about"))
    return parts + [_mistake(answer) for answer in wrong]


def confident_mistakes(answers: Sequence[Answer]) -> list[Answer]:
    """The wrong answers of highest confidence, the surest first."""
    wrong = [answer for answer in answers if not answer.right]
    wrong.sort(key=lambda a: (-a.confidence if math.isfinite(a.confidence) else 0.0, a.index))
    return wrong[:SHOWN]


def _mistake(answer: Answer) -> Html:
    sure = f", {answer.confidence:.1%} sure" if math.isfinite(answer.confidence) else ""
    verdict = tag(
        "p", tag("b", f"said {answer.said}{sure}"), tag("span", f" in truth {answer.truth}"),
    )  # fmt: skip
    text = tag("p", shorten(answer.text, LENGTH) or f"test text {answer.index}", dir="auto")
    return tag("div", verdict, text, class_="rung")
