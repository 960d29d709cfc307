"""Build the package twice, compare the bytes, install the wheel in a fresh environment and use it.

    python -m benchmarks.package                          # this Python
    python -m benchmarks.package --python python3.13      # another one

prints one JSON object. Needs ``build``, ``twine`` and ``check-wheel-contents`` in this environment
and a package index (or a local folder of wheels) for pip. Exit code 1 if a check fails.
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
IMPORT = "import time; t = time.perf_counter(); import regard; print(time.perf_counter() - t)"


def run(*words: str | Path, cwd: Path = ROOT, **environment: str) -> str:
    """Run a command and return its output. Errors: it fails, with its output."""
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


def installed(wheel: Path, python: str, room: Path) -> dict[str, Any]:
    """Install a wheel with the pinned versions in a fresh environment, check and use it."""
    run(python, "-m", "venv", room / "venv")
    inside = room / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run(inside, "-m", "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", wheel)
    run(inside, "-m", "pip", "check")
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
    """The command."""
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
            report |= installed(wheel, asked.python, room)
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
        well = first == second and wheel.stat().st_size <= MOST_WHEEL
        well &= report.get("smoke", "passed") == "passed"
        return 0 if well and report.get("import_seconds", 0) <= MOST_IMPORT else 1


if __name__ == "__main__":
    sys.exit(main())
