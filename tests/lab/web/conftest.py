"""A few tiny runs and a server: in this process for what it says, in a second for how it lives."""

import csv
import json
import random
import re
import signal
import string
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.lab.small_runs import trained_run

Ask = Callable[..., httpx.Response]
TINY = [
    "examples=120", "width=8", "heads=2", "layers=2", "feedforward=12", "epochs=1",
    "batch_tokens=300", "threads=1", "precision=fp32",
]  # fmt: skip
TURNED = [
    "width=8", "hidden=8", "steps=2", "batch_tokens=200", "threads=1",
    "precision=fp32", "judged=8",
]  # fmt: skip
GOES_ON = [
    "data=biographies", "examples=120", "tokenizer=characters", "length=64", "width=16", "heads=2",
    "layers=2", "feedforward=24", "steps=4", "batch_tokens=400", "threads=1", "precision=fp32",
]  # fmt: skip


def turned(folder: Path) -> str:
    """A few strings of letters and what they are from the end; as a setting."""
    chance = random.Random(0)
    rows = ["".join(chance.choices(string.ascii_uppercase, k=6)) for _ in range(90)]
    path = folder / "strings.tsv"
    path.write_text("".join(f"{row}\t{row[::-1]}\n" for row in rows))
    return f"data={path}"


def train_all(home: Path, *trainings: tuple[str, str, str, list[str]]) -> None:
    """Train runs: (name, task, model, settings)."""

    for name, task, model, settings in trainings:
        trained_run(home / name, task, model, settings)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs that label, write and go on, a baseline, a folder as Hugging Face has it; read only."""
    from regard.lab import runs
    from regard.lab.runs.export import export

    home = tmp_path_factory.mktemp("served")
    strings = turned(tmp_path_factory.mktemp("strings"))
    train_all(
        home,
        ("labels", "classification", "transformer", TINY),
        ("counts", "classification", "tfidf", ["examples=120", "threads=1"]),
        ("writes", "reverse", "lab-6", [strings, *TURNED]),
        ("goes", "language-modeling", "gpt", GOES_ON),
    )
    export(runs.load(home / "goes"), "huggingface", home / "hugging")
    return home


@pytest.fixture(scope="session")
def every(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of further tasks, and one without attention; read only."""
    home = tmp_path_factory.mktemp("every")
    strings = turned(tmp_path_factory.mktemp("more-strings"))
    train_all(
        home,
        ("tags", "tagging", "transformer", TINY),
        ("translates", "reverse", "transformer", [strings, *TURNED[2:], *TINY[1:5]]),
        ("masks", "masked-modeling", "bert", GOES_ON),
        ("recurrent", "classification", "rnn", ["examples=120", "width=8", "epochs=1"]),
    )
    return home


def in_this_process(registry: Any, **limits: int) -> Any:
    """A client of a server in this process."""
    from starlette.testclient import TestClient

    from regard.lab.web.api import create_app
    from regard.lab.web.limits import Limits

    app = create_app(registry, Limits(**limits))
    return TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)


def asker(folder: Path) -> Iterator[Ask]:
    """Ask a server of a folder in this process."""
    from regard.lab.web.registry import find

    limits = {"texts": 3, "tokens": 20, "body": 2_000, "numbers": 500}
    with in_this_process(find([folder]), **limits) as opened:

        def ask(method: str, path: str, json: Any = None, **more: Any) -> httpx.Response:
            return opened.request(method, path, json=json, **more)

        yield ask


@pytest.fixture
def client_of_every(every: Path) -> Iterator[Ask]:
    """Ask a server of the runs of further tasks: ``client_of_every("POST", "/predict", {...})``."""
    yield from asker(every)


@pytest.fixture
def client(folder: Path) -> Iterator[Ask]:
    """Ask a server in this process: ``client("POST", "/predict", {...})``."""
    yield from asker(folder)


def wait_for(url: str) -> None:
    """Until a server answers."""
    with httpx.Client(base_url=url) as asker:
        for _ in range(200):
            try:
                asker.get("/health")
                return
            except httpx.ConnectError:
                time.sleep(0.05)


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
        wait_for(self.url)

    def end(self, number: int = signal.SIGTERM, seconds: float = 60) -> tuple[int, str]:
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


class Opened:
    """A page of the server, what it asked for elsewhere, and what it complained about."""

    def __init__(self, browser: Any, server: str, first: bool = False, **options: Any) -> None:
        self.page = browser.new_page(**{"accept_downloads": True, **options})
        self.page.set_default_timeout(20_000)
        if not first:
            self.page.add_init_script("localStorage.setItem('regard-tour', 'seen')")
        self.server, self.elsewhere, self.complaints = server, list[str](), list[str]()
        self.page.on("request", lambda r: self._asked(r.url))
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("dialog", lambda d: self.complaints.append(d.message))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.server, "data:", "blob:")):
            self.elsewhere.append(url)

    def show(self, state: str | dict[str, Any], wait: str = "h1") -> Any:
        said = state if isinstance(state, str) else urllib.parse.urlencode(state)
        self.page.goto(f"{self.server}/#{said}")
        self.page.wait_for_selector(wait)
        return self.page

    def well(self) -> None:
        assert (self.elsewhere, self.complaints) == ([], [])
        self.page.close()


Open = Callable[..., Opened]


def faults(page: Any) -> list[tuple[str, list[str]]]:
    """What axe finds that is serious."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    return [
        (fault["id"], [node["html"][:120] for node in fault["nodes"]][:3])
        for fault in axe.Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


def saved(page: Any, button: Any, folder: Path) -> Path:
    """The file that a button gives."""
    with page.expect_download() as download:
        button.click()
    name = download.value.suggested_filename
    assert not set(name) & set("<>\"'/\\:|?*\n\r\u202e\u2028"), name
    download.value.save_as(folder / name)
    return folder / name


def csv_rows(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.reader(file))


def until(page: Any, holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something without a script of its own, which the page's policy would not run."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        page.wait_for_timeout(30)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    yield from serving_until_done(folder)


@pytest.fixture
def opened(browser: Any, server: str) -> Iterator[Open]:
    """Open pages of the server; at the end none has complained or asked for anything elsewhere."""
    pages: list[Opened] = []

    def open_(**options: Any) -> Opened:
        pages.append(Opened(browser, server, **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.well()


@pytest.fixture(scope="module")
def server_of_every(every: Path) -> Iterator[str]:
    yield from serving_until_done(every)


def serving_until_done(home: Path, *words: str) -> Iterator[str]:
    """The address of a server of these runs, in a process that ends with the fixture."""
    begun = Server(home, *words, "deadline=60")
    yield begun.url
    begun.process.kill()
    begun.process.communicate()


def look_at(texts: list[str]) -> dict[str, Any]:
    """What the server answers a look with, every text in it one of these."""
    from regard.analysis.layer_attention import LayerAttention
    from regard.lab.reports.packed import pack

    n = len(texts)
    layers = [
        LayerAttention(f"blocks.{i}.attention", texts, np.full((2, n, n), 1 / n)) for i in range(2)
    ]
    answer = {"label": texts[0], "probabilities": dict.fromkeys(texts, 1 / n)}
    return {"run": texts[1], "text": "\n".join(texts), "answer": answer, **pack(layers)}


def answering(body: Any) -> Callable[[Any], None]:
    said = json.dumps(body)
    return lambda route: route.fulfill(body=said, content_type="application/json")
