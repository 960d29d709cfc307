"""Run the server: bind a socket, serve, shut down gracefully."""

import signal
import socket
import sys
from collections.abc import Callable, Collection
from functools import partial
from types import FrameType

import uvicorn

from regard.core.errors import RegardError
from regard.lab.web.api import create_app
from regard.lab.web.connections import Connection, Connections
from regard.lab.web.guard import LOCAL
from regard.lab.web.limits import Limits
from regard.lab.web.registry import Registry

SWITCH_INTERVAL = 0.0002  # seconds until a thread yields to another


def bound(host: str, port: int) -> socket.socket:
    """Return a listening socket. Raises: the port is in use; the address is not on this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With an explicit IPPROTO_TCP asyncio sets TCP_NODELAY; else a keep-alive answer waits 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        raise RegardError(
            f"cannot listen on {host}:{port}: {getattr(error, 'strerror', None) or error}; "
            "choose another --port, or --port 0 for any free one"
        ) from None
    return listening


def address(listening: socket.socket) -> str:
    """Return the URL to open in a browser."""
    host, port = listening.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}/"


def serve(
    registry: Registry,
    limits: Limits,
    listening: socket.socket,
    allow: Collection[str] = (),
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, then refuse new requests and finish those in flight within
    ``limits.drain`` seconds."""
    connections = Connections(limits)
    host = listening.getsockname()[0]
    own = {f"[{host}]" if ":" in host else host}
    config = uvicorn.Config(
        create_app(registry, limits, {*LOCAL, *own, *allow}, connections),
        http=partial(Connection, places=connections),  # type: ignore[arg-type]
        log_level="error", access_log=False, server_header=False, lifespan="on",
        timeout_graceful_shutdown=int(limits.drain) + 1, timeout_keep_alive=5, ws="none",
        proxy_headers=False, backlog=2048,
    )  # fmt: skip

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(0)

    # The models' thread computes; the network thread must not wait 5 ms for each switch.
    sys.setswitchinterval(SWITCH_INTERVAL)
    previous = signal.signal(signal.SIGTERM, end)  # uvicorn raises it again once it has ended
    try:
        ready()
        uvicorn.Server(config).run([listening])
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, previous)
        listening.close()
