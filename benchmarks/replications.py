"""Write the results of replications into docs/results/replications.md.

    python -m benchmarks.replications RUNS/MEMBER/results.json …

Each file has the results of one member (``only=MEMBER``). Its rows and arms, with the text below
them, replace those that stand there; other members stay as they are.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.lab.labs.replications.lab import LAB
from regard.lab.labs.replications.outcomes import COLUMNS

PAGE = Path(__file__).parents[1] / "docs/results/replications.md"
DECIDED, EARLIER = "## Decided", "## By the earlier rule"
ORDER = [member.name for member in LAB.members]


def written(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown.

    >>> print(written(["arm", "seeds"], [["softmax", 3]]))
    | arm | seeds |
    |---|---|
    | softmax | 3 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[str(cell).replace("|", r"\|") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells).replace(" --- ", "---")


def merged(page: str, results: Sequence[dict[str, Any]]) -> str:
    """Return the page with the rows and arms of results in place of those of the same members."""
    head, _, rest = page.partition(DECIDED)
    decided, _, earlier = rest.partition(EARLIER)
    table, *sections = decided.split("\n### ")
    rows: dict[str, list[str]] = {}
    for line in table.strip().splitlines()[2:]:
        rows.setdefault(line.rstrip("| ").rpartition("| ")[2], []).append(line)
    arms = {section.partition(":")[0]: section.strip() for section in sections}
    for result in results:
        if len(result["parts"]) != 1:
            raise RegardError(
                f"results of {', '.join(result['parts'])}: give only=MEMBER to the lab"
            )
        tables = {one["title"]: one for one in result["tables"]}
        summary = next(one for one in result["tables"] if tuple(one["columns"]) == COLUMNS)
        (name,) = result["parts"]
        own = [[*row, name] for row in summary["rows"]]
        rows[name] = written(["", ""], own).splitlines()[2:]
        of_arms = tables[f"{name}: the arms"]
        arms[name] = f"{name}: the arms\n\n{written(of_arms['columns'], of_arms['rows'])}"
    known = [name for name in ORDER if name in rows]
    lines = [written([*COLUMNS, "member"], []), *(line for name in known for line in rows[name])]
    parts = ["\n".join(lines), *(f"### {arms[name]}" for name in known)]
    return "\n\n".join([head + DECIDED, *parts, EARLIER + earlier])


def main(arguments: Sequence[str]) -> int:
    """Write the page; return the exit status."""
    if not arguments:
        print(__doc__)
        return 2
    results = [read_json(Path(name)) for name in arguments]
    PAGE.write_text(merged(PAGE.read_text(encoding="utf-8"), results), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
