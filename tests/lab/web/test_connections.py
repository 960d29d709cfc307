"""Clients that are slow, silent or speak no HTTP, and when a request has arrived."""

import asyncio
import json
import logging
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from starlette.testclient import TestClient
from uvicorn import Config
from uvicorn.server import ServerState

from benchmarks import hostile_clients
from benchmarks.hostile_clients import Hostile, Slow
from benchmarks.serving import Client
from regard.lab.web import api, connections
from regard.lab.web.api import Api
from regard.lab.web.connections import Connection, Connections
from regard.lab.web.guard import Guard
from regard.lab.web.limits import Limits
from regard.lab.web.metrics import Metrics
from regard.lab.web.queue import Job
from regard.lab.web.refusal import RefusedError
from regard.lab.web.registry import Registry
from tests.lab.web.conftest import Server

HEAD = b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
CLOSE = HEAD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
SHORT = 0.3  # seconds, for those that are 5 to 30


def limits(**given: float) -> Limits:
    """Limits with short times."""
    times = ("header_timeout", "body_timeout", "send_timeout", "linger")
    return Limits(**dict.fromkeys(times, SHORT) | given)  # type: ignore[arg-type]


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Reads all of a body, and tells when the request arrived."""
    while (await receive()).get("more_body"):
        pass
    said = json.dumps(time.monotonic() - scope["state"]["arrived"]).encode()
    headers = [(b"content-length", str(len(said)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


def answering(size: int) -> Any:
    """An app that answers with so many bytes."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", str(size).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x" * size})

    return app


