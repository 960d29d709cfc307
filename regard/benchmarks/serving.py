"""Ask a server for more than it can do; nothing may break, and everyone must be told.

    python -m regard.benchmarks.serving RUN --seconds 60 --out serving.json

Its capacity is measured first, by few clients that wait for each answer. Then twice as many
requests come as it can answer, whatever it answers; then clients who leave before their answer;
then requests made from its own schema; then it is asked to end while it works. `Tally` says what
happened, and `faults` what must not have.
"""

import argparse
import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlparse

from regard.errors import RegardError

TEXT = "the plot was not bad at all , but the film was far too long and the actors were bored "
SERVED, REFUSED = (200,), (503, 504)


class Answer(NamedTuple):
    """What came back: status (0: nothing), headers, body, seconds."""

    status: int
    headers: dict[str, str]
    body: bytes
    seconds: float


@dataclass
class Tally:
    """What happened in each part."""

    capacity: float = 0.0  # answers a second
    overload: dict[str, int] = field(default_factory=dict)  # answers by status
    without_retry_after: int = 0
    served_p50: float = 0.0
    served_p99: float = 0.0
    deadline: float = 0.0
    memory_growth: float = 0.0
    left: int = 0
    freed_seconds: float = 0.0
    schema: dict[str, int] = field(default_factory=dict)
    at_work: int = 0
    answered_at_the_end: int = 0
    end_seconds: float = 0.0
    exit_code: int = 0

    def faults(self) -> list[str]:
        """What should not have happened, in words; an empty list is what is hoped for."""
        wrong = {s: n for s, n in self.overload.items() if int(s) not in (*SERVED, *REFUSED)}
        checks = {
            f"other answers than 200, 503 and 504 under load: {wrong}": wrong,
            f"{self.without_retry_after} answers 503 without Retry-After": self.without_retry_after,
            f"p99 of {self.served_p99:.1f} s": self.served_p99 > self.deadline,
            f"memory grew by {self.memory_growth:.1%}": self.memory_growth >= 0.05,
            f"places were freed after {self.freed_seconds:.1f} s": self.freed_seconds > 1,
            f"a server error on a request of its schema: {self.schema}": "500" in self.schema,
            f"the end took {self.end_seconds:.1f} s": self.end_seconds > 10,
            f"{self.at_work - self.answered_at_the_end} unanswered at the end":
                self.at_work != self.answered_at_the_end,
            f"exit code {self.exit_code}": self.exit_code,
        }  # fmt: skip
        return [says for says, bad in checks.items() if bad]


