"""Run commands with too few resources: they succeed, or report in one line what is missing.

    python -m benchmarks.circumstances --out circumstances.json

Few open files, a folder that may not be written, a file system that is full, a clock that goes
back, no home folder, output that nobody reads. As root, for small file systems are mounted.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.core import atomic_io

SMALL = ("examples=200", "width=16", "heads=2", "feedforward=16", "layers=1", "steps=30",
         "patience=0", "precision=fp32", "batch_tokens=512", "threads=1")  # fmt: skip
TRAIN = ("train", "classification", "--model", "transformer", *SMALL)
COMPARE = ("compare", "classification", "--arms", "mean,tfidf", "--seeds", "2", "examples=200",
           "width=16", "steps=30", "patience=0")  # fmt: skip
PREDICT = ("predict", "RUN", "a good film")
SECONDS = 180.0
#: Runs regard with a clock that goes back an hour at each second look.
BACK = """
import itertools, runpy, sys, time
now, looks = time.time, itertools.count()
time.time = lambda: now() - 3600 * next(looks)
sys.argv[0] = "regard"
runpy.run_module("regard", run_name="__main__")
"""


@dataclass
class Found:
    """The end of a command in a circumstance; ``lines`` are those of its error."""

    circumstance: str
    command: str
    code: int
    lines: int
    says: str

    @property
    def well(self) -> bool:
        """Return whether it succeeded, or reported in one line what is missing."""
        return self.code == 0 or (self.code == 2 and "Traceback" not in self.says)


def ask(circumstance: str, words: Sequence[str], *, start: Sequence[str] = ("-m", "regard"),
        before: Callable[[], None] | None = None, **environment: str) -> Found:  # fmt: skip
    """Run a command of regard in a process after calling ``before``."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, *start, *words], capture_output=True, text=True, timeout=SECONDS,
        preexec_fn=before, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    error = done.stderr.strip()
    return Found(circumstance, words[0], done.returncode, len(error.splitlines()), error[-300:])


def few_files() -> None:
    """Let a process have 64 open files."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


@contextmanager
def mounted(place: Path, size: str, *options: str) -> Iterator[Path]:
    """Mount a small file system. Raises: no permission."""
    place.mkdir()
    given = ",".join((f"size={size}", *options))
    subprocess.run(["mount", "-t", "tmpfs", "-o", given, "tmpfs", place], check=True)  # noqa: S603, S607
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=False)  # noqa: S603, S607


def circumstances(place: Path, run: Path) -> Iterator[Found]:
    """Run every command in every circumstance; ``run`` is a complete run."""
    predict = tuple(str(run) if word == "RUN" else word for word in PREDICT)
    for number, words in enumerate((TRAIN, COMPARE, predict)):
        own = () if words is predict else ("--out", str(place / f"few-{number}"))
        yield ask("64 open files", (*words, *own), before=few_files)
        own = () if words is predict else ("--out", str(place / f"back-{number}"))
        yield ask("a clock that goes back", (*words, *own), start=("-c", BACK))
        own = () if words is predict else ("--out", str(place / f"home-{number}"))
        yield ask("no home folder", (*words, *own), HOME="/nonexistent", XDG_CONFIG_HOME="")
    disks: dict[str, tuple[str, ...]] = {
        "a read-only disk": ("1m", "ro"),
        **{f"a disk of {size}": (size,) for size in ("16k", "64k", "200k")},
    }
    for words in (TRAIN, COMPARE):
        for circumstance, options in disks.items():
            with (
                suppress(subprocess.CalledProcessError, FileNotFoundError),
                mounted(place / "disk", *options) as disk,
            ):
                yield ask(circumstance, (*words, "--out", str(disk / "run")))
            (place / "disk").rmdir()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write what was found there as JSON")
    asked = parser.parse_args(arguments)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        first = ask("nothing lacks", (*TRAIN, "--out", str(place / "run")))
        for each in (first, *circumstances(place, place / "run")):
            found.append(each)
            ended = "well" if each.code == 0 else f"{each.code}: {each.says[-160:]}"
            mark = "" if each.well else "BAD "
            print(f"{mark}{each.circumstance}, {each.command}: {ended}", flush=True)
    print(json.dumps({"asked": len(found), "bad": sum(not each.well for each in found)}))
    if asked.out:
        atomic_io.write_json(asked.out, [asdict(each) for each in found])
    return int(not all(each.well for each in found))


if __name__ == "__main__":
    raise SystemExit(main())