async def refuses(scope: Any, receive: Any, send: Any) -> None:
    """Answers before a body is read."""
    await send({"type": "http.response.start", "status": 503, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def narrow() -> socket.socket:
    """What listens, with as little room for answers as the system gives."""
    found = listening()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
    return found


def listening() -> socket.socket:
    found = socket.create_server(("127.0.0.1", 0))
    found.setblocking(False)
    return found


@asynccontextmanager
async def serving(
    app: Any, places: Connections, own: socket.socket | None = None
) -> AsyncIterator[Callable[[], Awaitable[Any]]]:
    """An app behind connections of its own; gives what opens one."""
    config = Config(app, log_level="error", access_log=False, ws="none")
    config.load()
    state, own = ServerState(), own or listening()

    def protocol() -> Connection:
        return Connection(config=config, server_state=state, app_state={}, places=places)

    server = await asyncio.get_running_loop().create_server(protocol, sock=own)
    port, writers = own.getsockname()[1], list[asyncio.StreamWriter]()

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        server.close()
        for transport in (writer.transport for writer in writers):
            transport.abort()
        for connection in list(places.open):
            connection.transport.abort()
        await until_free(places)


def within(seconds: float, trial: Awaitable[Any]) -> Any:
    async def bounded() -> Any:
        return await asyncio.wait_for(trial, seconds)

    return asyncio.run(bounded())


def answer_to(data: bytes, app: Any, places: Connections, seconds: float = 5) -> bytes:
    """What a connection says to bytes before it ends."""

    async def trial() -> bytes:
        async with serving(app, places) as connect:
            reader, writer = await connect()
            writer.write(data)
            return await reader.read()

    said: bytes = within(seconds, trial())
    return said


def in_time(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in a loop of its own, for five seconds at most."""

    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        within(5, test(*given, **named))

    return run


async def until_free(places: Connections) -> None:
    while places.count:
        await asyncio.sleep(0.01)


@in_time
async def test_who_says_nothing_is_cut_off() -> None:
    places = Connections(limits())
    async with serving(echo, places) as connect:
        begun = time.monotonic()
        await connect()
        await asyncio.sleep(0.01)
        assert places.count == 1
        await until_free(places)
        assert 0.9 * SHORT <= time.monotonic() - begun < 4
    assert places.silent == {}


@in_time
async def test_a_head_that_comes_byte_by_byte_has_no_more_time() -> None:
    places = Connections(limits())
    async with serving(echo, places) as connect:
        reader, writer = await connect()
        for byte in HEAD:
            writer.write(bytes([byte]))
            await asyncio.sleep(0.02)
            if places.count == 0:
                break
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"did not arrive within 0.3 s" in said
    assert b"default-src 'none'" in said


@in_time
async def test_the_rest_of_a_refused_request_has_no_more_time() -> None:
    places = Connections(limits())
    async with serving(refuses, places) as connect:
        _, writer = await connect()
        writer.write(HEAD % 10_000)
        while places.count == 0:
            await asyncio.sleep(0.01)
        while places.count:
            writer.write(b" ")
            await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("size", "most"), [(40_000, 40_000), (400_000, 400_000), (400_000, 16_000)]
)
@in_time
async def test_an_answer_of_which_no_more_is_read_is_not_kept(size: int, most: int) -> None:
    """Whether all of it is left or, where asyncio says that writing may go on, its end."""
    places, own = Connections(limits(send_timeout=0.5)), narrow()
    async with serving(answering(size), places, own):
        loop = asyncio.get_running_loop()
        with socket.socket() as asker:
            asker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            asker.setblocking(False)
            await loop.sock_connect(asker, own.getsockname())
            await loop.sock_sendall(asker, CLOSE % 0)
            await loop.sock_recv(asker, 1)
            transport = next(iter(places.open)).transport
            while (left := transport.get_write_buffer_size()) > most:
                await loop.sock_recv(asker, 4_096)
            assert left > 0
            await until_free(places)


@in_time
async def test_an_answer_that_was_read_late_ends_no_connection() -> None:
    places = Connections(limits(header_timeout=9))
    async with serving(answering(40_000), places, narrow()) as connect:
        reader, writer = await connect()
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(40_000) == b"x" * 40_000
            await asyncio.sleep(1.5 * SHORT)


@pytest.mark.parametrize("refusal", ["app", "full", "no HTTP"])
@in_time
async def test_a_refusal_is_read_by_who_sends_all_of_the_request_first(refusal: str) -> None:
    """Closed at once, the connection would break while the rest of the request is sent."""
    places = Connections(limits(linger=9))
    if refusal == "full":
        places.full = lambda: RefusedError(503, "queue: full", {"Retry-After": "7"})
    head = b"no HTTP\r\n\r\n" if refusal == "no HTTP" else CLOSE % 3_000_000
    async with serving(refuses, places) as connect:
        reader, writer = await connect()
        writer.write(head)
        await asyncio.sleep(0.05)
        for _ in range(30):
            writer.write(b" " * 100_000)
            await writer.drain()
        said = await reader.read()
        writer.close()
        await until_free(places)
    assert said.startswith(b"HTTP/1.1 400 " if refusal == "no HTTP" else b"HTTP/1.1 503 ")
    assert (b"Retry-After: 7\r\n" in said) == (refusal == "full")


@in_time
async def test_who_was_refused_and_stays_is_cut_off() -> None:
    places = Connections(limits())
    async with serving(refuses, places) as connect:
        _, writer = await connect()
        writer.write(CLOSE % 10_000)
        while not places.open:
            await asyncio.sleep(0.01)
        assert places.silent or next(iter(places.open)).at_work
        await until_free(places)


@in_time
async def test_a_body_that_stays_away_gets_its_status() -> None:
    places = Connections(limits())
    async with serving(Guard(echo, places.limits, Metrics()), places) as connect:
        reader, writer = await connect()
        writer.write(HEAD % 9 + b"{")
        said = await reader.read()
        await until_free(places)
    assert said.startswith(b"HTTP/1.1 408 ")
    assert b"body_timeout: the body of the request did not arrive within 0.3 s" in said


def test_a_head_without_end_is_too_large() -> None:
    endless = b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000
    said = answer_to(endless, echo, Connections(limits()))
    assert said.startswith(b"HTTP/1.1 431 ")
    assert b"exceed 16,384 bytes" in said


def test_a_question_without_a_place_is_refused_before_it_is_parsed() -> None:
    places = Connections(limits())
    asked = Api(Registry({}), places.limits, places)
    assert places.refusal(b"POST /predict", 0) is None
    asked.queue.close()
    refused = places.refusal(b"POST /predict", 0)
    assert refused is not None
    assert (refused.status, places.refused) == (503, 1)
    assert int(refused.headers["Retry-After"]) >= 1
    assert places.refusal(b"GET /metrics", 0) is None, "what needs no place is answered"


def test_an_answer_that_is_read_is_whole_however_long_it_waits_for_its_reader() -> None:
    asked = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    said = answer_to(asked, answering(30_000_000), Connections(limits(send_timeout=9)), seconds=10)
    assert said.endswith(b"x" * 1000)


@in_time
async def test_the_longest_silent_makes_room_and_who_has_spoken_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "PATIENCE", 0.05)
    places = Connections(limits(connections=2, header_timeout=60))
    async with serving(echo, places) as connect:
        await connect()
        await asyncio.sleep(0.01)
        spoken = next(iter(places.silent))
        await connect()
        await asyncio.sleep(0.1)
        monkeypatch.setattr(spoken, "data_received", lambda data: None)
        monkeypatch.setattr(connections, "has_unread_data", lambda own: own is spoken.transport)
        await connect()  # too many, but the longest silent has spoken
        await asyncio.sleep(0.05)
        assert places.count == 3
        await connect()  # now the second makes room
        while places.count != 3:
            await asyncio.sleep(0.01)
        assert spoken in places.open


def test_data_that_nobody_has_read_are_heard() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)

        class Transport:
            def get_extra_info(self, name: str) -> socket.socket:
                return ours

        assert not connections.has_unread_data(Transport())  # type: ignore[arg-type]
        theirs.send(b"x")
        assert connections.has_unread_data(Transport())  # type: ignore[arg-type]
        assert ours.recv(9) == b"x", "it is still there"


def test_where_the_server_is_behind_a_request_is_refused_unread() -> None:
    places = Connections(limits(queue=1, deadline=1))
    own = listening()
    askers = [socket.create_connection(own.getsockname()) for _ in range(2)]
    for asker in askers:
        asker.sendall(HEAD % 0)
    time.sleep(0.3)  # more than an eighth of the deadline

    async def trial() -> list[bytes]:
        async with serving(echo, places, own):
            loop = asyncio.get_running_loop()
            return [await loop.sock_recv(asker, 10_000) for asker in askers]

    for asker in askers:
        asker.setblocking(False)
    first, second = (said.lower().split(b"\r\n") for said in within(5, trial()))
    assert first[0].startswith(b"http/1.1 503 ")
    assert b"retry-after: 1" in first
    assert (first[0], places.refused) == (second[0], 2)
    for asker in askers:
        asker.close()
    assert places.behind(0.1) is None
    assert Connections(Limits(deadline=1)).behind(9) is None, "whoever waits alone is read"


def test_a_request_has_arrived_before_anyone_reads_it() -> None:
    own = listening()
    asker = socket.create_connection(own.getsockname())
    asker.sendall(HEAD % 0)
    time.sleep(0.5)

    async def trial() -> float:
        async with serving(echo, Connections(limits()), own):
            loop = asyncio.get_running_loop()
            asker.setblocking(False)
            said = await loop.sock_recv(asker, 10_000)
            return float(json.loads(said.partition(b"\r\n\r\n")[2]))

    with asker:
        assert 0.4 < within(5, trial()) < 5


@pytest.mark.parametrize(
    "data",
    [b"\x16\x03\x01\x02\r\n\r\n", b"GET /\r\n\r\n", HEAD.replace(b": %d", b": many"),
     HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") + b"no number\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_refused_and_nothing_is_logged(
    data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        said = answer_to(data, echo, Connections(limits()))
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"cannot be read as an HTTP request" in said
    assert [record.getMessage() for record in caplog.records] == []


def test_who_has_waited_too_long_is_refused_unread() -> None:
    sent: list[Any] = []

    async def never(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("it is too late")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/predict",
        "headers": [(b"host", b"localhost")],
    }
    scope["state"] = {"arrived": time.monotonic() - 2}
    asyncio.run(Guard(never, Limits(deadline=1), Metrics())(scope, lambda: asyncio.sleep(9), send))
    assert sent[0]["status"] == 504


def test_an_answer_that_comes_after_the_deadline_is_none() -> None:
    """The loop was busy while both passed: the deadline, and the model's answer."""
    asked = Api(Registry({}), Limits(deadline=0.2), Connections(limits()))

    class Asked:
        scope = MappingProxyType[str, Any]({})

        async def receive(self) -> Any:
            await asyncio.sleep(9)

    def work(given: list[Any]) -> list[Any]:
        time.sleep(0.05)
        return given

    async def trial() -> Any:
        asyncio.get_running_loop().call_later(0.01, time.sleep, 0.4)
        return await asked.ask(Asked(), Job(1, work))  # type: ignore[arg-type]

    with pytest.raises(RefusedError) as refused:
        asyncio.run(trial())
    assert refused.value.status == 504


def test_free_memory_is_handed_back_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    handed: list[None] = []
    monkeypatch.setattr(api, "TRIM", 0.01)
    monkeypatch.setattr(api, "trim", lambda: handed.append(None))
    with TestClient(api.create_app(Registry({})), base_url="http://127.0.0.1") as opened:
        end = time.monotonic() + 5
        while len(handed) < 2 and time.monotonic() < end:
            assert opened.get("/health").status_code == 200
    assert len(handed) >= 2
    ended = len(handed)
    time.sleep(0.1)
    assert len(handed) == ended


def test_no_hostile_request_is_answered_nor_reaches_a_model(folder: Path) -> None:
    server = Server(folder / "labels", "body=1000000")
    try:
        client = Client(server.url, "labels")
        assert asyncio.run(client.predict(9, 0)).status == 200
        found = Hostile()
        asyncio.run(hostile_clients.alone(client, found))
        assert found == Hostile()
    finally:
        code, err = server.end()
    assert (code, err) == (0, "")


def test_the_benchmark_finds_fault_with_what_it_saw() -> None:
    seen = Hostile(wrong=["host 'evil': 200"], never=["NaN: 200"], reached=3)
    assert len(seen.faults()) == 3
    slow = Slow(clients=4, cut_off_seconds=50, honest={"500": 1}, honest_p99=11)
    assert len(slow.faults(10)) == 4
    assert Slow(4, 10.0, {"200": 9, "503": 1}, 1.0).faults(10) == []
