"""A connection to the server: how long it may take to ask, and to take its answer.

uvicorn waits without end for the head of a request, and for whoever does not read. Here they are
cut off; where connections are scarce, the one that has been silent for longest makes room.
"""

import asyncio
import http
import json
import math
import socket
import struct
import time
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from regard.web.guard import HEADERS, SLOW, too_slow
from regard.web.limits import Limits
from regard.web.refusal import RefusedError

TAKE = 30.0  # seconds in which an answer must be read, but for what the system holds of it
PATIENCE = 1.0  # seconds for which a connection may be silent, however many there are
BEHIND = 1 / 8  # of the deadline: when a request has waited so long unread, the server is behind
TCP, TCP_INFO, LAST_DATA = 6, 11, 52  # Linux: where a socket tells when its last data came


class Connections:
    """The open connections, and those of them with nothing at work, the longest silent first."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.refused = limits, 0
        self.open: set[Connection] = set()
        self.silent: dict[Connection, float] = {}  # and since when

    @property
    def count(self) -> int:
        """How many are open."""
        return len(self.open)

    def behind(self, waited: float) -> RefusedError | None:
        """The refusal of a request that has waited so long unread, among more than have a place.

        To refuse it costs little as long as it is unread; to read all of them first would leave
        them all late.
        """
        if self.count <= self.limits.queue or waited <= BEHIND * self.limits.deadline:
            return None
        self.refused += 1
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


class Connection(H11Protocol):
    """HTTP/1.1 with a bound on all that the other side can be slow in."""

    def __init__(self, *given: Any, places: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self.places = places
        self.app_state = dict(self.app_state)  # of this connection: when its request arrived
        self.head, self.answer = Clock(self.loop), Clock(self.loop)

    @property
    def at_work(self) -> bool:
        """Whether a request has come that is not answered yet."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the head of a request, but not for long."""
        super().connection_made(transport)
        self.places.open.add(self)
        self.places.silent[self] = time.monotonic()
        self.head.begin(SLOW, self._cut_off)
        self.places.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        super().connection_lost(exc)
        self.head.stop()
        self.answer.stop()
        self.places.open.discard(self)
        self.places.silent.pop(self, None)

    def data_received(self, data: bytes) -> None:
        """Note when a request arrived, and where the server is behind refuse it unread.

        The body of one whose head has come is waited for by the guard.
        """
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            waited = unread(self.transport)
            if refused := self.places.behind(waited):
                self._end(refused)
                return
            self.app_state["arrived"] = time.monotonic() - waited
        super().data_received(data)
        if self.at_work:
            self.head.stop()
            self.places.silent.pop(self, None)
        else:  # a part of a head, or the rest of a request that was refused
            self.head.begin(SLOW, self._cut_off)

    def on_response_complete(self) -> None:
        """Wait until the answer is read, then for the next request."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self.answer.begin(TAKE, self.transport.abort)
        if not self.at_work:
            self.places.silent[self] = time.monotonic()

    def pause_writing(self) -> None:
        """Wait until what was written is read, but not for long."""
        super().pause_writing()
        self.answer.begin(TAKE, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on: nearly all of it was read."""
        super().resume_writing()
        self.answer.stop()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, unless an answer has begun, and close."""
        if self.at_work:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._end(RefusedError(400, "this cannot be read as an HTTP request"))

    def _cut_off(self) -> None:
        if self.conn.trailing_data[0]:
            self._end(too_slow())
        else:
            self.transport.abort()

    def _end(self, refused: RefusedError) -> None:
        """Refuse a request that has not reached the application."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = json.dumps({"error": refused.says}).encode()
            headers = {**HEADERS, **refused.headers, "connection": "close"}
            headers |= {"content-type": "application/json", "content-length": str(len(body))}
            reason = http.HTTPStatus(refused.status).phrase.encode()
            named = list(headers.items())
            head = h11.Response(status_code=refused.status, headers=named, reason=reason)
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
        self.answer.begin(TAKE, self.transport.abort)


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
