"""Two tiny runs and a server: in this process for what it says, in a second for how it lives."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

TINY = [
    "examples=120", "width=8", "heads=2", "layers=2", "feedforward=12", "epochs=1",
    "batch_tokens=300", "threads=1", "precision=fp32",
]  # fmt: skip
TURNED = [
    "examples=64", "letters=6", "width=8", "hidden=8", "steps=2", "batch_tokens=200", "threads=1",
    "precision=fp32", "judged=8",
]  # fmt: skip
PLAIN = {"content-type": "application/json"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a run that labels, one that writes, and a baseline; nobody may change it."""
    from regard import runs

    home = tmp_path_factory.mktemp("served")
    for name, task, model, settings in (
        ("labels", "sentiment", "transformer", TINY),
        ("counts", "sentiment", "tfidf", ["examples=120", "threads=1"]),
        ("writes", "reverse", "lab-6", TURNED),
    ):
        for _ in runs.start(home / name, task, model, settings).train():
            pass
    return home


@pytest.fixture
def client(folder: Path) -> Iterator[Callable[..., httpx.Response]]:
    """Ask a server in this process: ``client("POST", "/predict", {...})``."""
    from starlette.testclient import TestClient

    from regard.web.api import create_app
    from regard.web.limits import Limits
    from regard.web.shelf import find

    app = create_app(find([folder]), Limits(texts=3, tokens=20, body=2_000, numbers=500))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as opened:

        def ask(method: str, path: str, json: Any = None, **more: Any) -> httpx.Response:
            return opened.request(method, path, json=json, **more)  # type: ignore[return-value]

        yield ask


class Server:
    """``regard serve`` in a process of its own."""

    def __init__(self, *words: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "regard", "serve", *map(str, words), "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"http://\S+", said)
        assert found, f"it did not begin: {said} {self.process.communicate(timeout=5)}"
        self.url = found[0].rstrip("/")
        with httpx.Client(base_url=self.url) as asker:
            for _ in range(200):
                try:
                    asker.get("/health")
                    return
                except httpx.ConnectError:
                    time.sleep(0.05)

    def end(self, number: int = signal.SIGTERM, seconds: float = 12) -> tuple[int, str]:
        """Ask it to end; its exit code and what it said on stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=seconds)
        return self.process.returncode, err


@pytest.fixture
def serving() -> Iterator[Callable[..., Server]]:
    begun: list[Server] = []

    def begin(*words: object) -> Server:
        begun.append(Server(*words))
        return begun[-1]

    yield begin
    for server in begun:
        if server.process.poll() is None:
            server.process.kill()
            server.process.communicate()
