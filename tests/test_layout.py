"""A folder imports only from those above it; this reads every import to hold it so."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "regard"
#: What each folder contains, in order: the library, then the laboratory; inside of both, a folder
#: imports only from those before it.
ORDER = {
    "": "core attention nn decoding analysis training conformance interop lab",
    "core": (
        "usual errors names reading ranges settings atomic_io memory plugins trusted tables shown"
    ),
    "nn": "layers models",
    "lab": "data tasks runs studies reports labs exercises web cli",
}
NEVER = {("lab.data", "nn.models"), ("decoding", "nn.models")}
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
            whole = module in {"regard", "regard.core", "regard.nn", "regard.lab"}
            names = [f"{module}.{alias.name}" if whole else module for alias in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "regard" and "." in name:
                yield node.lineno, name.removeprefix("regard.")


def places(here: list[str], there: list[str]) -> tuple[str, str, str]:
    """Return the innermost folder that holds both modules, and the place of each in it."""
    for depth, (one, other) in enumerate(zip(here, there, strict=False)):
        if one != other:
            return ".".join(here[:depth]), one, other
    return ".".join(here[: min(len(here), len(there))]), "", ""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_only_from_above(path: Path) -> None:
    here = list(path.relative_to(PACKAGE).with_suffix("").parts)
    for line, module in imported(path, path.read_text(encoding="utf-8")):
        folder, mine, other = places(here, module.split("."))
        order = ORDER.get(folder, "").split()
        if order and mine and "__init__" not in (mine, other):
            assert mine in order, f"{mine} has no place in the layout; give it one here"
            assert other in order, f"{path}:{line} imports regard.{module}, which has no place"
            assert order.index(other) < order.index(mine), f"{path}:{line} imports {module}"
        for one, never in NEVER:
            both = ".".join(here).startswith(f"{one}.") and module.startswith(never)
            assert not both, f"{path}:{line}: {one} and {never} meet in tasks"


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
import regard.lab.web.api
from regard.lab import cli
from regard.core import errors
def f():
    from regard.lab.labs import sentiment
    from ..studies import compare
    from .kernels import exact
"""
    path = PACKAGE / "attention" / "imaginary.py"
    found = [there for _, there in imported(path, source)]
    assert found == [
        "lab.web.api", "lab.cli", "core.errors", "lab.labs", "studies", "attention.kernels"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "unused"),
    [
        ("import regard; regard.attend", "pydantic sklearn scipy pandas triton rich"),
        ("import regard; regard.load", "sklearn scipy.stats pandas triton"),
        ("import regard; regard.html; regard.plot", "matplotlib"),
        ("import regard.lab.labs, regard.lab.web.api, regard.lab.cli.main", "matplotlib"),
    ],
)
def test_a_library_that_takes_long_is_imported_when_it_is_used(use: str, unused: str) -> None:
    code = f"import sys; {use}; print(*sorted(set({unused.split()}) & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_files_of_the_type_check_exist() -> None:
    folder = PACKAGE.parent / "scripts"
    named = json.loads((folder / "tsconfig.json").read_text(encoding="utf-8"))["files"]
    assert [name for name in named if not (folder / name).is_file()] == []
