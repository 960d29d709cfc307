"""Interactive attention views of the best arms, for the report of a comparison."""

from collections.abc import Sequence
from typing import Any

from regard.lab.reports.attended import choose
from regard.lab.reports.evidence import Arm
from regard.lab.reports.markup import Html, tag
from regard.lab.reports.run import look, stored

ARMS = 3  # best attention arms shown
TEXTS = 2
LEAST = 60_000  # minimum bytes of a view


def stored_looks(arms: Sequence[Arm], room: int) -> dict[str, Any] | None:
    """Return views of at most `room` bytes for `page` to store; None if no run can be loaded."""
    chosen = choose([arm for arm in arms if arm.answers])[:TEXTS]
    ranked = sorted((arm for arm in arms if arm.family == "attention"), key=lambda a: -a.rank)
    share = room // max(1, ARMS * len(chosen))
    if not chosen or share < LEAST:
        return None
    looks: list[dict[str, Any]] = []
    for arm in ranked:
        if len(looks) < ARMS * len(chosen):
            looks += _looks(arm, [answer.text for answer in chosen], share)
    return stored("Model and text", looks) if looks else None


def _looks(arm: Arm, texts: Sequence[str], share: int) -> list[dict[str, Any]]:
    """Return the views of the arm's first loadable run; empty without one."""
    views = arm.from_run(lambda run: [look(run, text, share) for text in texts])
    return [{"run": arm.name, **view} for view in views if view["layers"]]


def place() -> list[Html]:
    """Return the element in which the page draws the views."""
    how = (
        "All heads of the best attention arms, on texts on which the arms disagree. Point at a "
        "word to see its weights."
    )
    return [tag("h2", "Explore attention"), tag("p", how, class_="note"), tag("div", id="looks")]
