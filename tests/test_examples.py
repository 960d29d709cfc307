"""Each file of examples/ is whole, as short as docs/extending.md says, and works where it says."""

import ast
import re
import runpy
from pathlib import Path

import pytest

from tests.lab.cli.conftest import TINY, Command, regard  # noqa: F401 - a fixture
from tests.test_documents import parse

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TABLE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (.+?) \| \[(\w+\.py)\]\(.+?\) \| (\d+) \| `(.+?)` \|$", re.M)
ROWS = {file: (part, int(lines), command) for part, file, lines, command in ROW.findall(TABLE)}


def lines_of(path: Path) -> int:
    """Return the lines of a file that are neither empty nor its docstring."""
    text = path.read_text(encoding="utf-8")
    docstring = ast.parse(text).body[0].end_lineno or 0
    return sum(bool(line.strip()) for line in text.splitlines()[docstring:])


def test_the_table_has_every_example() -> None:
    assert set(ROWS) == {path.name for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_lines_and_commands(path: Path) -> None:
    _, lines, command = ROWS[path.name]
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert lines_of(path) == lines <= 15
    for line in (command, *docstring.splitlines()):
        assert f"examples/{path.name}:" in line
        parse(line)
    runpy.run_path(str(path))  # what it imports is there


@pytest.mark.parametrize(
    "file", [file for file in ROWS if ROWS[file][2].startswith("regard train")]
)
def test_it_trains_and_answers(
    file: str,
    regard: Command,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    words = ROWS[file][2].split()[1:]
    tiny = TINY if "transformer" in words else ["examples=120", "epochs=2", "threads=1"]
    if file == "my_task.py":
        words += ["--model", "mean"]
    trained = regard(*words, *tiny, "--out", tmp_path / "run")
    assert trained.status == 0, trained.err
    answered = regard("predict", tmp_path / "run", "a fine box")
    assert answered.status == 0, answered.err
    assert re.search(r"positive|negative|good|bad", answered.out)
