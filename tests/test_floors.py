"""The library works without the laboratory and without the packages that only it needs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard
from benchmarks.package import LIBRARY
from regard.lab import NEEDED
from tests.test_dependencies import MODULES, declared

ROOT = Path(__file__).parents[1]
#: Imports fail for every package of the laboratory, as in an environment without the extra.
WITHOUT = f"""
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {set(NEEDED)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Missing())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in {set(NEEDED)!r} else found(name, *rest)
"""  # noqa: E501
NAMES = """
for name in regard.__all__:
    try:
        getattr(regard, name)
    except ImportError as error:
        assert "pip install 'regard[lab]'" in str(error), error
        print(name)
assert not any(name.startswith("regard.lab.") for name in sys.modules)
"""
OF_THE_LABORATORY = {
    "Arm", "KernelRegression", "MultilabelClassifier", "TextClassifier", "TextRegressor", "compare",
    "html", "load", "look", "plot", "suggest", "train",
}  # fmt: skip


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    words = [sys.executable, "-c", WITHOUT + code]
    return subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)


def test_the_library_trains_every_score_without_the_laboratorys_packages() -> None:
    done = run(LIBRARY + NAMES)
    assert done.stderr == ""
    assert set(done.stdout.split()) == OF_THE_LABORATORY


def test_a_command_without_the_extra_says_which_in_one_line() -> None:
    done = run("import runpy; runpy.run_module('regard', run_name='__main__')")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install 'regard[lab]'" in done.stderr


def test_the_extra_installs_what_the_laboratory_checks() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    modules = {MODULES.get(name, name) for name in declared("lab")}
    assert modules - {"pydantic_core"} == set(NEEDED)
    assert len(project["dependencies"]) == len(declared()) == 5


@pytest.mark.slow
def test_the_wheel_without_the_extra_in_an_empty_environment() -> None:
    from benchmarks.package import library

    pytest.importorskip("build")
    report = library(sys.executable)
    assert report["smoke"] == "passed"
    assert set(report["packages"]) & {name.replace("_", "-") for name in NEEDED} == set()
    assert regard.__version__ == report["version"]
