"""Results of a replication take the place of those of the same member on the page."""

import pytest

from benchmarks.replications import PAGE, merged
from regard.core.errors import RegardError
from regard.lab.labs.replications.outcomes import COLUMNS


def result(*members):
    rows = [["it stacks", "a paper", "100 %", "99 | 98 %", 3, 0.5, "agrees"]]
    arms = {"title": "stack: the arms", "columns": ["arm", "seeds"], "rows": [["kda", 3]]}
    summary = {"title": "Summary", "columns": list(COLUMNS), "rows": rows}
    return {"parts": {name: {} for name in members}, "tables": [summary, arms]}


def test_one_member_is_replaced():
    page = PAGE.read_text(encoding="utf-8")
    assert merged(page, []) == page
    found = merged(page, [result("stack")])
    assert "| it stacks | a paper | 100 % | 99 \\| 98 % | 3 | 0.5 | agrees | stack |\n" in found
    assert "### stack: the arms\n\n| arm | seeds |\n|---|---|\n| kda | 3 |\n" in found
    others = [line for line in page.splitlines() if not line.endswith("| stack |")]
    assert set(others) - set(found.splitlines()) <= set(page.partition("### stack")[2].splitlines())
    assert merged(found, [result("stack")]) == found


def test_several_members_are_refused():
    with pytest.raises(RegardError, match="results of stack, recall: give only=MEMBER"):
        merged(PAGE.read_text(encoding="utf-8"), [result("stack", "recall")])
