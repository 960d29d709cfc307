"""Kill processes of `regard compare` and `regard serve` repeatedly at random moments.

    python -m benchmarks.killed_commands --kills 50 --out killed.json

A comparison is killed by SIGKILL and rerun in the same folder until it finishes: its results must
equal those of an undisturbed one to the last digit, and its workers must end with it. A server is
killed while clients wait for answers, and started again: it must answer as before.
"""

import argparse
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

from benchmarks.kills import tallied
from benchmarks.serving import started
from regard.core.errors import RegardError

ARMS = "mean,transformer:layers=1,tfidf"
SMALL = ("examples=200", "width=16", "heads=2", "feedforward=16", "steps=60", "patience=0",
         "precision=fp32", "save_every=10", "batch_tokens=512")  # fmt: skip
TEXT = "a good film and a bad plot"
SECONDS = 120.0  # that a command may take
#: What is measured and not computed.
COSTS = {"seconds", "peak_mb"}


@dataclass
class Tally:
    """The counts of events. `mismatches`, `orphans` and `other_answers` must be 0."""

    compare_kills: int = 0
    comparisons: int = 0
    mismatches: int = 0
    orphans: int = 0
    serve_kills: int = 0
    other_answers: int = 0
    seconds: float = 0.0


def compare(folder: Path) -> subprocess.Popen[bytes]:
    """Start or resume a comparison."""
    words = [
        "compare",
        "classification",
        "--arms",
        ARMS,
        "--seeds",
        "2",
        "--out",
        str(folder),
        *SMALL,
    ]
    return begun(*words)


def begun(*words: str) -> subprocess.Popen[bytes]:
    """Start a quiet command of regard in a new process group."""
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "regard", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def found(folder: Path) -> dict[str, Any]:
    """Return the results of a comparison, without its cost and location."""
    whole = json.loads((folder / "comparison.json").read_text())
    arms = [{k: v for k, v in arm.items() if k not in COSTS} for arm in whole["arms"]]
    return {"arms": arms, "verdicts": whole["verdicts"]}


def kill_comparisons(kills: int, place: Path, chance: random.Random, tally: Tally) -> None:
    """Kill comparisons this number of times; each is then rerun to its end."""
    start = time.monotonic()
    if compare(place / "undisturbed").wait(SECONDS):
        raise RegardError("the comparison that nobody disturbs does not end well")
    length, wanted = time.monotonic() - start, found(place / "undisturbed")
    while tally.compare_kills < kills:
        folder = place / f"comparison-{tally.comparisons}"
        for _ in range(chance.randint(2, 5)):
            process = compare(folder)
            with suppress(subprocess.TimeoutExpired):
                process.wait(chance.uniform(0.3, 1) * length)
                break
            process.kill()
            process.wait()
            tally.compare_kills += 1
            tally.orphans += left(process.pid)
        if compare(folder).wait(SECONDS) == 0:
            tally.mismatches += found(folder) != wanted
        else:
            tally.mismatches += 1
        tally.comparisons += 1


def left(group: int, patience: float = 10.0) -> int:
    """Return how many processes of a killed command still exist after some seconds."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return 0
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
    return 1


def kill_servers(kills: int, run: Path, chance: random.Random, tally: Tally) -> None:
    """Kill servers this number of times while they work; the next must give the same answers."""
    wanted: Any = None
    for _ in range(kills + 1):
        with started(run) as (process, url):
            _until_healthy(url)
            answer = ask(url)
            wanted = wanted or answer
            tally.other_answers += answer != wanted
            clients = [Thread(target=_bother, args=(url,), daemon=True) for _ in range(4)]
            for client in clients:
                client.start()
            time.sleep(chance.uniform(0, 0.3))
        tally.serve_kills += 1
        tally.orphans += left(process.pid)


def _until_healthy(url: str) -> None:
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with suppress(urllib.error.URLError, OSError):
            _get(f"{url}/health")
            return
        time.sleep(0.05)
    raise RegardError(f"the server at {url} does not answer")


def _get(url: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    return json.loads(urllib.request.urlopen(request, timeout=60).read())  # noqa: S310


def ask(url: str) -> Any:
    """Return a prediction. Raises: no answer."""
    (run,) = _get(f"{url}/runs")["runs"]
    return _get(f"{url}/predict", {"run": run["name"], "text": TEXT})


def _bother(url: str) -> None:
    with suppress(urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        while True:
            ask(url)


def attack(kills: int, place: Path, seed: int = 0) -> Tally:
    """Kill comparisons and servers, half of the kills each."""
    chance, tally, start = random.Random(seed), Tally(), time.monotonic()
    kill_comparisons(kills - kills // 2, place, chance, tally)
    run = next((place / "undisturbed").glob("transformer*/seed-0"))
    kill_servers(kills // 2, run, chance, tally)
    tally.seconds = time.monotonic() - start
    return tally


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 0 if all checks passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    return tallied(attack, parser, arguments, zero=("mismatches", "orphans", "other_answers"))


if __name__ == "__main__":
    raise SystemExit(main())
