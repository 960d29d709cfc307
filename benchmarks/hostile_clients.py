"""Clients that a server must survive: invalid requests, and hundreds of slow clients."""

import asyncio
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from benchmarks.serving import Client

BUSY = (503, 504)
BODY = 1_000_000  # bytes, the server's limit
CUT_OFF = 45.0  # seconds after which no slow client may have its place yet


class Attack(NamedTuple):
    """A request that must be refused, and the accepted statuses."""

    name: str
    data: bytes
    refused: tuple[int, ...]


@dataclass
class Hostile:
    """The results of hostile requests: under load, and alone."""

    answers: dict[str, int] = field(default_factory=dict)  # under load, by status
    wrong: list[str] = field(default_factory=list)  # neither refused as it must be nor put off
    never: list[str] = field(default_factory=list)  # not refused as it must be, of those alone
    reached: int = 0  # calls of the models while only hostile requests came

    def faults(self) -> list[str]:
        """Return the failures in words."""
        checks = {
            f"hostile requests under load: {', '.join(self.wrong)}": self.wrong,
            f"hostile requests: {', '.join(self.never)}": self.never,
            f"hostile requests called the models {self.reached} times": self.reached,
        }
        return [says for says, bad in checks.items() if bad]


@dataclass
class Slow:
    """The results of slow clients, and of ordinary ones at the same time."""

    clients: int = 0
    cut_off_seconds: float = 0.0  # until their places were free
    honest: dict[str, int] = field(default_factory=dict)  # answers to the others, by status
    honest_p99: float = 0.0

    def faults(self, deadline: float) -> list[str]:
        """Return the failures in words."""
        wrong = {s: n for s, n in self.honest.items() if s != "200" and int(s) not in BUSY}
        checks = {
            f"slow clients kept their places for {self.cut_off_seconds:.1f} s":
                self.cut_off_seconds > CUT_OFF,
            f"others had these answers during slow clients: {wrong}": wrong,
            "others had no answer during slow clients": self.clients and "200" not in self.honest,
            f"p99 of {self.honest_p99:.1f} s during slow clients": self.honest_p99 > deadline,
        }  # fmt: skip
        return [says for says, bad in checks.items() if bad]


def attacks(host: str, port: int, run: str) -> list[Attack]:
    """Return all hostile requests."""
    own = f"{host}:{port}"
    good = b'{"run": "' + run.encode() + b'", "text": "a film"}'

    def post(
        *headers: str, body: bytes = good, kind: str = "application/json", length: int | None = None
    ) -> bytes:
        size = f"Content-Length: {len(body) if length is None else length}"
        typed = [f"Content-Type: {kind}"] if kind else []
        hosts = [] if any(x.startswith("Host:") for x in headers) else [f"Host: {own}"]
        sizes = [] if any("ontent-Length" in x or "Transfer" in x for x in headers) else [size]
        head = ["POST /predict HTTP/1.1", *hosts, "Connection: close", *typed, *sizes, *headers]
        return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body

    def get(target: str, method: str = "GET") -> bytes:
        return f"{method} {target} HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n".encode()

    hosts = (
        "evil.example", f"127.0.0.1.evil.example:{port}", f"7f000001.rbndr.us:{port}",
        "localhost.evil.example", f"user@{own}", f"{own}@evil.example", f"{own}:80", "",
        "[::1", f"0.0.0.0:{port}", f"{own}\r\n evil.example", f"{own}, evil.example",
    )  # fmt: skip
    no_http = {
        "two hosts": post(f"Host: {own}", "Host: evil.example"),
        "NUL in the host": post(f"Host: {own}\0"),
        "CR in the host": post(f"Host: {own}\revil"),
        "no host": b"GET /runs HTTP/1.1\r\nConnection: close\r\n\r\n",
        "chunked and a length": post(
            "Transfer-Encoding: chunked", f"Content-Length: {len(good)}",
            body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(good), good)),
        "two lengths": post(f"Content-Length: {len(good)}", "Content-Length: 5"),
        "a negative length": post("Content-Length: -1"),
        "a length in words": post("Content-Length: many"),
        "another encoding": post("Transfer-Encoding: gzip, chunked"),
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00" * 9 + b"\r\n\r\n",
        "HTTP/9.9": f"GET /runs HTTP/9.9\r\nHost: {own}\r\n\r\n".encode(),
    }  # fmt: skip
    origins = (
        "Origin: http://evil.example", f"Origin: http://{own}.evil.example", "Origin: null",
        f"Origin: http://{host}:1", f"Origin: http://{own}\r\nOrigin: http://evil.example",
        f"Origin: http://evil.example\r\nOrigin: http://{own}", f"Origin: http://{own}@evil",
        "Origin:", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site",
    )  # fmt: skip
    elsewhere = (
        "http://evil.example/runs",
        "//evil.example/runs",
        f"http://{own}/runs",
        "/../runs",
    )
    bodies = {
        "deep JSON": b"[" * 100_000,
        "deep JSON in a field": b'{"run": ' + b'{"a":' * 50_000,
        "a number of 100,000 digits": b'{"run": ' + b"9" * 100_000 + b"}",
        "a large object": b"{" + b",".join(b'"%d": 0' % i for i in range(50_000)) + b"}",
        "no UTF-8": good[:-3] + b"\xff\xfe\xc0\xae" + good[-3:],
        "half a JSON": good[:-4],
        "NaN": b'{"run": NaN, "text": Infinity}',
    }
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "")
    lines = "\r\n".join(f"X-{i}: {'a' * 60}" for i in range(500))
    large = b"%x\r\n" % (BODY + 1) + b" " * (BODY + 1)
    return [
        *(Attack(f"host {name!r}", post(f"Host: {name}"), (400, 421)) for name in hosts),
        *(Attack(name, data, (400,)) for name, data in no_http.items()),
        *(Attack(line, post(line), (403,)) for line in origins),
        *(Attack(f"target {target}", get(target), (404,)) for target in elsewhere),
        Attack("CONNECT", get("evil.example:443", "CONNECT"), (400, 404, 405)),
        Attack("TRACE", get("/predict", "TRACE"), (405,)),
        Attack("a header of 40 kB", post("X: " + "a" * 40_000), (400, 431)),
        Attack("500 headers", post(lines), (400, 431)),
        Attack("a target of 40 kB", get("/" + "a" * 40_000), (400, 431)),
        Attack("a long body", post(length=10**9), (413,)),
        Attack("a length of 30 digits", post(length=10**30), (413, 400)),
        Attack("a long body in chunks", post("Transfer-Encoding: chunked", body=large), (413,)),
        *(Attack(name, post(body=body), (400, 422)) for name, body in bodies.items()),
        *(Attack(f"content type {kind!r}", post(kind=kind), (422,)) for kind in kinds),
    ]  # fmt: skip


