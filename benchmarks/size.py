"""The size of regard: lines and files of each folder, long functions, modules of an import.

    python -m benchmarks.size > size.json
    git worktree add OTHER COMMIT && (cd OTHER && python -m benchmarks.size)

Lines are those of Python and C++ files, blank lines and docstrings included.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONG_FUNCTION, MANY_PARAMETERS = 60, 7
#: Imports whose closures are counted, in modules of regard and in distributions' modules.
IMPORTS = {
    "regard.attend": "import regard; regard.attend",
    "regard.training.loop": "import regard.training.loop",
    "regard.load": "import regard; regard.load",
    "the server": "import regard.lab.web.server",
}


def folders() -> dict[str, dict[str, int]]:
    """Return the lines and files of each folder of the package, two levels deep, and others."""
    found: dict[str, dict[str, int]] = {}
    for top in ("regard", "tests", "benchmarks", "examples", "docs"):
        for path in sorted(
            x for kind in ("py", "cpp", "h") for x in (ROOT / top).rglob(f"*.{kind}")
        ):
            parts = path.relative_to(ROOT).parent.parts
            name = "/".join(parts[: 3 if top == "regard" else 1])
            row = found.setdefault(name, {"lines": 0, "files": 0})
            row["lines"] += len(path.read_text(encoding="utf-8").splitlines())
            row["files"] += 1
    return found


def functions() -> Iterator[tuple[str, int, int]]:
    """Yield the place of each function of the package, its lines and its parameters."""
    for path in sorted((ROOT / "regard").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = node.args
                count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs)
                place = f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
                yield place, (node.end_lineno or node.lineno) - node.lineno + 1, count


def closure(code: str) -> dict[str, int]:
    """Return how many modules of regard, and of other packages, an import loads."""
    count = (
        f"{code}\nimport sys, sysconfig\n"
        "own = [name for name in sys.modules if name.split('.')[0] == 'regard']\n"
        "tops = {name.split('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)\n"
        "print(len(own), len({top for top in tops if not top.startswith('_')}))"
    )
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", count], capture_output=True, text=True, check=True, cwd=ROOT
    )
    own, others = map(int, done.stdout.split()[-2:])
    return {"modules of regard": own, "packages": others}


def main() -> None:
    """Print everything as JSON."""
    every = list(functions())
    report = {
        "folders": folders(),
        "functions": len(every),
        f"functions over {LONG_FUNCTION} lines": [
            f"{place} ({lines})" for place, lines, _ in every if lines > LONG_FUNCTION
        ],
        f"functions of more than {MANY_PARAMETERS} parameters": [
            f"{place} ({count})" for place, _, count in every if count > MANY_PARAMETERS
        ],
        "imports": {name: closure(code) for name, code in IMPORTS.items()},
    }
    json.dump(report, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
