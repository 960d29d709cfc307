"""A folder imports only from those above it; this reads every import to hold it so."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "regard"
ORDER = (
    "usual spelling errors reading ranges settings atomic_io memory plugins trusted tables shown "
    "stopping watchdog ranks attention layers models data decoding analysis tasks conformance "
    "training interop runs studies reports labs web cli"
).split()
NEVER = {("data", "models"), ("decoding", "models")}
#: Modules of attention/ that kernels rest on: they import from each other and from no kernel.
CONTRACTS = (
    "tracing twin prepared acceleration score mask normalizer mask_context sanitize call".split()
)
ENTRANCES = {PACKAGE / "__init__.py", PACKAGE / "__main__.py"}  # lazy, and the command
FILES = sorted(path for path in PACKAGE.rglob("*.py") if path not in ENTRANCES)


def imported(path: Path, source: str) -> Iterator[tuple[int, str]]:
    """Yield each regard module that a file imports, with its line, wherever in the file it is."""
    package = ("regard", *path.relative_to(PACKAGE).parts[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*home, *([node.module] if node.module else [])))
            names = [
                f"{module}.{alias.name}" if module == "regard" else module for alias in node.names
            ]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "regard" and "." in name:
                yield node.lineno, name.removeprefix("regard.")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_only_from_above(path: Path) -> None:
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert here in ORDER, f"{here} has no place in the layout; give it one in design and here"
    for line, module in imported(path, path.read_text(encoding="utf-8")):
        there = module.split(".")[0]
        assert there in ORDER, f"{path}:{line} imports regard.{there}, which has no place"
        assert ORDER.index(there) <= ORDER.index(here), f"{path}:{line} imports {there} from below"
        assert (here, there) not in NEVER, f"{path}:{line}: {here} and {there} meet in tasks"


@pytest.mark.parametrize("name", CONTRACTS)
def test_contracts_of_attention_import_from_each_other_alone(name: str) -> None:
    path, known = PACKAGE / "attention" / f"{name}.py", {f"attention.{x}" for x in CONTRACTS}
    for line, module in imported(path, path.read_text(encoding="utf-8")):
        if module.split(".")[0] == "attention":
            assert module in known, f"{path}:{line} imports regard.{module}, which is no contract"


def test_no_catch_all_module() -> None:
    assert [path for path in FILES if path.stem in {"utils", "helpers", "common", "misc"}] == []


def test_the_check_sees_every_way_to_import() -> None:
    source = """
import regard.web.api
from regard import cli, errors
def f():
    from regard.labs import sentiment
    from ..studies import compare
    from .kernels import exact
"""
    path = PACKAGE / "attention" / "imaginary.py"
    found = [there for _, there in imported(path, source)]
    assert found == [
        "web.api", "cli", "errors", "labs", "studies", "attention.kernels"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "unused"),
    [
        ("import regard; regard.attend", "pydantic sklearn scipy pandas triton rich"),
        ("import regard; regard.load", "sklearn scipy.stats pandas triton"),
    ],
)
def test_a_library_that_takes_long_is_imported_when_it_is_used(use: str, unused: str) -> None:
    code = f"import sys; {use}; print(*sorted(set({unused.split()}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
