"""Overload a server; nothing may break, and every client must get an answer.

    python -m benchmarks.serving RUN --seconds 60 --out serving.json

Its capacity is measured first, by few clients that wait for each answer. Then twice as many
requests are sent as it can answer, with hostile ones among them; then hundreds of
slow clients; then clients who leave before their answer; then requests made from its own schema;
then it is ended while it works. `Tally` has the counts, and `faults` the failures.

An answer's seconds count from the sending of its request. Connecting is separate: a system
whose queue of connections is full delays them for seconds before the server sees them. So is
the delay of the clients' own process, which is in all its figures.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlparse

from benchmarks import hostile_clients
from benchmarks.hostile_clients import Hostile, Slow
from benchmarks.schema_requests import made_of
from regard.core.errors import RegardError

TEXT = "the plot was not bad at all , but the film was far too long and the actors were bored "
SERVED, REFUSED = (200,), (503, 504)


class Answer(NamedTuple):
    """An answer: status (0: none), headers, body, seconds since the request.

    ``connecting``: seconds until the request was sent.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float
    connecting: float = 0.0


@dataclass
class Tally:
    """The results of each part."""

    capacity: float = 0.0  # answers a second
    overload: dict[str, int] = field(default_factory=dict)  # answers by status
    without_retry_after: int = 0
    served_p50: float = 0.0
    served_p99: float = 0.0
    connecting_p99: float = 0.0
    late_p99: float = 0.0  # by how much the clients' own process was late
    deadline: float = 0.0
    memory_growth: float = 0.0
    memory_growth_after_a_tenth: float = 0.0  # since the second tenth: what was filled once is full
    memory_mb: list[int] = field(default_factory=list)
    hostile: Hostile = field(default_factory=Hostile)
    slow: Slow = field(default_factory=Slow)
    left: int = 0
    freed_seconds: float = 0.0
    schema: dict[str, int] = field(default_factory=dict)
    at_work: int = 0
    answered_at_the_end: int = 0
    end_seconds: float = 0.0
    exit_code: int = 0

    def faults(self) -> list[str]:
        """Return the failures in words; empty if there are none."""
        wrong = {s: n for s, n in self.overload.items() if int(s) not in (*SERVED, *REFUSED)}
        checks = {
            f"other answers than 200, 503 and 504 under load: {wrong}": wrong,
            f"{self.without_retry_after} answers 503 without Retry-After": self.without_retry_after,
            f"p99 of {self.served_p99:.1f} s": self.served_p99 > self.deadline,
            f"memory grew by {self.memory_growth_after_a_tenth:.1%} after the first tenth":
                self.memory_growth_after_a_tenth >= 0.05,
            f"places were freed after {self.freed_seconds:.1f} s": self.freed_seconds > 1,
            f"a server error on a request of its schema: {self.schema}": "500" in self.schema,
            f"the end took {self.end_seconds:.1f} s": self.end_seconds > 10,
            f"{self.at_work - self.answered_at_the_end} unanswered at the end":
                self.at_work != self.answered_at_the_end,
            f"exit code {self.exit_code}": self.exit_code,
        }  # fmt: skip
        own = [says for says, bad in checks.items() if bad]
        return [*own, *self.hostile.faults(), *self.slow.faults(self.deadline)]


