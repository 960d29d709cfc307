"""The share of small faults in regard's own code that the tests find.

    pytest --cov=regard --cov-context=test -n 2          # writes .coverage
    python -m benchmarks.code_mutants --of 60 --seed 0 --out mutants.json

A mutant is one changed place: another comparison or arithmetic operator, a constant moved by one, a
condition negated, ``and`` for ``or``, a default or a keyword argument dropped. Texts, annotations,
docstrings and ``raise`` statements stay as they are. Each mutant is written into a copy of the
tree, and the tests that reach its line (by ``.coverage``) run until the first fails, the fastest
first. It is killed if one fails, hangs or cannot be imported. Mutants of one seed are the same as
long as the files are; a mutant that no test reaches survives.
"""

import argparse
import ast
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue

FOLDERS = ("attention", "nn/layers", "nn/models", "training", "lab/studies")
HERE = Path(__file__).parent.parent
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
#: A fault that makes a test wait is found after this many seconds, or ten times the test's own.
HANGS = 120.0


@dataclass(frozen=True)
class Mutant:
    """One changed place: the file, the line, the code before and after."""

    path: str
    line: int
    before: str
    after: str
    start: tuple[int, int]
    end: tuple[int, int]

    def source(self, text: str) -> str:
        """Return a file's text with the place changed."""
        lines = text.encode().splitlines(keepends=True)
        first, last = self.start[0] - 1, self.end[0] - 1
        head, tail = lines[first][: self.start[1]], lines[last][self.end[1] :]
        changed = [*lines[:first], head + self.after.encode() + tail, *lines[last + 1 :]]
        return b"".join(changed).decode()


