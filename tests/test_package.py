"""The metadata of the package, and the files by which others find, cite and report on it."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_types_are_marked() -> None:
    assert (Path(regard.__file__).parent / "py.typed").read_bytes() == b""
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_one_version_everywhere() -> None:
    assert PROJECT["version"] == regard.__version__
    assert f"\nversion: {regard.__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f'version: "{regard.__version__}"' in (ROOT / "recipe/recipe.yaml").read_text("utf-8")


def test_supported_pythons_are_those_of_the_workflow() -> None:
    workflow = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
    lead = "Programming Language :: Python :: 3."
    declared = [x.removeprefix(lead) for x in PROJECT["classifiers"] if x.startswith(lead)]
    assert declared == ["11", "12", "13", "14"]
    assert "python: [" + ", ".join(f'"3.{minor}"' for minor in declared) + "]" in workflow
    assert PROJECT["requires-python"] == f">=3.{declared[0]}"


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = (ROOT / "recipe/recipe.yaml").read_text("utf-8")
    run = recipe.partition("  run:\n")[2].partition("\ntests:")[0]
    there = {line.split()[1] for line in run.splitlines() if line.strip().startswith("- ")}
    names = {
        "torch": "pytorch",
        "prometheus-client": "prometheus_client",
        "matplotlib": "matplotlib-base",
    }
    needed = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["lab"]
    plain = {x.partition(">=")[0] for x in needed}
    assert there == {names.get(name, name) for name in plain} | {"python"}


def test_import_loads_no_torch() -> None:
    """An import of regard alone costs nothing; its parts come when they are used."""
    code = "import sys, regard, json; print(json.dumps(['torch' in sys.modules, len(dir(regard))]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    torch_loaded, names = json.loads(done.stdout)
    assert not torch_loaded
    assert names > 15


@pytest.mark.slow
def test_two_builds_are_the_same_bytes() -> None:
    from benchmarks.package import main

    pytest.importorskip("build")
    assert main(["--no-install"]) == 0
