"""What is imported is declared, what is declared is imported, and every version is pinned."""

import ast
import re
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
OWN = {"regard", "benchmarks", "tests", "examples"}
#: Distributions whose module has another name.
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL", "markdown-it-py": "markdown_it"}
#: Distributions that are run, or that a tool looks for, and that nobody imports.
TOOLS = {"pytest-cov", "pytest-xdist", "ruff", "mypy", "scipy-stubs"} | {
    "sphinx", "myst-nb", "furo", "sphinx-copybutton", "sphinx-design", "ipykernel"
}  # fmt: skip
#: What pip freeze leaves out.
UNPINNED = {"setuptools"}
#: What a script asks for that has no place in an environment of regard's.
ELSEWHERE = {
    "datasets": "comes with setfit",
    "fasttext": "an arm for whoever has it: its wheels are built for few versions of Python",
    "joeynmt": "benchmarks/joey_process.py runs under the python of another environment",
    "mlflow": "a user's own: its pins contradict ours, and examples/trackers needs only its client",
    "setfit": "benchmarks/few_labels.py measures it where it is installed",
    "wandb": "a user's own service; examples/trackers says how to install it",
    "works": "tests/lab/studies/test_launch.py writes it",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def declared(*extras: str) -> dict[str, str]:
    """The distribution of each module that is declared, extras that an extra names included."""
    wanted = list(PROJECT["dependencies"] if not extras else [])
    for extra in extras:
        wanted += PROJECT["optional-dependencies"][extra]
    modules = {}
    for requirement in map(Requirement, wanted):
        if requirement.name == "regard":
            modules |= declared(*sorted(requirement.extras))
        else:
            name = MODULES.get(requirement.name, requirement.name.replace("-", "_"))
            modules[name] = requirement.name
    return modules


@cache
def imported(folder: str) -> dict[str, str]:
    """Each module from elsewhere that a folder's files import, and where."""
    modules = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                if top not in sys.stdlib_module_names and top not in OWN | ELSEWHERE.keys():
                    modules[top] = f"{path.relative_to(ROOT)}:{node.lineno}"
    return modules


def named(module: str) -> bool:
    """Whether a file names the module in a string, as `import_module` and pytest take it."""
    quoted = re.compile(f"[\"']{module}[.\"']")
    files = (path for folder in sorted(OWN) for path in (ROOT / folder).rglob("*.py"))
    return any(quoted.search(path.read_text(encoding="utf-8")) for path in files)


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        ("regard", ("hf", "data", "export", "triton", "cluster", "track")),
        ("benchmarks", ("bench",)),
        ("tests", ("deep",)),
        ("examples", ()),
    ],
)
def test_what_is_imported_is_declared(folder: str, extras: tuple[str, ...]) -> None:
    known = declared() | (declared(*extras) if extras else {})
    assert {name: place for name, place in imported(folder).items() if name not in known} == {}


def test_what_is_declared_is_imported() -> None:
    assert sorted(declared().keys() - imported("regard").keys()) == []
    extras = declared(*PROJECT["optional-dependencies"])
    unused = extras.keys() - {name for folder in OWN for name in imported(folder)}
    assert [name for name in sorted(unused) if extras[name] not in TOOLS and not named(name)] == []


def test_every_version_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {plain(line.partition("==")[0]) for line in lines if "==" in line}
    names = set(declared().values())
    for extra in PROJECT["optional-dependencies"]:
        names |= set(declared(extra).values())
    assert [name for name in sorted(names) if plain(name) not in pinned] == []
    todo, seen = sorted(names), set[str]()
    while todo:  # and what these need in their turn, as far as it is installed here
        name = plain(todo.pop())
        if name in seen:
            continue
        seen.add(name)
        try:
            needs = [Requirement(text) for text in metadata.requires(name) or []]
        except metadata.PackageNotFoundError:
            continue
        todo += [r.name for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    foreign = re.compile("nvidia-|cuda-|triton")  # of torch's builds for a GPU
    assert sorted(x for x in seen - pinned - UNPINNED if not foreign.match(x)) == []


def plain(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