class Places(ast.NodeVisitor):
    """Collects the places of one file that can be changed, each with its new code."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text, self.found = path, text, list[Mutant]()

    def put(self, node: ast.expr, new: ast.AST) -> None:
        """Add a place unless its code would stay the same."""
        before, after = ast.unparse(node), f"({ast.unparse(new)})"
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        if f"({before})" != after and None not in end:
            self.found.append(Mutant(self.path, node.lineno, before, after, start, end))  # type: ignore[arg-type]

    def visit_Raise(self, node: ast.Raise) -> None:
        """Skip errors: their text is not behaviour."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Skip formatted texts."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Change the value, never the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Change defaults and body, never annotations or decorators."""
        for one in (*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body):
            self.visit(one)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_If(self, node: ast.If) -> None:
        """Negate a condition, except that of imports for types."""
        if ast.unparse(node.test) == "TYPE_CHECKING":
            return
        self.put(node.test, ast.UnaryOp(ast.Not(), node.test))
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """Exchange the two values."""
        self.put(node, ast.IfExp(node.test, node.orelse, node.body))
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Change the first comparison."""
        if swap := SWAPS.get(type(node.ops[0])):
            self.put(node, ast.Compare(node.left, [swap(), *node.ops[1:]], node.comparators))  # type: ignore[list-item]
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Change the operator."""
        if (swap := SWAPS.get(type(node.op))) and not ast.unparse(node.left).startswith(("'", '"')):
            self.put(node, ast.BinOp(node.left, swap(), node.right))  # type: ignore[arg-type]
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """Exchange and, or."""
        self.put(node, ast.BoolOp(SWAPS[type(node.op)](), node.values))  # type: ignore[arg-type]
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Drop a sign or a negation."""
        self.put(node, node.operand)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """Negate a truth value; move a number by one."""
        if isinstance(node.value, bool):
            self.put(node, ast.Constant(not node.value))
        elif isinstance(node.value, int | float):
            self.put(node, ast.Constant(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        """Drop the last keyword argument."""
        if node.keywords and node.keywords[-1].arg:
            self.put(node, ast.Call(node.func, node.args, node.keywords[:-1]))
        self.generic_visit(node)


def places(path: Path) -> list[Mutant]:
    """Return the places that can be changed in one file of the package."""
    text = path.read_text(encoding="utf-8")
    collector = Places(str(path.relative_to(HERE)), text)
    collector.visit(ast.parse(text))
    return collector.found


def drawn(folder: str, count: int, seed: int) -> list[Mutant]:
    """Return a folder's mutants: places drawn by the seed."""
    files = sorted((HERE / "regard" / folder).rglob("*.py"))
    every = [one for path in files if "triton" not in path.parts for one in places(path)]
    return random.Random(f"{folder} {seed}").sample(every, min(count, len(every)))


class Reached:
    """The tests that reach a line, by a coverage file with contexts."""

    def __init__(self, path: Path) -> None:
        from coverage.numbits import numbits_to_nums

        self.tests: dict[tuple[str, int], set[str]] = {}
        rows = sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute(
            "select file.path, context.context, numbits from line_bits "
            "join file on file.id = file_id join context on context.id = context_id"
        )
        for name, context, bits in rows:
            inside = name[name.rindex("/regard/") + 1 :]
            test = context.partition("|")[0]
            for line in numbits_to_nums(bits) if test else ():
                self.tests.setdefault((inside, line), set()).add(test)

    def of(self, mutant: Mutant) -> set[str]:
        """Return the tests of a mutant; for lines that run on import, those of its whole file."""
        lines = range(mutant.start[0], mutant.end[0] + 1)
        found = {test for line in lines for test in self.tests.get((mutant.path, line), ())}
        if found:
            return found
        return {test for (path, _), tests in self.tests.items() if path == mutant.path
                for test in tests}  # fmt: skip


def killed(mutant: Mutant, tree: Path, tests: Sequence[str], usual: float) -> str:
    """Return how the tests end on a mutant: "failed", "hung" or "survived"."""
    path = tree / mutant.path
    sound = path.read_text(encoding="utf-8")
    path.write_text(mutant.source(sound), encoding="utf-8")
    names = tree / "names.txt"
    names.write_text("\n".join(tests), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider",
               "-m", "", f"@{names.name}"]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1",
                                "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    try:
        done = subprocess.run(  # noqa: S603
            command, cwd=tree, env=environment, capture_output=True, check=False,
            timeout=max(HANGS, 10 * usual),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hung"
    finally:
        path.write_text(sound, encoding="utf-8")
    return "failed" if done.returncode else "survived"


def durations(path: Path) -> dict[str, float]:
    """Return the seconds of each test from ``pytest --durations=0 -vv``, if the file exists."""
    found: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        seconds, _, rest = line.partition("s ")
        words = rest.split(maxsplit=1)
        if len(words) == 2 and words[0] in ("call", "setup") and seconds.replace(".", "").isdigit():
            found[words[1]] = found.get(words[1], 0.0) + float(seconds)
    return found


def main() -> None:
    """Draw the mutants, try each, and print the share that is killed in each folder."""
    reader = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    reader.add_argument("folders", nargs="*", default=FOLDERS, help="folders of the package")
    reader.add_argument("--of", type=int, default=60, help="mutants of each folder")
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--coverage", type=Path, default=HERE / ".coverage")
    reader.add_argument("--durations", type=Path, default=HERE / "durations.txt")
    reader.add_argument("--workers", type=int, default=2)
    reader.add_argument("--out", type=Path, required=True, help="file of results, continued")
    options = reader.parse_args()
    reached, seconds = Reached(options.coverage), durations(options.durations)
    done = json.loads(options.out.read_text("utf-8")) if options.out.exists() else []
    known = {(one["path"], tuple(one["start"]), one["after"]) for one in done}
    mutants = [
        (folder, one)
        for folder in options.folders
        for one in drawn(folder, options.of, options.seed)
        if (one.path, one.start, one.after) not in known
    ]
    random.Random(options.seed).shuffle(mutants)
    trees: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(options.workers) as pool:
        for worker in range(options.workers):
            tree = Path(place) / f"tree-{worker}"
            left = shutil.ignore_patterns(".venv", ".git", "__pycache__", ".*_cache", "_build")
            shutil.copytree(HERE, tree, ignore=left)
            trees.put(tree)

        def attempt(pair: tuple[str, Mutant]) -> None:
            folder, mutant = pair
            tests = sorted(reached.of(mutant), key=lambda test: seconds.get(test, 0.0))
            tree, start = trees.get(), time.monotonic()
            usual = sum(seconds.get(test, 0.0) for test in tests)
            ended = killed(mutant, tree, tests, usual) if tests else "unreached"
            trees.put(tree)
            took = round(time.monotonic() - start, 1)
            done.append(asdict(mutant) | {"folder": folder, "ended": ended, "tests": len(tests),
                                          "seconds": took})  # fmt: skip
            options.out.write_text(json.dumps(done, indent=1), encoding="utf-8")
            print(f"{len(done)} {ended:9} {len(tests):5} tests {took:6} s  {mutant.path}:"
                  f"{mutant.line}  {mutant.before} → {mutant.after}", flush=True)  # fmt: skip

        list(pool.map(attempt, mutants))
    for folder in options.folders:
        count = Counter(one["ended"] for one in done if one["folder"] == folder)
        found = count["failed"] + count["hung"]
        print(f"{folder}: {found} of {count.total()} killed ({found / max(count.total(), 1):.0%})")


if __name__ == "__main__":
    main()
