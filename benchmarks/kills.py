"""Kill a training repeatedly at random moments; it must end with identical weights.

    python -m benchmarks.kills --kills 200 --inside-save 50 --out kills.json

A small training of the built-in reviews runs in a separate process, through the code of every run.
It is killed by SIGKILL at random moments, and at least ``--inside-save`` times while it writes a
checkpoint (as the unfinished folder shows). After each kill every checkpoint must be readable;
after each training the weights must have the hash of a training that was not disturbed. Each
process is forked from one that has imported torch and read the texts, and has computed nothing, so
that a resume costs a fraction of a second.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from regard.core import atomic_io
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.tasks import TASKS
from regard.training.checkpoints import Checkpoints

MODEL = "transformer"
SETTINGS = (
    "examples=300", "epochs=2", "batch_tokens=512", "width=16", "heads=2", "layers=1",
    "feedforward=24", "dropout=0.1", "threads=1", "save_every=2", "precision=fp32",
)  # fmt: skip
LINGER = 0.004  # seconds: the most that the killer waits once it sees a checkpoint being written
PATIENCE = 120.0  # seconds after which a training that does not end is an error


@dataclass
class Tally:
    """The counts of events. `mismatches` and `unreadable` must be 0."""

    kills: int = 0
    inside_save: int = 0
    trainings: int = 0
    mismatches: int = 0
    unreadable: int = 0
    checkpoints_read: int = 0
    seconds: float = 0.0
    reference: str = ""
    settings: list[str] = field(default_factory=lambda: [MODEL, *SETTINGS])


def assault(kills: int, inside_save: int, place: Path, seed: int = 0) -> Tally:
    """Kill trainings until the numbers of kills, and of kills inside a save, are reached.

    Print the counts after each training. Every other kill aims at a save; the others are at random
    moments, which may be inside a save too.
    """
    chance = random.Random(seed)
    read_texts(SETTINGS)
    begun = time.monotonic()
    undisturbed = place / "undisturbed"
    finish(begin(undisturbed))
    length = time.monotonic() - begun
    tally = Tally(reference=fingerprint(undisturbed))
    while tally.kills < kills or tally.inside_save < inside_save:
        folder = place / f"training-{tally.trainings}"
        for _ in range(chance.randint(3, 8)):
            aims = tally.inside_save < inside_save and (
                tally.kills % 2 == 0 or tally.kills >= kills
            )
            if tally.kills >= kills and not aims:
                break
            if not strike(folder, chance, aims, length, tally):
                break
        if not (folder / atomic_io.MANIFEST).exists():
            finish(begin(folder))
        tally.trainings += 1
        tally.mismatches += fingerprint(folder) != tally.reference
        tally.seconds = time.monotonic() - begun
        print(
            f"{tally.kills} kills, {tally.inside_save} inside a save, {tally.trainings} "
            f"trainings, {tally.mismatches} mismatches, {tally.unreadable} unreadable, "
            f"{tally.seconds:.0f} s",
            file=sys.stderr,
        )
        shutil.rmtree(folder)
    return tally


def read_texts(settings: Sequence[str]) -> None:
    """Read the texts of a training once, for all processes that are forked from this one."""
    texts = TASKS["classification"].prepare(
        runs.Config.make("classification", MODEL, settings).data
    )
    for split in ("train", "validation", "test"):
        texts.split(split)


def strike(folder: Path, chance: random.Random, aims: bool, length: float, tally: Tally) -> bool:
    """Kill the training after a moment and check its folder; return False if it had ended."""
    process = begin(folder)
    wait(process, folder, chance, aims, length)
    if process.pid is not None and process.is_alive():
        os.kill(process.pid, signal.SIGKILL)
    process.join()
    if process.exitcode == 0:
        return False
    if process.exitcode != -signal.SIGKILL:
        raise RegardError(f"a training in {folder} ended by itself with {process.exitcode}")
    checkpoints = Checkpoints(folder / "checkpoints")
    tally.kills += 1
    tally.inside_save += writing(checkpoints.folder, process)
    read, unreadable = read_all(checkpoints)
    tally.checkpoints_read += read
    tally.unreadable += unreadable
    return True


def read_all(checkpoints: Checkpoints) -> tuple[int, int]:
    """Load every checkpoint; return how many there are and how many are unreadable."""
    steps, unreadable = checkpoints.steps(), 0
    for step in steps:
        try:
            checkpoints.load(step)
        except RegardError:
            unreadable += 1
    return len(steps), unreadable


def wait(
    process: BaseProcess, folder: Path, chance: random.Random, aims: bool, length: float
) -> None:
    """Wait until the moment of the kill: a random one, or soon after a save begins."""
    end = time.monotonic() + chance.uniform(0, length)
    if not aims:
        process.join(max(0.0, end - time.monotonic()))
        return
    skipped = chance.randint(0, 3)  # saves that are let through, so that not all are the first
    before = False
    while process.is_alive():
        now = writing(folder / "checkpoints", process)
        if now and not before:
            skipped -= 1
            if skipped < 0:
                break
        before = now
    time.sleep(chance.uniform(0, LINGER))


def writing(checkpoints: Path, process: BaseProcess | None = None) -> bool:
    """Return whether there is an unfinished checkpoint of this process, or of any."""
    ending = f".{process.pid}{atomic_io.PARTIAL}" if process else atomic_io.PARTIAL
    try:
        with os.scandir(checkpoints) as entries:
            return any(entry.name.endswith(ending) for entry in entries)
    except OSError:
        return False


def begin(folder: Path) -> BaseProcess:
    """Start or resume the training in a separate process."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(folder,))
    process.start()
    return process


def finish(process: BaseProcess) -> None:
    """Wait until a training has ended. Raises: it does not end, or fails."""
    process.join(PATIENCE)
    if process.exitcode != 0:
        process.kill()
        raise RegardError(f"a training ended with {process.exitcode}, not as it should")


def train(folder: Path) -> None:
    """Train a whole run, as every command and comparison does."""
    for _ in runs.open_or_start(folder, "classification", MODEL, SETTINGS).train():
        pass


def fingerprint(folder: Path) -> str:
    """Return the hash of a run's final weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--inside-save", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    return tallied(assault, parser, arguments, zero=("mismatches", "unreadable"))


def tallied(
    attack: Callable[..., Any],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    zero: Sequence[str],
) -> int:
    """Run an attack with the parsed arguments in a temporary folder, and print its tally as JSON.

    Return the exit status: 0 if the counts called ``zero`` are 0.
    """
    parser.add_argument("--out", type=Path, help="write the tally there as JSON")
    asked = vars(parser.parse_args(arguments))
    out = asked.pop("out")
    with TemporaryDirectory() as place:
        result = asdict(attack(place=Path(place), **asked))
    print(json.dumps(result))
    if out:
        atomic_io.write_json(out, result)
    return int(any(result[name] for name in zero))


if __name__ == "__main__":
    raise SystemExit(main())
