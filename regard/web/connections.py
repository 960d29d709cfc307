"""A connection to the server: how long it may take to ask, and to take its answer.

uvicorn waits without end for the head of a request, and for a client that does not read. Here they
are cut off; where connections are scarce, the one that has been silent for longest makes room.

An answer may be complete before its request is. A socket that is closed while data arrive is reset,
and the client loses the answer (RFC 9112, section 9.6): the rest is read and dropped first.
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

from regard.web.guard import HEADERS, head_too_large, too_slow
from regard.web.limits import Limits
from regard.web.refusal import RefusedError

PATIENCE = 1.0  # seconds for which a connection may be silent, however many there are
BEHIND = 1 / 8  # of the deadline: when a request has waited so long unread, the server is behind
TCP, TCP_INFO, LAST_DATA = 6, 11, 52  # Linux: where a socket tells when its last data came


class Connections:
    """The open connections, and those of them with nothing at work, the longest silent first."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.refused = limits, 0
        #: The refusal of a question that finds no place in the queue, if it finds none.
        self.full: Callable[[], RefusedError | None] = lambda: None
        self.open: set[Connection] = set()
        self.silent: dict[Connection, float] = {}  # and since when

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self.open)

    def refusal(self, data: bytes, waited: float) -> RefusedError | None:
        """Return why a request is refused before it is parsed, from its first bytes, if it is.

        A question finds no place, or the request has waited too long among more than have one.
        Parsing all of them first would leave them all late.
        """
        refused = (self.full() if data.startswith(b"POST ") else None) or self.behind(waited)
        self.refused += refused is not None
        return refused

    def behind(self, waited: float) -> RefusedError | None:
        """Return the refusal of a request that has waited so long, if the server is behind."""
        if self.count <= self.limits.queue or waited <= BEHIND * self.limits.deadline:
            return None
        says = f"{self.count} connections are open, and this request has waited for {waited:.1f} s"
        return RefusedError(503, says, {"Retry-After": str(math.ceil(waited))})

    def make_room(self) -> None:
        """Where too many are open, end the one that has been silent for longest."""
        if self.count <= self.limits.connections or not self.silent:
            return
        connection, since = next(iter(self.silent.items()))
        if time.monotonic() - since < PATIENCE:
            return
        del self.silent[connection]
        if heard(connection.transport):  # it has spoken, and nobody has had time for it yet
            self.silent[connection] = time.monotonic()
        else:
            connection.transport.abort()


class Clock:
    """At most one call to come."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.handle: asyncio.TimerHandle | None = None

    def begin(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it then, unless another call is to come already."""
        if self.handle is None:
            self.handle = self.loop.call_later(seconds, call)

    def stop(self) -> None:
        """Call nothing."""
        if self.handle is not None:
            self.handle.cancel()
        self.handle = None


class Transport:
    """asyncio's transport, which `close` closes."""

    def __init__(self, own: asyncio.Transport, close: Callable[[asyncio.Transport], None]) -> None:
        self._own, self._close, self._closing = own, close, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def is_closing(self) -> bool:
        """Whether no more is answered."""
        return self._closing or self._own.is_closing()

    def close(self) -> None:
        """Answer no more, and close."""
        if not self.is_closing():
            self._closing = True
            self._close(self._own)


class Connection(H11Protocol):
    """HTTP/1.1 with a bound on all that the other side can be slow in."""

    def __init__(self, *given: Any, places: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self.places, self.limits = places, places.limits
        self.app_state = dict(self.app_state)  # of this connection: when its request arrived
        self.head, self.answer = Clock(self.loop), Clock(self.loop)

    @property
    def at_work(self) -> bool:
        """Whether a request has come that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of a request, but not for long."""
        transport.set_write_buffer_limits(high=0)  # writing is paused while anything is not taken
        super().connection_made(Transport(transport, self._close))  # type: ignore[arg-type]
        self.places.open.add(self)
        self.places.silent[self] = time.monotonic()
        self.head.begin(self.limits.header_timeout, self._cut_off)
        self.places.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self.head.stop()
        self.answer.stop()
        self.places.open.discard(self)
        self.places.silent.pop(self, None)

    @property
    def whole(self) -> bool:
        """Whether no part of a request is still to come."""
        if self.conn.their_state is h11.IDLE:
            return not self.conn.trailing_data[0]
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)

    def data_received(self, data: bytes) -> None:
        """Note when a request arrived, and where there is no place for it refuse it unread.

        The body of one whose head has come is waited for by the guard.
        """
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            waited = unread(self.transport)
            if refused := self.places.refusal(data, waited):
                self.conn.receive_data(data)
                self._end(refused)
                return
            self.app_state["arrived"] = time.monotonic() - waited
        super().data_received(data)
        if self.at_work:
            self.head.stop()
            self.places.silent.pop(self, None)
        else:  # a part of a head, or the rest of a request that was refused
            self.head.begin(self.limits.header_timeout, self._cut_off)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        if not self.at_work:
            self.places.silent[self] = time.monotonic()

    def pause_writing(self) -> None:
        """Wait until all that was written is taken, but not for long."""
        super().pause_writing()
        self.answer.begin(self.limits.send_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: all of it was taken."""
        super().resume_writing()
        self.answer.stop()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless an answer has begun, and close."""
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

    def _end(self, refused: RefusedError) -> None:
        """Refuse a request that has not reached the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": refused.says}).encode()
            headers = {**HEADERS, **refused.headers, "connection": "close"}
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
            lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
            phrase = http.HTTPStatus(refused.status).phrase
            head = f"HTTP/1.1 {refused.status} {phrase}\r\n{lines}\r\n"
            self.transport.write(head.encode() + body)
        self.transport.close()

    def _close(self, own: asyncio.Transport) -> None:
        """Close; where the rest of a request may come, once it has, or after a while."""
        self.head.stop()
        if self.whole:
            own.close()
            return
        self.places.silent.setdefault(self, time.monotonic())
        self.head.begin(self.limits.linger, own.close)
        self.flow.resume_reading()
        try:
            own.write_eof()
        except OSError:  # it is gone
            own.abort()


def heard(transport: asyncio.BaseTransport) -> bool:
    """Whether data, or the end, have come that nobody has read yet."""
    with transport.get_extra_info("socket").dup() as own:
        try:
            own.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:  # it is gone
            return True
    return True


def unread(transport: asyncio.BaseTransport) -> float:
    """Seconds for which data have lain in the system; 0 where it does not tell (Linux does).

    Under load a request waits before anyone sees it, and its deadline has begun.
    """
    try:
        found = transport.get_extra_info("socket").getsockopt(TCP, TCP_INFO, LAST_DATA + 4)
        return float(struct.unpack_from("I", found, LAST_DATA)[0]) / 1000
    except (AttributeError, OSError, struct.error):
        return 0.0
