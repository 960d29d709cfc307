"""Results of a replication take the place of those of the same member on the page."""

import pytest

from benchmarks.replications import DECIDED, FRESH, PAGE, merged
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
    assert found.count("## Exclusive outputs by length") == 1


def test_fresh_seeds_have_a_table_of_their_own():
    page = merged(f"# Page\n\n{DECIDED}\n\n", [result("stack")]) + f"\n{FRESH}\n\n## More\n"
    found = merged(page, [result("stack")], FRESH)
    head, _, own = found.partition(FRESH)
    assert head == page.partition(FRESH)[0]
    assert own.startswith("\n\n1 of 1 verdicts are those of the first seeds.\n\n| finding |")
    assert own.endswith("| agrees | stack |\n\n## More\n")
    assert merged(found, [result("stack")], FRESH) == found
    other = result("stack")
    other["tables"][0]["rows"][0][-1] = "undecided, needs more steps"
    assert "0 of 1 verdicts" in merged(found, [other], FRESH)


def test_several_members_are_refused():
    with pytest.raises(RegardError, match="results of stack, recall: give only=MEMBER"):
        merged(PAGE.read_text(encoding="utf-8"), [result("stack", "recall")])