async def alone(client: "Client", found: Hostile) -> None:
    """Send each hostile request once, without other clients."""
    before = await client.gauge("regard_batches_total")
    for attack in attacks(client.host, client.port, client.run):
        status = (await client.ask_raw(attack.data)).status
        if status not in attack.refused:
            found.never.append(f"{attack.name}: {status}")
    found.reached = round(await client.gauge("regard_batches_total") - before)


async def attack_on(client: "Client", found: Hostile) -> None:
    """Send hostile requests, a few at a time, until cancelled."""
    counts, wrong = Counter[str](found.answers), dict.fromkeys(found.wrong)
    turns = cycle(attacks(client.host, client.port, client.run))

    async def asking() -> None:
        for attack in turns:
            status = (await client.ask_raw(attack.data)).status
            counts[str(status)] += 1
            if status not in (*attack.refused, *BUSY):
                wrong[f"{attack.name}: {status}"] = None
            found.answers, found.wrong = dict(sorted(counts.items())), list(wrong)

    await asyncio.gather(*(asking() for _ in range(8)))


async def slow(client: "Client", words: int, many: int, found: Slow) -> None:
    """Run clients that connect, send or read slowly, while others send ordinary requests."""
    look = client.written("POST", "/look", {"run": client.run, "text": "film " * words})
    head, _, body = look.partition(b"\r\n\r\n")
    writes = {"head": (b"", head), "body": (head + b"\r\n\r\n", body), "nothing": (b"", b"")}
    clients = [
        asyncio.ensure_future(_writes(client, at_once, then))
        for at_once, then in writes.values()
        for _ in range(many)
    ]
    clients += [asyncio.ensure_future(_reads(client, look)) for _ in range(many)]
    found.clients, begun = len(clients), time.monotonic()
    answers: list[Any] = []
    honest = asyncio.ensure_future(_asks(client, words, answers))
    await asyncio.sleep(2)  # until they are all there
    while await client.gauge("regard_connections") > 2 and time.monotonic() < begun + 2 * CUT_OFF:
        await asyncio.sleep(0.2)
    found.cut_off_seconds = time.monotonic() - begun
    for task in (*clients, honest):
        task.cancel()
    await asyncio.gather(*clients, honest, return_exceptions=True)
    found.honest = dict(sorted(Counter(str(answer.status) for answer in answers).items()))
    seconds = sorted(answer.seconds for answer in answers)
    found.honest_p99 = seconds[int(0.99 * len(seconds))] if seconds else 0.0


async def _asks(client: "Client", words: int, answers: list[Any]) -> None:
    number = 0
    while True:
        number += 1
        answers.append(await client.predict(words, 10**6 + number))
        answers.append(await client.ask("GET", "/health"))
        await asyncio.sleep(0.05)


async def _writes(client: "Client", at_once: bytes, then: bytes) -> None:
    """Send a part at once, then a byte a second; then stay silent."""
    reader, writer = await client.send(at_once)
    try:
        for byte in then:
            if writer.is_closing():  # it was cut off
                return
            writer.write(bytes([byte]))
            await asyncio.sleep(1)
        await reader.read()
    except OSError:
        pass
    finally:
        writer.transport.abort()


async def _reads(client: "Client", request: bytes) -> None:
    """Read an answer at a byte a second, with the smallest possible buffer."""
    narrow = socket.socket()
    narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    narrow.setblocking(False)
    loop = asyncio.get_running_loop()
    try:
        await loop.sock_connect(narrow, (client.host, client.port))
        await loop.sock_sendall(narrow, request)
        while await loop.sock_recv(narrow, 1):
            await asyncio.sleep(1)
    except OSError:
        pass
    finally:
        narrow.close()
