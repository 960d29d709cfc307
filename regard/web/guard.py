"""What stands before every request: whose host it names, how large it is, what its answer allows.

Plain ASGI. A page of another site cannot read or ask anything here: names of hosts are compared
(DNS rebinding), requests from other origins are refused, and nothing may frame a page. Starlette's
TrustedHostMiddleware is not enough: it takes the first of two Host headers.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from regard.web.limits import Limits
from regard.web.metrics import Metrics
from regard.web.refusal import RefusedError, over, too_late

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
QUESTIONS = ("/predict", "/translate", "/generate", "/attention", "/look", "/matrix")
SLOW = 10.0  # seconds that a request's head may take, and its body, all of it
HEAD = 16_384  # bytes of a request's head


class Guard:
    """Refuses what the server does not take, counts what comes, and signs every answer."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        metrics: Metrics,
        hosts: Collection[str] = LOCAL,
        full: Callable[[], RefusedError | None] = lambda: None,
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = {host.lower() for host in hosts}
        self.open, self.full = 0, full

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.app(scope, receive, send)
            return
        begun, status = scope.get("state", {}).get("arrived", time.monotonic()), 0
        scope["arrived"] = begun
        broken: list[RefusedError] = []

        async def signed(message: Message) -> None:
            nonlocal status
            if broken:  # whatever the application makes of a request that was cut off
                if status == 0:
                    cut = broken.pop()
                    await refuse(cut, signed)
                    broken.append(cut)
                return
            if message["type"] == "http.response.start":
                status = message["status"]
                own = {key.lower() for key, _ in message.get("headers", [])}
                message = {**message, "headers": list(message.get("headers", []))}
                message["headers"] += [
                    (key.encode(), value.encode())
                    for key, value in {**HEADERS, "cache-control": "no-store"}.items()
                    if key.encode() not in own
                ]
            await send(message)

        self.open += 1
        try:
            self._check(scope)
            if scope["method"] == "POST" and (refused := self.full()):
                raise refused  # before anything is read: refusing must cost next to nothing
            if scope["method"] == "POST" and time.monotonic() > begun + self.limits.deadline:
                raise too_late(self.limits)
            await self.app(scope, _bounded(receive, self.limits.body, broken), signed)
        except RefusedError as refused:
            if status == 0:
                broken.clear()
                await refuse(refused, signed)
        finally:
            self.open -= 1
            route = scope.get("route")
            path = getattr(route, "path", "") if status != 404 else ""
            if not path and scope["path"] in QUESTIONS:
                path = scope["path"]
            self.metrics.add(path or "other", status or 499, time.monotonic() - begun)

    def _check(self, scope: Message) -> None:
        if self.open > self.limits.connections:
            most = self.limits.connections
            raise RefusedError(503, f"connections: {most} are open already", {"Retry-After": "1"})
        if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
            raise RefusedError(400, "this server speaks HTTP/1.1")
        headers = [(key.lower(), value) for key, value in scope["headers"]]
        target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if target + sum(len(key) + len(value) for key, value in headers) > HEAD:
            raise RefusedError(431, f"the head of a request has at most {HEAD:,} bytes here")
        named = [value.decode("latin-1") for key, value in headers if key == b"host"]
        if len(named) != 1 or _bare(named[0]) not in self.hosts:
            what = "regard serve --allow NAME adds one"
            raise RefusedError(421, f"this server does not answer to that host's name; {what}")
        if any(_elsewhere(key, value.decode("latin-1"), named[0]) for key, value in headers):
            raise RefusedError(403, "requests from pages of other sites are not answered")
        given = dict(headers)
        if b"transfer-encoding" in given and b"content-length" in given:
            raise RefusedError(400, "transfer-encoding and content-length exclude each other")
        length = given.get(b"content-length", b"0")
        if not length.isdigit():
            raise RefusedError(400, "content-length is a number of bytes")
        if len(length) > 18 or int(length) > self.limits.body:
            raise over("body", self.limits.body, int(length[:18]), 413)


def _elsewhere(key: bytes, value: str, host: str) -> bool:
    """Whether a header tells that a page of another site asks."""
    if key == b"origin":
        return value.partition("://")[2].lower() != host.lower()
    return key == b"sec-fetch-site" and value in ("cross-site", "same-site")


def _bare(host: str) -> str:
    """A host's name without its port.

    >>> _bare("LocalHost:80"), _bare("[::1]:80"), _bare("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host.lower()


def _bounded(receive: Receive, most: int, broken: list[RefusedError]) -> Receive:
    """The request, refused once it is over the limit or slow to come; `broken` then says why."""
    came, whole, deadline = 0, False, time.monotonic() + SLOW

    async def bounded() -> Message:
        nonlocal came, whole
        if whole:  # what comes now is that the asker leaves
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), deadline - time.monotonic())
        except TimeoutError:
            broken.append(too_slow())
            raise broken[0] from None
        came += len(message.get("body", b""))
        whole = not message.get("more_body", False)
        if came > most:
            broken.append(over("body", most, came, 413))
            raise broken[0]
        return message

    return bounded


def too_slow() -> RefusedError:
    """The refusal of a request that comes too slowly."""
    return RefusedError(408, f"the request did not come within {SLOW:g} s")


async def refuse(refused: RefusedError, send: Send) -> None:
    """Send a refusal as one JSON object."""
    body = json.dumps({"error": refused.says}, ensure_ascii=False).encode(errors="replace")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= {key.lower(): value for key, value in refused.headers.items()}
    if refused.status in (400, 408, 413, 431):
        headers["connection"] = "close"
    start = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": refused.status, "headers": start})
    await send({"type": "http.response.body", "body": body})
