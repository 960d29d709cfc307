"""A few test texts seen by the best arms that attend: every head, in a comparison's report."""

from collections.abc import Sequence
from typing import Any

from regard.errors import RegardError
from regard.reports.attended import choose
from regard.reports.evidence import Arm
from regard.reports.markup import Html, tag
from regard.reports.run import look, stored

ARMS = 3  # the best of those that attend
TEXTS = 2
LEAST = 60_000  # bytes below which a look has no room


def stored_looks(arms: Sequence[Arm], room: int) -> dict[str, Any] | None:
    """Looks of at most `room` bytes for `page` to store; None where no run can be loaded."""
    chosen = choose([arm for arm in arms if arm.answers])[:TEXTS]
    able = sorted((arm for arm in arms if arm.family == "attention"), key=lambda a: -a.rank)
    share = room // max(1, ARMS * len(chosen))
    if not chosen or share < LEAST:
        return None
    looks: list[dict[str, Any]] = []
    for arm in able:
        if len(looks) < ARMS * len(chosen):
            looks += _looks(arm, [answer.text for answer in chosen], share)
    return stored("Model and text", looks) if looks else None


def _looks(arm: Arm, texts: Sequence[str], share: int) -> list[dict[str, Any]]:
    """What an arm's first run that can be loaded looks at; nothing where none can."""
    from regard.runs import load

    for folder in arm.folders:
        try:
            run = load(folder)
            found = [{"run": arm.name, **look(run, text, share)} for text in texts]
        except (RegardError, OSError):
            continue
        return [seen for seen in found if seen["layers"]]
    return []


def place() -> list[Html]:
    """Where the page draws them."""
    how = "Every head of the best arms that attend, on texts that divide the arms: point at words."
    return [tag("h2", "Look for yourself"), tag("p", how, class_="note"), tag("div", id="looks")]
