"""ASGI middleware that checks host, origin and size of every request and sets security headers.

A page of another site cannot read or send anything here: Host headers are checked (DNS
rebinding), requests from other origins are refused, and no page may be framed. Starlette's
TrustedHostMiddleware is not enough: it takes the first of two Host headers.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

from regard.lab.web.limits import Limits
from regard.lab.web.metrics import Metrics
from regard.lab.web.refusal import RefusedError, over, too_late

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOCAL = frozenset({"127.0.0.1", "localhost", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "worker-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
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
HEAD = 16_384  # bytes of a request's head


class Guard:
    """Middleware that refuses bad requests, counts all, and sets the headers of every answer."""

    def __init__(
        self,
        app: App,
        limits: Limits,
        metrics: Metrics,
        hosts: Collection[str] = LOCAL,
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts = {_bare(host) for host in hosts}
        self.open = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.app(scope, receive, send)
            return
        started, status = scope.get("state", {}).get("arrived", time.monotonic()), 0
        scope["arrived"] = started
        refusals: list[RefusedError] = []
        expects = any(key.lower() == b"expect" for key, _ in scope["headers"])
        head = scope["method"] == "HEAD"  # answered as GET without the body
        if head:
            scope["method"] = "GET"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if refusals:  # ignore the application's answer to a truncated request
                if status == 0:
                    refusal = refusals.pop()
                    await refuse(refusal, send_with_headers)
                    refusals.append(refusal)
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
                if expects and b"connection" not in own:  # a refused body may come or not
                    message["headers"].append((b"connection", b"close"))
            elif head:
                message = {**message, "body": b""}
            await send(message)

        self.open += 1
        try:
            self._check(scope)
            if scope["method"] == "POST" and time.monotonic() > started + self.limits.deadline:
                raise too_late(self.limits)
            await self.app(scope, _bounded(receive, self.limits, refusals), send_with_headers)
        except RefusedError as error:
            if status == 0:
                refusals.clear()
                await refuse(error, send_with_headers)
        finally:
            self.open -= 1
            route = scope.get("route")
            path = getattr(route, "path", "") if status != 404 else ""
            if not path and scope["path"] in QUESTIONS:
                path = scope["path"]
            self.metrics.add(path or "other", status or 499, time.monotonic() - started)

    def _check(self, scope: Message) -> None:
        if self.open > self.limits.connections:
            most = self.limits.connections
            raise RefusedError(503, f"connections: {most} are already open", {"Retry-After": "1"})
        if scope.get("http_version", "1.1") not in ("1.0", "1.1"):
            raise RefusedError(400, "only HTTP/1.0 and HTTP/1.1 are supported")
        headers = [(key.lower(), value) for key, value in scope["headers"]]
        target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
        if target + sum(len(key) + len(value) for key, value in headers) > HEAD:
            raise head_too_large()
        hosts = [value.decode("latin-1") for key, value in headers if key == b"host"]
        if len(hosts) != 1 or _bare(hosts[0]) not in self.hosts:
            shown = f"{', '.join(hosts)!r:.80}"
            raise RefusedError(
                421, f"unknown Host {shown}; to accept a host name, start regard serve --allow NAME"
            )
        fields = dict(headers)
        origin = fields.get(b"origin", b"").decode("latin-1")
        sent = any(_cross_site(key, value.decode("latin-1"), hosts[0]) for key, value in headers)
        if sent and not _opens_page(scope, fields):
            raise other_site(origin, hosts[0])
        if b"transfer-encoding" in fields and b"content-length" in fields:
            raise RefusedError(400, "send either transfer-encoding or content-length, not both")
        coding = fields.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.strip().lower() not in ("", "identity"):
            raise RefusedError(
                415,
                f"content-encoding {coding[:40]!r}: compressed bodies are not read; send the JSON "
                "as it is",
                {"Accept-Encoding": "identity"},
            )
        length = fields.get(b"content-length", b"0")
        if not length.isdigit():
            raise RefusedError(400, "content-length must be a number of bytes")
        if len(length) > 18 or int(length) > self.limits.body:
            raise over("body", self.limits.body, int(length[:18]), 413)


def _cross_site(key: bytes, value: str, host: str) -> bool:
    """Return whether a header shows that a page of another site sent the request."""
    if key == b"origin":
        return value.partition("://")[2].lower() != host.lower()
    return key == b"sec-fetch-site" and value in ("cross-site", "same-site")


def _opens_page(scope: Message, fields: dict[bytes, bytes]) -> bool:
    """Return whether a link of another site opens the page in a tab: it reads no answer."""
    wanted = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
    opens = all(fields.get(key) == value for key, value in wanted.items())
    return opens and b"origin" not in fields and (scope["method"], scope["path"]) == ("GET", "/")


def other_site(origin: str, host: str) -> RefusedError:
    """Return the refusal of a request that a page of another site sent.

    >>> other_site("https://lab.example", "127.0.0.1:8042").message
    "requests from pages of other sites are refused: Origin 'https://lab.example' is not of Host \
'127.0.0.1:8042'; a proxy must pass on the browser's Host"
    """
    message = "requests from pages of other sites are refused"
    if origin:
        message += (
            f": Origin {origin[:80]!r} is not of Host {host[:80]!r}; a proxy must pass on the "
            "browser's Host"
        )
    return RefusedError(403, message)


def _bare(host: str) -> str:
    """Return a host name without its port.

    >>> _bare("LocalHost:80"), _bare("[::1]:80"), _bare("[::1]")
    ('localhost', '[::1]', '[::1]')
    """
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() and not host.endswith("]") else host.lower()


def _bounded(receive: Receive, limits: Limits, refusals: list[RefusedError]) -> Receive:
    """Limit the size and duration of a request; the refusal is also appended to ``refusals``."""
    size, complete, deadline = 0, False, time.monotonic() + limits.body_timeout

    async def bounded() -> Message:
        nonlocal size, complete
        if complete:  # the next message is the disconnection
            return await receive()
        try:
            message = await asyncio.wait_for(receive(), deadline - time.monotonic())
        except TimeoutError:
            refusals.append(too_slow("body_timeout", limits.body_timeout))
            raise refusals[0] from None
        size += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if size > limits.body:
            refusals.append(over("body", limits.body, size, 413))
            raise refusals[0]
        return message

    return bounded


def too_slow(limit: str, seconds: float) -> RefusedError:
    """Return the refusal of a request whose head or body arrives too slowly.

    >>> too_slow("header_timeout", 10).message
    'header_timeout: the head of the request did not arrive within 10 s'
    """
    part = {"header_timeout": "head", "body_timeout": "body"}[limit]
    return RefusedError(
        408, f"{limit}: the {part} of the request did not arrive within {seconds:g} s"
    )


def head_too_large() -> RefusedError:
    """Return the refusal of a request whose head is over its limit."""
    return RefusedError(431, f"request line and headers exceed {HEAD:,} bytes")


async def refuse(error: RefusedError, send: Send) -> None:
    """Send a refusal as one JSON object."""
    body = json.dumps({"error": error.message}, ensure_ascii=False).encode(errors="replace")
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= {key.lower(): value for key, value in error.headers.items()}
    if error.status in (400, 408, 413, 415, 431):
        headers["connection"] = "close"
    start = [(key.encode(), value.encode()) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": start})
    await send({"type": "http.response.body", "body": body})
