"""Kill one of several processes that train a network, or their launcher, repeatedly.

    python -m benchmarks.rank_kills --kills 60 --out rank-kills.json

A launcher starts two processes that train as `regard train` does. At a random moment, every third
time while a checkpoint is written and every third time during a validation, one of the three gets
SIGKILL; sometimes a rank gets SIGSTOP, so that it hangs. All processes must be gone within 60 s,
and every checkpoint must be readable. A new launcher then resumes; at the end the weights must have
the hash of an undisturbed training. Each process is forked from one that has imported
torch and read the texts, and has computed nothing.
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import socket
import sys
import time
from dataclasses import asdict, dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

from benchmarks.kills import MODEL, fingerprint, read_all, read_texts, tallied, writing
from regard.core import atomic_io
from regard.lab import runs
from regard.training.checkpoints import Checkpoints
from regard.training.loop import Training

WORLD = 2
SETTINGS = (
    "examples=300", "epochs=20", "batch_tokens=512", "width=16", "heads=2", "layers=1",
    "feedforward=24", "dropout=0.1", "threads=1", "save_every=5", "precision=fp32",
    "evaluate_every=15",
)  # fmt: skip
ALL_KNOW = 60.0  # seconds within which every process must have ended
PATIENCE = 180.0  # seconds after which a training that does not end is an error
MOMENTS = ("any", "checkpoint", "validation")
FORK = multiprocessing.get_context("fork")


@dataclass
class Tally:
    """The counts of events. `mismatches`, `unreadable`, `left` and `late` must be 0."""

    kills: int = 0
    victims: dict[str, int] = field(default_factory=dict)
    moments: dict[str, int] = field(default_factory=dict)
    trainings: int = 0
    mismatches: int = 0
    unreadable: int = 0
    checkpoints_read: int = 0
    left: int = 0
    late: int = 0
    longest: float = 0.0
    seconds: float = 0.0
    settings: list[str] = field(default_factory=lambda: [MODEL, *SETTINGS])


class Group:
    """A launcher and its ranks, which train in a folder."""

    def __init__(self, folder: Path, strategy: str) -> None:
        self.folder, self.strategy = folder, strategy
        self.validating, self.begun = FORK.Value("i", 0), FORK.Value("i", 0)
        self.pids = FORK.SimpleQueue()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.launcher: BaseProcess = FORK.Process(target=self.launch)
        self.launcher.start()
        self.ranks = [self.pids.get() for _ in range(WORLD)]

    def launch(self) -> None:
        """Start the ranks; end with the first of them that fails, as torchrun does."""
        ranks = [FORK.Process(target=self.work, args=(rank,)) for rank in range(WORLD)]
        for process in ranks:
            process.start()
            self.pids.put(process.pid)
        while any(process.is_alive() for process in ranks):
            time.sleep(0.05)
        os._exit(int(any(process.exitcode for process in ranks)))

    def work(self, rank: int) -> None:
        """Train as one rank."""
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1"}
        os.environ["MASTER_PORT"] = str(self.port)
        validate = Training.validate

        def validate_seen(training: Training) -> tuple[float, float]:
            self.validating.value += 1
            result = validate(training)
            self.validating.value -= 1
            return result

        cast(Any, Training).validate = validate_seen
        settings = [*SETTINGS, f"strategy={self.strategy}"]
        run = runs.open_or_start(self.folder, "classification", MODEL, settings)
        self.begun.value = 1
        for _ in run.train():
            pass

    @property
    def writing(self) -> bool:
        """Return whether an unfinished checkpoint is there."""
        return writing(self.folder / "checkpoints")

    def alive(self) -> bool:
        """Return whether any process is still there, other than as a zombie."""
        return any(map(running, [*self.ranks, self.launcher.pid or 0]))

    def wait(self, seconds: float) -> float:
        """Wait until all processes have ended; return the seconds it took, at most these."""
        begun = time.monotonic()
        while self.alive() and time.monotonic() - begun < seconds:
            self.launcher.join(0.02)
        return time.monotonic() - begun

    def kill(self) -> None:
        """Kill all remaining processes."""
        for pid in filter(running, [*self.ranks, self.launcher.pid or 0]):
            os.kill(pid, signal.SIGKILL)
        self.launcher.join()


def running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def strike(group: Group, moment: str, chance: random.Random, length: float, tally: Tally) -> bool:
    """Wait for the moment and kill one process; return False if the training ended before.

    The processes have met by then; the launcher must notice one that dies before.
    """
    while group.alive() and not group.begun.value:
        time.sleep(0.01)
    end = time.monotonic() + chance.uniform(0, length)
    while group.alive() and time.monotonic() < end:
        time.sleep(0.005)
    while moment != "any" and group.alive():
        if group.writing if moment == "checkpoint" else group.validating.value:
            break
        time.sleep(0.0005)
    if not group.alive():
        return False
    victim = chance.choice(["launcher", "rank 0", "rank 1", "rank 0", "rank 1", "rank 1 stopped"])
    pid = group.launcher.pid if victim == "launcher" else group.ranks[int(victim.split()[1])]
    moment = "checkpoint" if group.writing else "validation" if group.validating.value else "else"
    os.kill(pid or 0, signal.SIGSTOP if victim.endswith("stopped") else signal.SIGKILL)
    tally.kills += 1
    tally.victims[victim] = tally.victims.get(victim, 0) + 1
    tally.moments[moment] = tally.moments.get(moment, 0) + 1
    others = [p for p in [*group.ranks, group.launcher.pid] if p != pid]
    begun = time.monotonic()
    while any(map(running, filter(None, others))) and time.monotonic() - begun < ALL_KNOW:
        time.sleep(0.02)
        group.launcher.join(0)  # which reaps it
        if victim.endswith("stopped") and not running(group.ranks[0]):
            break  # a launcher such as torchrun then kills the stopped one
    took = time.monotonic() - begun
    tally.longest = max(tally.longest, took)
    tally.late += took >= ALL_KNOW
    print(f"{victim}, {moment}: {took:.1f} s", file=sys.stderr, flush=True)
    if victim.endswith("stopped"):
        os.kill(group.ranks[1], signal.SIGKILL)
    tally.left += group.wait(5.0) >= 5.0
    group.kill()
    return True


def assault(kills: int, place: Path, seed: int = 0) -> Tally:
    """Kill this number of times; print the counts after each training."""

    chance, begun = random.Random(seed), time.monotonic()
    read_texts(SETTINGS)
    tally, undisturbed = Tally(), {}
    for strategy in ("ddp", "fsdp2"):
        group = Group(place / strategy, strategy)
        while not group.begun.value:
            time.sleep(0.01)
        length = group.wait(PATIENCE)
        undisturbed[strategy] = fingerprint(place / strategy)
    while tally.kills < kills:
        strategy = "ddp" if tally.trainings % 3 else "fsdp2"
        folder = place / f"training-{tally.trainings}"
        for _ in range(chance.randint(2, 5)):
            group = Group(folder, strategy)
            if not strike(group, MOMENTS[tally.kills % 3], chance, length * 0.25, tally):
                break
            read, unreadable = read_all(Checkpoints(folder / "checkpoints"))
            tally.checkpoints_read += read
            tally.unreadable += unreadable
        if not (folder / atomic_io.MANIFEST).exists():
            group = Group(folder, strategy)
            group.wait(PATIENCE)
            group.kill()
        tally.trainings += 1
        tally.mismatches += fingerprint(folder) != undisturbed[strategy]
        tally.seconds = time.monotonic() - begun
        print(json.dumps(asdict(tally)), file=sys.stderr, flush=True)
        shutil.rmtree(folder)
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    zero = ("mismatches", "unreadable", "left", "late")
    return tallied(assault, parser, arguments, zero)


if __name__ == "__main__":
    raise SystemExit(main())
