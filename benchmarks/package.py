"""Build the package twice, compare the bytes, install the wheel in a new environment and use it.

    python -m benchmarks.package                          # this Python
    python -m benchmarks.package --python python3.13      # another one

prints one JSON object: the wheel with the extra ``lab``, and without it, where the library is
used and no package of the laboratory may be found. Needs ``build``, ``twine`` and
``check-wheel-contents`` in this environment and a package index (or a local folder of wheels) for
pip. Exit code 1 if a check fails.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

ROOT = Path(__file__).parent.parent
EPOCH = "1767225600"  # any fixed moment: archives take it instead of the clock's
MOST_WHEEL = 1.5e6  # bytes
MOST_IMPORT = 0.3  # seconds
SMOKE = """
import torch, regard
q, k, v = torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 3)
assert regard.attend(q, k, v).output.shape == (2, 5, 3)
layer = regard.MultiHeadAttention(16, 4, position="rotary")
layer(torch.randn(2, 9, 16)).sum().backward()
run = regard.train("classification", model="mean", width=8, steps=3, examples=100, threads=1,
                   out="run", progress=False)
assert run.complete and run.predict("not bad").label
"""
LIBRARY = """
import importlib, pkgutil, torch, regard
from regard.attention import SCORES
for module in pkgutil.walk_packages(regard.__path__, "regard."):
    if not module.name.startswith("regard.lab") and "triton" not in module.name:
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
for name in SCORES:
    layer = regard.MultiHeadAttention(8, 2, score=name, length=6)
    layer(torch.randn(3, 5, 8)).square().sum().backward()
    assert layer.project.weight.grad.isfinite().all(), name
"""
#: Prints the packages of an environment, and those that torch alone would install.
PACKAGES = """
import json, re
from importlib.metadata import distributions, requires
plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
here = {plain(one.name): one for one in distributions()}
torchs, todo = set(), ["torch"]
while todo:
    name = todo.pop()
    if name in here and name not in torchs:
        torchs.add(name)
        todo += [plain(re.match(r"[\\w.-]+", line).group()) for line in requires(name) or []
                 if "extra ==" not in line]
size = sum(file.locate().stat().st_size for name, one in here.items()
           if name not in torchs | {"pip", "setuptools"}
           for file in one.files or [] if file.locate().is_file())
print(json.dumps([sorted(here.keys() - torchs - {"pip", "setuptools"}), size]))
"""
FIRST = """
import time, torch
start = time.perf_counter()
import regard
imported = time.perf_counter()
regard.attend(torch.randn(2, 5, 8), torch.randn(2, 7, 8), torch.randn(2, 7, 3), "dot").output
print(imported - start, time.perf_counter() - imported)
"""
IMPORT = "import time; t = time.perf_counter(); import regard; print(time.perf_counter() - t)"


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output. Raises: it fails, with its output."""
    done = subprocess.run(  # noqa: S603
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(folder: Path) -> dict[str, str]:
    """Build wheel and sdist into a folder; return the SHA-256 of each."""
    run(sys.executable, "-m", "build", "--outdir", folder, ".", SOURCE_DATE_EPOCH=EPOCH)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
    }


def environment(wheel: str, python: str, room: Path) -> Path:
    """Install a wheel with the pinned versions in a fresh environment; return its Python."""
    run(python, "-m", "venv", room / "venv")
    inside = room / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    run(inside, "-m", "pip", "check")
    return inside


def library(python: str = sys.executable) -> dict[str, Any]:
    """Install the wheel without the extra, train a layer with every score, and list what is there.

    ``packages`` and ``bytes`` exclude torch and its dependencies.
    """
    with TemporaryDirectory() as folder:
        room = Path(folder)
        build(room / "built")
        (wheel,) = (room / "built").glob("*.whl")
        start = monotonic()
        inside = environment(str(wheel), python, room)
        seconds = monotonic() - start
        done = subprocess.run(  # noqa: S603
            [str(inside), "-c", LIBRARY], cwd=room, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": ""},
        )  # fmt: skip

        def answer(code: str) -> str:
            return run(inside, "-c", code, cwd=room, PYTHONPATH="").strip()

        packages, size = json.loads(answer(PACKAGES))
        first = [[float(x) for x in answer(FIRST).split()] for _ in range(5)]
        return {
            "smoke": done.stderr.strip().splitlines()[-1] if done.returncode else "passed",
            "version": answer("import regard; print(regard.__version__)"),
            "packages": packages,
            "bytes": size,
            "install_seconds": round(seconds, 1),
            "import_seconds": round(median(row[0] for row in first), 4),
            "first_attend_seconds": round(median(row[1] for row in first), 4),
        }


def installed(wheel: Path, python: str, room: Path) -> dict[str, Any]:
    """Install a wheel with its laboratory in a fresh environment, check and use it."""
    inside = environment(f"{wheel}[lab]", python, room)
    work = room / "work"  # in the checkout, Python would import the checkout
    work.mkdir()
    done = subprocess.run(  # noqa: S603
        [str(inside), "-c", SMOKE], cwd=work, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )  # fmt: skip

    def answer(code: str) -> str:
        return run(inside, "-c", code, cwd=work, PYTHONPATH="").strip()

    home = Path(answer("import regard; print(regard.__path__[0])"))
    if not home.is_relative_to(room):
        raise SystemExit(f"regard was imported from {home}, not from the wheel")
    seconds = [float(answer(IMPORT)) for _ in range(5)]
    return {
        "python": run(inside, "--version").split()[1],
        "torch": answer("import torch; print(torch.__version__)"),
        "smoke": done.stderr.strip().splitlines()[-1] if done.returncode else "passed",
        "import_seconds": round(median(seconds), 4),
        "installed_bytes": sum(p.stat().st_size for p in home.rglob("*") if p.is_file()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Check wheel and sdist.")
    parser.add_argument("--python", default=sys.executable, help="the Python to install for")
    parser.add_argument("--no-install", action="store_true", help="only build and compare")
    asked = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        room = Path(folder)
        first, second = build(room / "first"), build(room / "second")
        files = sorted((room / "first").iterdir())
        (wheel,) = (path for path in files if path.suffix == ".whl")
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        run(sys.executable, "-m", "check_wheel_contents", wheel)
        report: dict[str, Any] = {
            "reproducible": first == second,
            "sha256": first,
            "bytes": {path.name: path.stat().st_size for path in files},
        }
        if not asked.no_install:
            report |= installed(wheel, asked.python, room) | {"library": library(asked.python)}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        well = first == second and wheel.stat().st_size <= MOST_WHEEL
        well &= report.get("smoke", "passed") == "passed"
        return 0 if well and report.get("import_seconds", 0) <= MOST_IMPORT else 1


if __name__ == "__main__":
    sys.exit(main())
