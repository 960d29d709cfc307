"""A thread in each of several processes that ends all of them when one dies, hangs or fails.

Each process writes a heartbeat into the common store every second and reads its right neighbour's,
so that the store answers a few requests per second and process. The first reason for an end goes
into the store; every process prints it and ends. Four kinds of failure are detected:

* a process that is killed or stopped, or whose machine is lost: its heartbeat is older than
  `STALE`;
* a process that raises an error: it reports the error itself;
* a process that hangs: outside of collectives, it uses no processor time for `IDLE` seconds. A long
  validation does not count, since it computes;
* a launcher that died: the parent of this process changed.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as distributed
from torch.distributed.distributed_c10d import PrefixStore, Store

from regard.core.errors import RegardError
from regard.training.stopping import asked_to_stop, deferred

BEAT = 1.0  # seconds between two heartbeats
STALE = 20.0  # seconds without a heartbeat after which a process is dead
IDLE = 40.0  # seconds without processor time after which a process hangs
WORKING = 0.01  # minimum share of one processor that a working process uses
LEFT = b"left"  # the heartbeat of a process that ended normally
FAILURE = "failure"
STOPPED_BY_ANOTHER = 70  # exit code of a process that ends because another one failed
PEER = re.compile(r"gloo|nccl|connection|timed out|timeout|broken pipe|socket|store|peer", re.I)


class Watchdog(threading.Thread):
    """Watches the right neighbour, the common reason and this process's own progress."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.rank, self.world = rank, world
        # One connection for each thread, since a request blocks the others of its connection.
        self.store, self.main, self.side = (
            PrefixStore(attempt(), store.clone())  # type: ignore[attr-defined]
            for _ in range(3)
        )
        self.main.set(f"beat/{rank}", "0")  # before joining: it may die at once
        self.leaving = threading.Event()
        self.failed = False  # whether some process has failed when this one leaves
        self.others = 0  # nesting of `meeting`
        self.used, self.since = time.process_time(), time.monotonic()

    def run(self) -> None:
        """Write and check heartbeats until this process leaves or must end."""
        neighbour = (self.rank + 1) % self.world
        beat, seen, changed, answered = 0, b"", time.monotonic(), time.monotonic()
        while not self.leaving.wait(BEAT):
            beat += 1
            try:
                self.store.set(f"beat/{self.rank}", str(beat))
                reason = self.reason(self.store)
                there = f"beat/{neighbour}"
                now = self.store.get(there) if self.store.check([there]) else b""
                answered = time.monotonic()
            except (distributed.DistError, RuntimeError) as error:
                if time.monotonic() - answered > 3 * BEAT and not self.leaving.is_set():
                    self.end(f"rank 0 or its launcher ended: its store is gone ({_line(error)})")
                continue
            if now != seen:
                seen, changed = now, time.monotonic()
            # A process without any heartbeat has not started yet.
            late = seen not in (b"", LEFT) and time.monotonic() - changed > STALE
            if not reason and late:
                reason = self.post(
                    f"rank {neighbour} died or was stopped: no sign of life for {STALE:.0f} s",
                    self.store,
                )
            if not reason and self.idle():
                reason = self.post(
                    f"rank {self.rank} hangs: no processor time used for {IDLE:.0f} s", self.store
                )
            if reason and not self.leaving.is_set():
                self.end(reason)

    def idle(self) -> bool:
        """Return whether this process was idle while it did not wait for others."""
        now, used = time.monotonic(), time.process_time()
        if self.others or used - self.used > WORKING * max(now - self.since, BEAT):
            self.used, self.since = used, now
        return now - self.since > IDLE

    def end(self, reason: str) -> None:
        """Print the reason and end this process, even if other threads wait."""
        print(f"error: rank {self.rank} ends: {reason}", file=sys.stderr, flush=True)
        os._exit(STOPPED_BY_ANOTHER)

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """Mark that this process waits for others."""
        self.others += 1
        try:
            yield
        finally:
            self.others -= 1

    def gather(self, key: str, limit: float = float("inf")) -> None:
        """Wait until all processes have called this with the same key.

        Raises: ranks that are missing after ``limit`` seconds.
        """
        self.main.set(f"{key}/{self.rank}", "1")
        count = self.main.add(key, 1)
        begun, pause = time.monotonic(), 0.0005
        while count < self.world:
            if time.monotonic() - begun > limit:
                missing = [r for r in range(self.world) if not self.main.check([f"{key}/{r}"])]
                raise RegardError(
                    f"{len(missing)} of {self.world} processes did not start within {limit:.0f} s: "
                    f"ranks {', '.join(map(str, missing[:20]))}; look at their output"
                )
            time.sleep(pause)
            pause = min(2 * pause, 0.2)
            count = self.main.add(key, 0)
        if key.startswith("wait/"):
            self.main.delete_key(f"{key}/{self.rank}")

    def collect(self, key: str, text: str) -> list[str]:
        """Return every process's text in the first one, and nothing in the others.

        One other thread may call it at the same time as other methods.
        """
        self.side.set(f"{key}/{self.rank}", text)
        texts, pause = [], 0.0005
        for rank in range(self.world if not self.rank else 0):
            while not self.side.check([f"{key}/{rank}"]):
                time.sleep(pause)
                pause = min(2 * pause, 0.2)
            texts.append(self.side.get(f"{key}/{rank}").decode())
            self.side.delete_key(f"{key}/{rank}")
        return texts

    def post(self, reason: str, store: Store) -> str:
        """Store a reason, unless there is one already; return the one in the store."""
        stored: bytes = store.compare_set(FAILURE, "", reason)
        return stored.decode(errors="replace")

    def reason(self, store: Store) -> str:
        """Return the reason in the store, or ""."""
        return store.get(FAILURE).decode(errors="replace") if store.check([FAILURE]) else ""

    def report(self, error: BaseException) -> str:
        """Report an error of this process; return the reason if another process caused it."""
        line = _line(error)
        try:
            known = self.reason(self.main)
            if not known and isinstance(error, RuntimeError) and PEER.search(line):
                known = self._cause(line)
            if known:
                return known
            self.post(f"rank {self.rank}: {type(error).__name__}: {line}", self.main)
        except (distributed.DistError, RuntimeError):
            return f"rank 0 or its launcher ended, and rank {self.rank} lost its connection: {line}"
        return ""

    def _cause(self, line: str) -> str:
        """Wait for a process to store the reason of a lost connection; return it, or "".

        Do not wait if the launcher stops this process, since it knows the reason.
        """
        end = time.monotonic() + STALE + 5 * BEAT
        with deferred():
            while time.monotonic() < end:
                if reason := self.reason(self.main):
                    return reason
                if signal := asked_to_stop():
                    return f"another rank ended ({line}), and the launcher sent {signal}"
                time.sleep(BEAT / 4)
        return ""

    def leave(self, patience: float) -> None:
        """Stop watching. The first process, which may hold the store, waits for the others.

        The thread ends first: returning from the store at exit would abort the process.
        """
        self.leaving.set()
        if self.is_alive():
            self.join(patience)
        try:
            failed = self.failed = bool(self.reason(self.main))
            self.main.set(f"beat/{self.rank}", LEFT.decode())
            end = time.monotonic() + patience
            while self.rank == 0 and not failed and time.monotonic() < end:
                keys = [f"beat/{rank}" for rank in range(self.world)]
                if all(self.main.check([k]) and self.main.get(k) == LEFT for k in keys):
                    return
                time.sleep(0.02)
        except (distributed.DistError, RuntimeError):
            self.failed = True


def attempt() -> str:
    """Return a prefix for keys: torchrun's store outlives the processes that it starts again."""
    return f"regard-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def watch_launcher(rank: int) -> None:
    """Start a thread that ends this process when its parent, the launcher, has died.

    The system then changes the process's parent. On Windows it does not, and nothing is detected.
    """
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(BEAT / 2)
        print(f"error: rank {rank} ends: its launcher died", file=sys.stderr, flush=True)
        os._exit(STOPPED_BY_ANOTHER)

    threading.Thread(target=watch, name="launcher", daemon=True).start()


def _line(error: BaseException) -> str:
    """Return the first sentence of an error, without the place in a C++ source."""
    line = re.sub(r"^\[[^]]*\] *", "", (str(error).splitlines() or [""])[0])
    return line.partition(". This is typically")[0][:200]
