"""Open thousands of damaged files; each must be accepted or refused in one line.

    python -m benchmarks.robustness --mutants 2000 --out robustness.json

For every kind of file that regard reads, valid ones are made, and then mutants of them
(`benchmarks.mutants`). Each mutant is used as by a user, in a separate process for each kind. It
fails if anything but `RegardError` is raised, if it takes more than 10 seconds of a
processor, a minute of wall-clock time or 1 GB, or if the process dies. ``--only NAME`` takes one
kind, ``--show NAME:NUMBER`` one mutant with its traceback.
"""

import argparse
import json
import multiprocessing
import random
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.mutants import mutate
from benchmarks.opened import TARGETS
from benchmarks.opened_data import Target
from regard.core import atomic_io
from regard.core.errors import RegardError

SECONDS = 10.0  # of a processor that a mutant may take, whatever else the machine does
PATIENCE = 60.0  # on the clock, after which its process is ended
EXTRA = 1 << 30  # bytes that it may take
ROOM = 4 << 30  # bytes beyond which the system refuses more


class Answer(NamedTuple):
    """The outcome of one use: ``kind`` is a field of `Tally`, ``cause`` the reason."""

    kind: str
    cause: str = ""
    seconds: float = 0.0
    bytes: int = 0  # beyond what the process took before


@dataclass
class Tally:
    """The outcomes of the mutants of one kind of file."""

    name: str
    mutants: int = 0
    taken: int = 0
    refused: int = 0
    tracebacks: int = 0
    hangs: int = 0
    memory: int = 0
    died: int = 0
    seconds: float = 0.0
    #: Each cause of a failure, how often, and the number of one mutant.
    causes: dict[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """Return the number of mutants that were neither accepted nor refused in one line."""
        return self.tracebacks + self.hangs + self.memory + self.died

    def add(self, number: int, kind: str, cause: str) -> None:
        """Count one mutant."""
        self.mutants += 1
        setattr(self, kind, getattr(self, kind) + 1)
        if kind not in ("taken", "refused"):
            often, first = self.causes.get(f"{kind}: {cause}", (0, number))
            self.causes[f"{kind}: {cause}"] = (often + 1, first)


def attack(target: Target, mutants: int, place: Path, seed: int = 0) -> Tally:
    """Use mutants of a kind of file, in a process that is restarted when it ends."""
    sound = _sound(target, place)
    tally, begun, number = Tally(target.name), time.monotonic(), 0
    while number < mutants:
        rest = range(number, mutants)
        for answer in answers(partial(_mutants, target, sound, rest, seed), len(rest)):
            tally.add(number, answer.kind, answer.cause)
            number += 1
    tally.seconds = time.monotonic() - begun
    return tally


def _sound(target: Target, place: Path) -> Path:
    """Return the folder of valid files, which every use needs."""
    sound = place / target.name
    if not sound.exists():
        sound.mkdir(parents=True)
        target.make(sound)
    with tempfile.TemporaryDirectory() as aside:
        copy = Path(aside) / "sound"
        shutil.copytree(sound, copy)
        for use in target.uses:
            use(copy)
    return sound


def answers(work: Callable[[Connection], None], count: int) -> Iterator[Answer]:
    """Yield the messages of ``work`` in a limited process, until it ends or is ended."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_limited, args=(work, there))
    process.start()
    there.close()
    try:
        for _ in range(count):
            if not here.poll(PATIENCE):
                yield Answer("hangs", f"more than {PATIENCE:.0f} s on the clock", PATIENCE)
                return
            try:
                yield here.recv()
            except EOFError:
                process.join()
                yield Answer("died", f"exit code {process.exitcode}")
                return
    finally:
        process.kill()
        process.join()


def _limited(work: Callable[[Connection], None], tell: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    sys.stderr = sys.stdout = open("/dev/null", "w")  # noqa: SIM115
    limit = _status("VmSize") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    work(tell)


def _mutants(target: Target, sound: Path, numbers: range, seed: int, tell: Connection) -> None:
    with tempfile.TemporaryDirectory(dir=quick_place()) as aside:
        for number in numbers:
            folder = Path(aside) / str(number)
            made(target, sound, number, seed, folder)
            tell.send(used(target.uses, folder))
            shutil.rmtree(folder, ignore_errors=True)


def made(target: Target, sound: Path, number: int, seed: int, folder: Path) -> None:
    """Copy the valid folder, and change one file; hashes are updated in half of the mutants."""
    shutil.copytree(sound, folder)
    chance = random.Random(f"{target.name} {seed} {number}")
    files = sorted(path for kind in target.files for path in folder.glob(kind) if path.is_file())
    file = chance.choice(files)
    file.write_bytes(mutate(file.name, file.read_bytes(), chance))
    if chance.random() < 0.7:
        for manifest in folder.rglob(atomic_io.MANIFEST):
            if manifest != file:
                _seal(manifest)


def _seal(manifest: Path) -> None:
    with suppress(ValueError, AttributeError):
        names = json.loads(manifest.read_bytes()).keys()
        entries = {
            name: atomic_io.entry((manifest.parent / name).read_bytes())
            for name in names
            if (manifest.parent / name).is_file()
        }
        manifest.write_text(json.dumps(entries))


def used(uses: Sequence[Callable[[Path], object]], folder: Path) -> Answer:
    """Use a folder in every way, and return the outcome, its time and its memory."""
    before, begun = _forget_peak(), time.process_time()
    kind, cause = _asked(uses, folder)
    seconds, extra = time.process_time() - begun, _status("VmHWM") - before
    if kind in ("taken", "refused") and seconds > SECONDS:
        kind, cause = "hangs", f"{seconds:.0f} s"
    elif kind in ("taken", "refused") and extra > EXTRA:
        kind, cause = "memory", "more than 1 GB"
    return Answer(kind, cause, seconds, extra)


def _asked(uses: Sequence[Callable[[Path], object]], folder: Path) -> tuple[str, str]:
    found, says = "taken", ""
    for use in uses:
        try:
            use(folder)
        except RegardError as error:
            found, says = "refused", str(error)
        except MemoryError as error:
            return "memory", _where(error)
        except BaseException as error:  # that is what is looked for
            if "alloc" in str(error):
                return "memory", _where(error)
            return "tracebacks", _where(error)
    return found, says


def _where(error: BaseException) -> str:
    """Return the kind of an error and its last line in regard."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__)
        if "/regard/" in frame.filename and "/benchmarks/" not in frame.filename
    ]  # fmt: skip
    place = ""
    if frames:
        place = f"{frames[-1].filename.rpartition('/regard/')[2]}:{frames[-1].lineno}"
    says = re.sub(r"\d+", "#", str(error))[:60]
    return f"{type(error).__name__} at {place} ({says})"