class Client:
    """Plain HTTP/1.1, a connection a request."""

    def __init__(self, url: str, run: str) -> None:
        found = urlparse(url)
        self.host, self.port, self.run = found.hostname or "", found.port or 80, run

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        """Open a connection and send a request; its reader and writer."""
        data = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(head.encode() + data)
        await writer.drain()
        return reader, writer

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """One request and its answer; status 0 where the connection broke."""
        begun = time.monotonic()
        try:
            reader, writer = await self.send(method, path, body)
            raw = await asyncio.wait_for(reader.read(), 120)
            writer.close()
        except (OSError, TimeoutError):
            return Answer(0, {}, b"", time.monotonic() - begun)
        head, _, content = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        status = int(first.split(" ")[1]) if first.startswith("HTTP/") else 0
        return Answer(status, headers, content, time.monotonic() - begun)

    async def predict(self, words: int, number: int) -> Answer:
        """A prediction of a text of its own."""
        text = f"{number} " + " ".join((TEXT.split() * (words // 19 + 1))[:words])
        return await self.ask("POST", "/predict", {"run": self.run, "text": text})

    async def gauge(self, name: str) -> float:
        """One number of /metrics."""
        text = (await self.ask("GET", "/metrics")).body.decode()
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        if found is None:
            raise RegardError(f"/metrics of this server has no {name}")
        return float(found[1])


async def capacity(client: Client, words: int, seconds: float) -> float:
    """Answers a second: the most that 1, 4, 16 or 48 clients get that each wait for the last."""
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
    """Requests at a fixed rate, whatever becomes of those before."""
    before = await client.gauge("regard_resident_memory_bytes")
    tasks = []
    begun = time.monotonic()
    for number in range(int(rate * seconds)):
        await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
        tasks.append(asyncio.ensure_future(client.predict(words, number)))
    answers = await asyncio.gather(*tasks)
    tally.overload = dict(sorted(Counter(str(a.status) for a in answers).items()))
    tally.without_retry_after = sum(
        a.status == 503 and not a.headers.get("retry-after", "").isdigit() for a in answers
    )
    served = sorted(a.seconds for a in answers if a.status == 200)
    if served:
        tally.served_p50 = served[len(served) // 2]
        tally.served_p99 = served[min(len(served) - 1, int(0.99 * len(served)))]
    after = await client.gauge("regard_resident_memory_bytes")
    tally.memory_growth = after / before - 1 if before else 0.0


async def leave(client: Client, words: int, many: int, queue: int, tally: Tally) -> None:
    """Clients that send a request and are gone; how long their places stay taken."""
    for start in range(0, many, queue // 2):
        writers = []
        for number in range(min(queue // 2, many - start)):
            body = {"run": client.run, "text": f"{start + number} {TEXT * (words // 19)}"}
            _, writer = await client.send("POST", "/look", body)
            writers.append(writer)
        for writer in writers:
            writer.transport.abort()
        tally.left += len(writers)
        begun = time.monotonic()
        while await client.gauge("regard_queue_length") > 1 and time.monotonic() < begun + 30:
            await asyncio.sleep(0.01)
        tally.freed_seconds = max(tally.freed_seconds, time.monotonic() - begun)


async def by_schema(client: Client, many: int, tally: Tally, seed: int = 0) -> None:
    """Requests made from the server's schema, half of them with a value that does not fit."""
    schema = json.loads((await client.ask("GET", "/openapi.json")).body)
    chance, counts = random.Random(seed), Counter[str]()
    for method, path, body in made_of(schema, client.run, chance, many):
        counts[str((await client.ask(method, path, body)).status)] += 1
    tally.schema = dict(sorted(counts.items()))


ODD: tuple[Any, ...] = (
    None,
    -1,
    0,
    1e308,
    2**70,
    "",
    "x" * 5000,
    "\x00",
    [],
    {},
    [[]],
    True,
    "\u202e",
    {"a": 1},
)


def made_of(
    schema: dict[str, Any], run: str, chance: random.Random, many: int
) -> Iterator[tuple[str, str, Any]]:
    """Method, path and body of requests that a schema describes."""
    parts = schema["components"]["schemas"]
    calls = [(m, p, op) for p, ops in schema["paths"].items() for m, op in ops.items()]
    for _ in range(many):
        method, path, call = chance.choice(calls)
        pairs = [(p["name"], _value(p["schema"], run, chance)) for p in call.get("parameters", [])]
        asked = "&".join(f"{name}={quote(str(value))[:2000]}" for name, value in pairs)
        body = None
        if "requestBody" in call:
            named = call["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            fields = parts[named.rsplit("/", 1)[1]]["properties"]
            body = {
                name: run if name == "run" and chance.random() < 0.8 else _value(f, run, chance)
                for name, f in fields.items()
                if chance.random() < 0.7 or name == "run"
            }
        yield method.upper(), f"{path}?{asked}" if asked else path, body


def _value(schema: dict[str, Any], run: str, chance: random.Random) -> Any:
    if chance.random() < 0.3:
        return chance.choice(ODD)
    kinds = schema.get("anyOf", [schema])
    kind = chance.choice(kinds)
    if kind.get("type") in ("integer", "number"):
        return chance.randint(0, 9)
    if kind.get("type") == "array":
        return [TEXT] * chance.randint(0, 3)
    return chance.choice((run, TEXT, "a good film"))


async def end(client: Client, process: "subprocess.Popen[str]", words: int, tally: Tally) -> None:
    """Ask the server to end while it works: what it has taken on is answered first."""
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
    """All parts, one after the other, against a server of its own. Errors: it does not begin."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "regard", "serve", str(run), "--port", "0", f"queue={queue}",
         f"deadline={deadline:g}"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.search(r"http://\S+", process.stdout.readline())
    if not found:
        raise RegardError(f"the server of {run} did not begin; regard serve {run} says why")
    tally = Tally(deadline=deadline)
    client = Client(found[0], run.name)

    async def parts() -> None:
        while (await client.ask("GET", "/health")).status != 200:
            await asyncio.sleep(0.1)
        await capacity(client, words, 3.0)  # the model is loaded, the allocator has its fill
        tally.capacity = await capacity(client, words, min(8.0, seconds))
        await overload(client, words, 2 * tally.capacity, min(5.0, seconds), tally)
        await overload(client, words, 2 * tally.capacity, seconds, tally)
        await leave(client, words, 500, queue, tally)
        await by_schema(client, 2000 if seconds >= 30 else 200, tally)
        await end(client, process, words, tally)

    try:
        asyncio.run(parts())
    finally:
        if process.poll() is None:
            process.kill()
    return tally


def main() -> None:
    """Read the arguments, run, print and write what happened."""
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
