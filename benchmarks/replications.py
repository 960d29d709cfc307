"""Write the results of replications into docs/results/replications.md.

    python -m benchmarks.replications RUNS/MEMBER/results.json …
    python -m benchmarks.replications --fresh RUNS/MEMBER/results.json …

Each file has the results of one member (``only=MEMBER``). Its rows and arms, with the text below
them, replace those that stand there; other members stay as they are. With ``--fresh`` the results
are those of other seeds: their rows go into a table of their own, which counts equal verdicts.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from regard.core.errors import RegardError
from regard.core.reading import read_json
from regard.lab.labs.replications.lab import LAB
from regard.lab.labs.replications.outcomes import COLUMNS

PAGE = Path(__file__).parents[1] / "docs/results/replications.md"
DECIDED, FRESH = "## Decided", "## With fresh seeds"
ORDER = [member.name for member in LAB.members]


def written(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown.

    >>> print(written(["arm", "seeds"], [["softmax", 3]]))
    | arm | seeds |
    |---|---|
    | softmax | 3 |
    """
    lines = [columns, ["---"] * len(columns), *rows]
    text = "\n".join(f"| {' | '.join(map(escaped, line))} |" for line in lines)
    return text.replace(" --- ", "---")


def escaped(cell: object) -> str:
    """Return a cell of a table as text, each | escaped once."""
    return re.sub(r"(?<!\\)\|", r"\|", str(cell))


def merged(page: str, results: Sequence[dict[str, Any]], heading: str = DECIDED) -> str:
    """Return the page with the rows and arms of results in place of those of the same members."""
    head, _, rest = page.partition(heading)
    here, mark, after = rest.partition("\n## ")
    table, *sections = here.split("\n### ")
    rows: dict[str, list[Sequence[object]]] = {}
    for row in rows_of(table):
        rows.setdefault(row[-1], []).append(row)
    arms = {section.partition(":")[0]: section.strip() for section in sections}
    for result in results:
        if len(result["parts"]) != 1:
            raise RegardError(
                f"results of {', '.join(result['parts'])}: give only=MEMBER to the lab"
            )
        tables = {one["title"]: one for one in result["tables"]}
        summary = next(one for one in result["tables"] if tuple(one["columns"]) == COLUMNS)
        (name,) = result["parts"]
        rows[name] = [[*row, name] for row in summary["rows"]]
        of_arms = tables[f"{name}: the arms"]
        arms[name] = f"{name}: the arms\n\n{written(of_arms['columns'], of_arms['rows'])}"
    known = [name for name in ORDER if name in rows]
    parts = [written([*COLUMNS, "member"], [row for name in known for row in rows[name]])]
    if heading == FRESH:
        parts.insert(0, agreement(head.partition(DECIDED)[2], parts[0]))
    else:
        parts += [f"### {arms[name]}" for name in known]
    return "\n\n".join([head + heading, *parts]) + "\n" + mark + after


def rows_of(table: str) -> list[list[str]]:
    r"""Return the cells of the rows of a table.

    >>> rows_of(written(["arm", "here"], [["a", "1 | 2"]]))
    [['a', '1 \\| 2']]
    """
    lines = [line for line in table.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def agreement(first: str, again: str) -> str:
    """Return how many findings of the second table have the verdict of the first."""
    before, after = (
        {finding: verdict.split(",")[0] for finding, *_, verdict, _ in rows_of(table)}
        for table in (first.partition("\n### ")[0], again)
    )
    same = sum(before[finding] == verdict for finding, verdict in after.items())
    return f"{same} of {len(after)} verdicts are those of the first seeds."


def main(arguments: Sequence[str]) -> int:
    """Write the page; return the exit status."""
    if not arguments:
        print(__doc__)
        return 2
    fresh = arguments[0] == "--fresh"
    results = [read_json(Path(name)) for name in arguments[fresh:]]
    page = merged(PAGE.read_text(encoding="utf-8"), results, FRESH if fresh else DECIDED)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