def _status(key: str) -> int:
    """Return a line of /proc/self/status in bytes."""
    found = re.search(rf"^{key}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _forget_peak() -> int:
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def quick_place() -> str | None:
    """Return a folder in memory, if there is one."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def show(asked: str, place: Path, seed: int) -> None:
    """Use one mutant in this process, with its traceback."""
    name, _, number = asked.partition(":")
    target = next(target for target in TARGETS if target.name == name)
    sound, folder = _sound(target, place), place / f"mutant-{name}-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    made(target, sound, int(number), seed, folder)
    for use in target.uses:
        print(f"-- {use.__name__}")
        try:
            print(repr(use(folder))[:300])
        except RegardError as error:
            print(f"RegardError: {error}"[:600])
        except BaseException:
            traceback.print_exc()


def main() -> None:
    """Attack every kind of file, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutants", type=int, default=2000, help="of each kind of file")
    parser.add_argument("--only", nargs="*", default=[], help="names of kinds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", help="NAME:NUMBER of one mutant")
    parser.add_argument("--place", type=Path, help="folder where the sound files are kept")
    parser.add_argument("--out", type=Path, help="write the figures here as JSON")
    asked = parser.parse_args()
    place = asked.place or Path(tempfile.mkdtemp())
    if asked.show:
        show(asked.show, place, asked.seed)
        return
    tallies: list[dict[str, Any]] = []
    totals: Counter[str] = Counter()
    print("| files | mutants | taken | refused | tracebacks | hangs | over 1 GB | died | s |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|")
    for target in TARGETS:
        if asked.only and target.name not in asked.only:
            continue
        found = attack(target, asked.mutants, place, asked.seed)
        tallies.append(asdict(found))
        totals.update(mutants=found.mutants, failures=found.failures)
        print(f"| {found.name} | {found.mutants:,} | {found.taken:,} | {found.refused:,} | "
              f"{found.tracebacks} | {found.hangs} | {found.memory} | {found.died} | "
              f"{found.seconds:.0f} |", flush=True)  # fmt: skip
        for cause, (often, first) in sorted(found.causes.items(), key=lambda item: -item[1][0]):
            print(f"    {often} × {cause}, as {found.name}:{first}", file=sys.stderr)
    print(f"\n{totals['mutants']:,} mutants, {totals['failures']} failures")
    if asked.out:
        atomic_io.write_json(asked.out, {"seed": asked.seed, "kinds": tallies})
    sys.exit(bool(totals["failures"]))


if __name__ == "__main__":
    main()
