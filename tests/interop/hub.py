"""A hub on this machine's own address: as much of the protocol as huggingface_hub asks for."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """One model, ``name``, whose files are those of a folder; ``asked`` are the paths asked for."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.name, self.folder, self.asked = name, folder, list[str]()
        self.sizes: dict[str, int] = {}  # told instead of the true ones

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        hub = self.server
        api, resolve = f"/api/models/{hub.name}", f"/{hub.name}/resolve/"
        if path == api or path.startswith(f"{api}/revision/"):
            known = path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}")
            return self.answer(*((200, self.model()) if known else self.missing("Revision")))
        if path.startswith(resolve):
            _, _, name = path.removeprefix(resolve).partition("/")
            file = hub.folder / name
            if file.is_file():
                return self.answer(200, file.read_bytes())
            return self.answer(*self.missing("Entry"))
        return self.answer(*self.missing("Repo"))

    do_HEAD = do_GET

    def model(self) -> bytes:
        files = [
            {"rfilename": path.relative_to(self.server.folder).as_posix(),
             "size": self.server.sizes.get(path.name, path.stat().st_size)}
            for path in sorted(self.server.folder.rglob("*")) if path.is_file()
        ]  # fmt: skip
        return json.dumps({"id": self.server.name, "sha": COMMIT, "siblings": files}).encode()

    def missing(self, what: str) -> tuple[int, bytes]:
        self.error = f"{what}NotFound"
        return 404, b"{}"

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        if status == 404:
            self.send_header("X-Error-Code", self.error)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(name: str, folder: Path) -> Iterator[Hub]:
    hub = Hub(name, folder)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
