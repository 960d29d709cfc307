"""A comparison on clusters whose processes are killed has the same bits as the local one.

    python -m benchmarks.clusters --seeds 100 --kills 50 --out FOLDER

Two arms are trained with so many seeds. A scheduler and workers run on the loopback device, under a
supervisor that restarts them when they die, as systemd or Kubernetes would. At random moments a
process is killed by SIGKILL: a process of a job, a worker, a nanny, or the scheduler.
The exit status is 0 if every weight, every test prediction and the table are equal.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.core.atomic_io import write_json

ARMS = "mean,attention-pool"
SETTINGS = (
    "width=8", "examples=200", "length=30", "batch_tokens=600",
)  # fmt: skip
WORKERS = 3
TIMED = {"seconds", "peak_mb", "report", "command"}  # what differs between two runs of one command
DASK = [sys.executable, "-m", "dask"]


@dataclass
class Tally:
    """The counts of events. `different` must be 0, and `pickles` too."""

    place: str
    jobs: int = 0
    different: int = 0
    same_table: bool = False
    pickles: int = 0
    calls: int = 0  # of the command, until it ended well
    kills: dict[str, int] = field(default_factory=dict)
    restarted: int = 0  # jobs that another process took over
    seconds: float = 0.0
    seconds_local: float = 0.0


def command(out: Path, seeds: int, steps: int, *more: str) -> list[str]:
    """Return the comparison as a command."""
    words = [sys.executable, "-m", "regard", "compare", "classification", "--arms", ARMS]
    return [
        *words,
        "--seeds",
        str(seeds),
        "--out",
        str(out),
        f"steps={steps}",
        *SETTINGS,
        f"save_every={steps // 12}",
        f"evaluate_every={steps // 3}",
        *more,
    ]


def digests(out: Path) -> dict[str, str]:
    """Return the hash of the weights and the test predictions of each run."""
    names = ("model.safetensors", "predictions.jsonl")
    files = [path for name in names for path in sorted(out.glob(f"*/seed-*/{name}"))]
    return {
        path.relative_to(out).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def table(out: Path) -> Any:
    """Return the stored comparison without times and places."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(each) for key, each in value.items() if key not in TIMED}
        return [plain(each) for each in value] if isinstance(value, list) else value

    return plain(json.loads((out / "comparison.json").read_text(encoding="utf-8")))


def compare_with_local(tally: Tally, out: Path, local: Path) -> None:
    """Count the runs that differ, and search for pickles."""
    ours, theirs = digests(out), digests(local)
    tally.jobs = len(list(out.glob("*/seed-*/MANIFEST.json")))
    tally.different = sum(ours.get(name) != digest for name, digest in theirs.items())
    tally.same_table = table(out) == table(local)
    tally.pickles = len([*out.rglob("*.pkl"), *out.rglob("*.pickle")])


class Dask:
    """A scheduler and workers as processes that are restarted when they die."""

    def __init__(self, place: Path) -> None:
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            self.port = one.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        place.mkdir(parents=True, exist_ok=True)
        self.place, self.processes = place, dict[str, subprocess.Popen[bytes]]()
        self.environment = {**os.environ, "DASK_DISTRIBUTED__WORKER__DAEMON": "False"}

    def supervise(self) -> None:
        """Start missing processes."""
        host = ["--host", "127.0.0.1", "--no-dashboard"]
        commands = {"scheduler": [*DASK, "scheduler", *host, "--port", str(self.port)]}
        for number in range(WORKERS):
            folder = ["--local-directory", str(self.place / f"worker-{number}")]
            commands[f"nanny-{number}"] = [
                *DASK, "worker", self.address, *host, "--nthreads", "1", "--death-timeout", "60",
                *folder,
            ]  # fmt: skip
        for name, words in commands.items():
            process = self.processes.get(name)
            if process is None or process.poll() is not None:
                with (self.place / f"{name}.log").open("ab") as log:
                    self.processes[name] = subprocess.Popen(  # noqa: S603
                        words, stdout=log, stderr=log, env=self.environment, start_new_session=True
                    )

    def targets(self, kind: str) -> list[int]:
        """Return the process ids of a kind: scheduler, nanny, worker or job."""
        nannies = [each.pid for name, each in self.processes.items() if name != "scheduler"]
        if kind == "scheduler":
            return [self.processes["scheduler"].pid]
        workers = [child for pid in nannies for child in children(pid)]
        jobs = [
            child for pid in workers for child in children(pid) if "studies.spec" in line(child)
        ]
        return {"nanny": nannies, "worker": workers, "job": jobs}[kind]

    def end(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process started, without helpers of multiprocessing."""
    with suppress(OSError):
        tasks = [*Path(f"/proc/{pid}/task").glob("*/children")]
        pids = {int(word) for path in tasks for word in path.read_text().split()}
        return [one for one in pids if "resource_tracker" not in line(one)]
    return []


def line(pid: int) -> str:
    """Return the command line of a process."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""


def on_dask(out: Path, seeds: int, steps: int, kills: int, chance: random.Random) -> Tally:
    """Run the comparison on a Dask cluster and kill its processes."""
    tally, cluster, begun = Tally("dask"), Dask(out.parent / "cluster"), time.monotonic()
    killed: Counter[str] = Counter()
    kinds = ["job"] * 4 + ["worker"] * 3 + ["nanny"] * 2 + ["scheduler"]
    log = out.parent / "dask.log"
    cluster.supervise()
    process: subprocess.Popen[bytes] | None = None
    total = 2 * seeds
    due = time.monotonic()
    try:
        while process is None or process.poll() != 0:
            if process is None or process.poll() is not None:
                tally.calls += 1
                with log.open("ab") as file:
                    process = subprocess.Popen(  # noqa: S603
                        command(out, seeds, steps, "--launch", f"dask:{cluster.address}"),
                        stdout=file, stderr=file,
                    )  # fmt: skip
            time.sleep(0.2)
            cluster.supervise()
            done = len(list(out.glob("*/seed-*.json")))
            behind = killed.total() < kills * (done + 1) / total
            if done and behind and killed.total() < kills and time.monotonic() > due:
                kind = chance.choice(kinds)
                if pids := cluster.targets(kind):
                    with suppress(ProcessLookupError):
                        os.kill(chance.choice(pids), signal.SIGKILL)
                        killed[kind] += 1
                due = time.monotonic() + chance.uniform(0.5, 3)
    finally:
        cluster.end()
        if process is not None and process.poll() is None:
            process.kill()
    tally.kills, tally.seconds = dict(killed), time.monotonic() - begun
    tally.restarted = log.read_text(errors="replace").count("started again by")
    return tally


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all results are equal."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--steps", type=int, default=60, help="of each run")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args(arguments)
    asked.out.mkdir(parents=True, exist_ok=True)
    local, begun = asked.out / "local", time.monotonic()
    with (asked.out / "local.log").open("ab") as file:
        subprocess.run(  # noqa: S603
            command(local, asked.seeds, asked.steps), stdout=file, stderr=file, check=True
        )
    seconds = time.monotonic() - begun
    out = asked.out / "dask"
    tally = on_dask(out, asked.seeds, asked.steps, asked.kills, random.Random(asked.seed))
    tally.seconds_local = seconds
    compare_with_local(tally, out, local)
    write_json(asked.out / "dask.json", asdict(tally))
    print(json.dumps(asdict(tally)))
    return int(tally.different or tally.pickles or not tally.same_table)


if __name__ == "__main__":
    raise SystemExit(main())