@contextmanager
def started(run: Path, *settings: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a server on a free port; yield its process and its address. Raises: it does not start.

    It leads a group of processes, and is killed at the end if it still runs.
    """
    words = [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", *settings]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)  # noqa: S603
    assert process.stdout is not None
    try:
        found = (re.search(r"http://[\w.:]+", line) for line in process.stdout)
        if (url := next(filter(None, found), None)) is None:
            raise RegardError(f"the server of {run} did not begin; regard serve {run} says why")
        yield process, url[0]
    finally:
        process.kill()
        process.wait()


class Client:
    """A plain HTTP/1.1 client, with a connection for each request."""

    def __init__(self, url: str, run: str, pid: int = 0) -> None:
        found = urlparse(url)
        self.host, self.port, self.run = found.hostname or "", found.port or 80, run
        self.pid = pid  # of the server

    def written(self, method: str, path: str, body: Any = None) -> bytes:
        """Return the bytes of a request."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        return head.encode() + data

    async def send(self, data: bytes) -> Any:
        """Open a connection and send a request; return its reader and writer."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """Send a request and return its answer; status 0 if the connection broke."""
        return await self.ask_raw(self.written(method, path, body))

    async def ask_raw(self, data: bytes) -> Answer:
        """Send raw bytes and return the answer."""
        came = sent = time.monotonic()
        try:
            reader, writer = await self.send(data)
            sent = time.monotonic()
            async with asyncio.timeout(120):
                raw = await reader.read()
            writer.close()
        except (OSError, TimeoutError):
            return Answer(0, {}, b"", time.monotonic() - sent, sent - came)
        head, _, content = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        status = int(first.split(" ")[1]) if first.startswith("HTTP/") else 0
        return Answer(status, headers, content, time.monotonic() - sent, sent - came)

    async def predict(self, words: int, number: int) -> Answer:
        """Request a prediction of a new text."""
        text = f"{number} " + " ".join((TEXT.split() * (words // 19 + 1))[:words])
        return await self.ask("POST", "/predict", {"run": self.run, "text": text})

    async def gauge(self, name: str) -> float:
        """Return a number of /metrics, with retries while the server is full."""
        answer = await self.ask("GET", "/metrics")
        while answer.status != 200:
            await asyncio.sleep(0.1)
            answer = await self.ask("GET", "/metrics")
        text = answer.body.decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise RegardError(f"/metrics of this server has no {name}")
        return float(found[1])


async def capacity(client: Client, words: int, seconds: float) -> float:
    """Return the most answers per second for 1, 4, 16 or 48 clients that wait for each answer."""
    found = [await _served(client, words, seconds / 4, clients) for clients in (1, 4, 16, 48)]
    return max(found)


async def _served(client: Client, words: int, seconds: float, clients: int) -> float:
    end, count = time.monotonic() + seconds, 0

    async def asking(first: int) -> None:
        nonlocal count
        number = first
        while time.monotonic() < end:
            answer = await client.predict(words, number)
            count += answer.status == 200
            number += 100

    begun = time.monotonic()
    await asyncio.gather(*(asking(i) for i in range(clients)))
    return count / (time.monotonic() - begun)


async def overload(client: Client, words: int, rate: float, seconds: float, tally: Tally) -> None:
    """Send requests at a fixed rate, whatever the answers, with hostile ones at the same time."""
    memory, late = [(0.0, held(client.pid))], list[float]()
    beside = [
        asyncio.ensure_future(watch_memory(client, seconds, memory)),
        asyncio.ensure_future(watch_clock(late)),
        asyncio.ensure_future(hostile_clients.attack_on(client, tally.hostile)),
    ]
    tasks = []
    begun = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        tasks.append(asyncio.ensure_future(client.predict(words, number)))
    answers = await asyncio.gather(*tasks)
    for watching in beside:
        watching.cancel()
    tally.overload = dict(sorted(Counter(str(a.status) for a in answers).items()))
    tally.without_retry_after = sum(
        a.status == 503 and not a.headers.get("retry-after", "").isdigit() for a in answers
    )
    served = [a.seconds for a in answers if a.status == 200]
    tally.served_p50, tally.served_p99 = quantile(served, 0.5), quantile(served, 0.99)
    tally.connecting_p99 = quantile([a.connecting for a in answers], 0.99)
    tally.late_p99 = quantile(late, 0.99)
    memory.append((time.monotonic() - begun, held(client.pid)))
    tally.memory_mb = [round(bytes_ / 1e6) for _, bytes_ in memory]
    tally.memory_growth, tally.memory_growth_after_a_tenth = growths(memory)


def growths(memory: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the growth of memory until the last tenth: since the start, and the second tenth.

    ``memory``: seconds and bytes, in order. The median of a tenth counts: a large request comes and
    goes.

    >>> growths([(0, 100.0), *((when, 150.0) for when in range(1, 20)), (20, 300.0)])
    (0.5, 0.0)
    """
    start, whole = memory[0][1], memory[-1][0]
    second = [held for when, held in memory if 0.1 * whole <= when <= 0.2 * whole]
    last = [held for when, held in memory if 0.9 * whole <= when]
    if not start or not second:
        return 0.0, 0.0
    end = median(last)
    return end / start - 1, end / median(second) - 1


async def watch_memory(client: Client, seconds: float, memory: list[tuple[float, float]]) -> None:
    """Record the server's memory every few seconds."""
    begun = time.monotonic()
    while True:
        await asyncio.sleep(max(seconds / 60, 1.0))
        memory.append((time.monotonic() - begun, held(client.pid)))


def held(pid: int) -> float:
    """Return the memory of a process in bytes; 0 if unknown (known on Linux)."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0.0
    return float(pages) * os.sysconf("SC_PAGE_SIZE")


async def watch_clock(late: list[float]) -> None:
    """Record the delays of sleeps of a tenth of a second."""
    while True:
        begun = time.monotonic()
        await asyncio.sleep(0.1)
        late.append(time.monotonic() - begun - 0.1)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile of a share; 0 without values.

    >>> quantile([3.0, 1.0, 2.0], 0.5), quantile([], 0.99)
    (2.0, 0.0)
    """
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else 0.0


async def leave(client: Client, words: int, many: int, queue: int, tally: Tally) -> None:
    """Send requests and disconnect; measure how long their slots stay occupied."""
    for start in range(0, many, queue // 2):
        writers = []
        for number in range(min(queue // 2, many - start)):
            body = {"run": client.run, "text": f"{start + number} {TEXT * (words // 19)}"}
            _, writer = await client.send(client.written("POST", "/look", body))
            writers.append(writer)
        for writer in writers:
            writer.transport.abort()
        tally.left += len(writers)
        begun = time.monotonic()
        while await client.gauge("regard_queue_length") > 1 and time.monotonic() < begun + 30:
            await asyncio.sleep(0.01)
        tally.freed_seconds = max(tally.freed_seconds, time.monotonic() - begun)


async def by_schema(client: Client, many: int, tally: Tally, seed: int = 0) -> None:
    """Send requests from the server's schema, half of them with an invalid value."""
    schema = json.loads((await client.ask("GET", "/openapi.json")).body)
    chance, counts = random.Random(seed), Counter[str]()
    for method, path, body in made_of(schema, client.run, chance, many):
        counts[str((await client.ask(method, path, body)).status)] += 1
    tally.schema = dict(sorted(counts.items()))


async def end(client: Client, process: "subprocess.Popen[str]", words: int, tally: Tally) -> None:
    """End the server while it works: requests in flight must be answered first."""
    tasks = [asyncio.ensure_future(client.predict(words, i)) for i in range(16)]
    while await client.gauge("regard_queue_length") < 1:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.2)  # all have been read by now
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    answers = await asyncio.gather(*tasks)
    tally.exit_code = await asyncio.to_thread(process.wait, 60)
    tally.end_seconds = time.monotonic() - begun
    tally.at_work = len(answers)
    tally.answered_at_the_end = sum(answer.status == 200 for answer in answers)


def assault(run: Path, seconds: float, words: int, queue: int, deadline: float) -> Tally:
    """Run all parts in sequence against a new server. Raises: it does not start."""
    tally = Tally(deadline=deadline)

    async def parts(client: Client, process: "subprocess.Popen[str]") -> None:
        while (await client.ask("GET", "/health")).status != 200:
            await asyncio.sleep(0.1)
        await capacity(client, words, 3.0)  # the model is loaded, the allocator has its fill
        tally.capacity = await capacity(client, words, min(8.0, seconds))
        await hostile_clients.alone(client, tally.hostile)
        await overload(client, words, 2 * tally.capacity, min(5.0, seconds), tally)
        await overload(client, words, 2 * tally.capacity, seconds, tally)
        await hostile_clients.slow(client, words, 150 if seconds >= 30 else 40, tally.slow)
        await leave(client, words, 500, queue, tally)
        await by_schema(client, 2000 if seconds >= 30 else 200, tally)
        await end(client, process, words, tally)

    with started(run, f"queue={queue}", f"deadline={deadline:g}") as (process, url):
        asyncio.run(parts(Client(url, run.name, process.pid), process))
    return tally


def main() -> None:
    """Run the command; print and write the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path, help="folder of a complete run")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--words", type=int, default=200, help="of each text")
    parser.add_argument("--queue", type=int, default=64)
    parser.add_argument("--deadline", type=float, default=10)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    tally = assault(asked.run, asked.seconds, asked.words, asked.queue, asked.deadline)
    result = {**asdict(tally), "faults": tally.faults()}
    if asked.out:
        asked.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(json.dumps(result, indent=2) + "\n")
    raise SystemExit(1 if tally.faults() else 0)


if __name__ == "__main__":
    main()
