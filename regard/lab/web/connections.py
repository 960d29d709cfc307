"""Connections to the server, with timeouts for sending a request and for reading the answer.

uvicorn has no timeout for the head of a request, and none for a client that does not read. Here
both are closed after a timeout. If too many connections are open, the one that has been idle
longest is closed. Measured with uvicorn 0.54 alone and ``limit_concurrency=512``: after 600 clients
had sent half a head each, every request got 503 until the measurement ended (120 s).

An answer may be complete before its request is. A socket that is closed while data arrive is reset,
and the client loses the answer (RFC 9112, section 9.6). The rest is therefore read and discarded
before the socket is closed.
"""

import asyncio
import http
import json
import math
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.lab.web.guard import HEADERS, head_too_large, too_slow
from regard.lab.web.limits import Limits
from regard.lab.web.refusal import RefusedError

PATIENCE = 1.0  # seconds that every connection may be idle
BEHIND = 1 / 8  # the server is behind if a request waits unread for this share of the deadline
TCP, TCP_INFO, LAST_DATA = 6, 11, 52  # Linux: the time since a socket's last data


class Connections:
    """The open connections, and the idle ones of them, the longest idle first."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.refused = limits, 0
        #: Returns the refusal of a question if the queue is full, else None.
        self.full: Callable[[], RefusedError | None] = lambda: None
        self.open: set[Connection] = set()
        self.silent: dict[Connection, float] = {}  # the idle ones, with the time they became idle

    @property
    def count(self) -> int:
        """Return the number of open connections."""
        return len(self.open)

    def refusal(self, data: bytes, waited: float) -> RefusedError | None:
        """Return the refusal of a request by its first bytes, or None to parse it.

        A question is refused if the queue is full, any request if the server is `behind`. Parsing
        all requests first would delay all of them.
        """
        refused = (self.full() if data.startswith(b"POST ") else None) or self.behind(waited)
        self.refused += refused is not None
        return refused

    def behind(self, waited: float) -> RefusedError | None:
        """Return the refusal of a request that waited this long, if the server is behind."""
        if self.count <= self.limits.queue or waited <= BEHIND * self.limits.deadline:
            return None
        message = f"{self.count} connections are open; this request has waited for {waited:.1f} s"
        return RefusedError(503, message, {"Retry-After": str(math.ceil(waited))})

    def make_room(self) -> None:
        """If too many connections are open, close the one that has been idle longest."""
        if self.count <= self.limits.connections or not self.silent:
            return
        connection, since = next(iter(self.silent.items()))
        if time.monotonic() - since < PATIENCE:
            return
        del self.silent[connection]
        if has_unread_data(connection.transport):  # not idle: its data wait to be read
            self.silent[connection] = time.monotonic()
        else:
            connection.transport.abort()


class Clock:
    """A timer with at most one pending call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.handle: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, call: Callable[[], None]) -> None:
        """Schedule a call after these seconds, unless one is pending."""
        if self.handle is None:
            self.handle = self.loop.call_later(seconds, call)

    def stop(self) -> None:
        """Cancel the pending call, if any."""
        if self.handle is not None:
            self.handle.cancel()
        self.handle = None


class Transport:
    """A wrapper of asyncio's transport that is closed by the function ``close``."""

    def __init__(self, own: asyncio.Transport, close: Callable[[asyncio.Transport], None]) -> None:
        self._own, self._close, self._closing = own, close, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def is_closing(self) -> bool:
        """Return whether the transport is closed or closing."""
        return self._closing or self._own.is_closing()

    def close(self) -> None:
        """Close the transport; further answers are dropped."""
        if not self.is_closing():
            self._closing = True
            self._close(self._own)


class Connection(H11Protocol):
    """An HTTP/1.1 connection with timeouts for a slow client."""

    def __init__(self, *args: Any, places: Connections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.places, self.limits = places, places.limits
        self.app_state = dict(self.app_state)  # its own copy, for the time when its request arrived
        self.head, self.answer = Clock(self.loop), Clock(self.loop)

    @property
    def at_work(self) -> bool:
        """Return whether a request has been received but not answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timeout for the head of a request."""
        transport.set_write_buffer_limits(high=0)  # pause writing until all is read
        super().connection_made(Transport(transport, self._close))  # type: ignore[arg-type]
        self.places.open.add(self)
        self.places.silent[self] = time.monotonic()
        self.head.begin(self.limits.header_timeout, self._cut_off)
        self.places.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers and free the slot."""
        super().connection_lost(exc)
        self.head.stop()
        self.answer.stop()
        self.places.open.discard(self)
        self.places.silent.pop(self, None)

    @property
    def whole(self) -> bool:
        """Return whether the current request has been received completely."""
        if self.conn.their_state is h11.IDLE:
            return not self.conn.trailing_data[0]
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)

    def data_received(self, data: bytes) -> None:
        """Record when a request arrived, and refuse it unread if there is no slot for it.

        The timeout of the body is the guard's.
        """
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            waited = seconds_unread(self.transport)
            if refused := self.places.refusal(data, waited):
                self.conn.receive_data(data)
                self._end(refused)
                return
            self.app_state["arrived"] = time.monotonic() - waited
        super().data_received(data)
        if self.at_work:
            self.head.stop()
            self.places.silent.pop(self, None)
        else:  # part of a head, or the rest of a refused request
            self.head.begin(self.limits.header_timeout, self._cut_off)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.at_work:
            self.places.silent[self] = time.monotonic()

    def pause_writing(self) -> None:
        """Start the timeout for the client to read the answer."""
        super().pause_writing()
        self.answer.begin(self.limits.send_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue, since the client has read everything."""
        super().resume_writing()
        self.answer.stop()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that is not HTTP, unless an answer has begun, and close."""
        if self.at_work:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if getattr(sys.exc_info()[1], "error_status_hint", 400) == 431:
            self._end(head_too_large())
        else:
            self._end(RefusedError(400, "this cannot be read as an HTTP request"))

    def _cut_off(self) -> None:
        if self.conn.trailing_data[0]:
            self._end(too_slow("header_timeout", self.limits.header_timeout))
        else:
            self.transport.abort()

    def _end(self, error: RefusedError) -> None:
        """Refuse a request that has not reached the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": error.message}).encode()
            headers = {**HEADERS, **error.headers, "connection": "close"}
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            phrase = http.HTTPStatus(error.status).phrase
            head = f"HTTP/1.1 {error.status} {phrase}\r\n{lines}\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _close(self, own: asyncio.Transport) -> None:
        """Close, after the rest of the request has arrived or the time ``linger`` has passed."""
        self.head.stop()
        if self.whole:
            own.close()
            return
        self.places.silent.setdefault(self, time.monotonic())
        self.head.begin(self.limits.linger, own.close)
        self.flow.resume_reading()
        try:
            own.write_eof()
        except OSError:  # the client disconnected
            own.abort()


def has_unread_data(transport: asyncio.BaseTransport) -> bool:
    """Return whether data or the end of the stream have arrived and are not read."""
    with transport.get_extra_info("socket").dup() as own:
        try:
            own.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:  # the client disconnected
            return True
    return True


def seconds_unread(transport: asyncio.BaseTransport) -> float:
    """Return for how many seconds data have waited in the socket; 0 except on Linux.

    Under load a request waits there before it is read, and its deadline has already begun.
    """
    try:
        info = transport.get_extra_info("socket").getsockopt(TCP, TCP_INFO, LAST_DATA + 4)
        return float(struct.unpack_from("I", info, LAST_DATA)[0]) / 1000
    except (AttributeError, OSError, struct.error):
        return 0.0
