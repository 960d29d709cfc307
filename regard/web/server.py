"""Run the server: bind, say where it is, end in good order."""

import signal
import socket
import sys
from collections.abc import Callable, Collection
from functools import partial
from types import FrameType

import uvicorn

from regard.errors import RegardError
from regard.web.api import create_app
from regard.web.connections import Connection, Connections
from regard.web.guard import LOCAL
from regard.web.limits import Limits
from regard.web.shelf import Shelf

TURN = 0.0002  # seconds after which a thread lets another one run


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Errors: the port is taken; no such address here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named as TCP, asyncio sends at once; else each answer on a kept connection waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise RegardError(
            f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}; "
            "another --port may be free, and --port 0 takes one that is"
        ) from None
    return listening


def address(listening: socket.socket) -> str:
    """Where a browser finds it."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}/"


def serve(
    shelf: Shelf,
    limits: Limits,
    listening: socket.socket,
    allow: Collection[str] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Answer until asked to end (SIGTERM, Ctrl-C): then no more comes in, and what is at work is
    answered within ``limits.drain`` seconds."""
    places = Connections(limits)
    host = listening.getsockname()[0]
    own = {f"[{host}]" if ":" in host else host}
    config = uvicorn.Config(
        create_app(shelf, limits, {*LOCAL, *own, *allow}, places),
        http=partial(Connection, places=places),  # type: ignore[arg-type]
        log_level="error", access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=int(limits.drain) + 1, timeout_keep_alive=5, ws="none",
        proxy_headers=False, backlog=2048,
    )  # fmt: skip

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    # The models' thread computes; the one that listens must not wait 5 ms for each of its turns.
    sys.setswitchinterval(TURN)
    before = signal.signal(signal.SIGTERM, end)  # what uvicorn raises again once it has ended
    try:
        ready()
        uvicorn.Server(config).run([listening])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)
        listening.close()
