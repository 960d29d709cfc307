"""The server as a process: where it listens, how it ends, who leaves it."""

import http.client
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlparse

import httpx

from tests.lab.web.conftest import Server
from tests.lab.web.test_guard import SPELLINGS

Begin = Callable[..., Server]


def test_it_listens_at_this_machine_alone_and_ends_well(serving: Begin, folder: Path) -> None:
    server = serving(folder)
    assert urlparse(server.url).hostname == "127.0.0.1"
    body = {"run": "labels", "text": "a good film"}
    with httpx.Client(base_url=server.url) as asker:
        assert asker.post("/predict", json=body).status_code == 200
    begun = time.monotonic()
    code, err = server.end()
    assert (code, err) == (0, "")
    assert time.monotonic() - begun < 10


def test_a_kept_connection_is_answered_at_once(serving: Begin, folder: Path) -> None:
    found = urlparse(serving(folder).url)
    asker = http.client.HTTPConnection(str(found.hostname), int(found.port or 0))
    taken = []
    for _ in range(12):
        begun = time.monotonic()
        asker.request("GET", "/health")
        asker.getresponse().read()
        taken.append(time.monotonic() - begun)
    asker.close()
    assert min(taken[1:]) < 0.03, "head and body were not held back for each other"


def test_what_is_at_work_is_answered_before_the_end(serving: Begin, folder: Path) -> None:
    server = serving(folder)
    found: list[int] = []

    def ask() -> None:  # the first question loads the model: that takes a while
        body = {"run": "labels", "text": "a good film"}
        found.append(httpx.post(f"{server.url}/predict", json=body, timeout=120).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    while "regard_queue_length 1" not in httpx.get(f"{server.url}/metrics").text and not found:
        time.sleep(0.001)
    code, _ = server.end()
    asking.join()
    assert (code, found) == (0, [200])


def test_who_leaves_frees_a_place_within_a_second(serving: Begin, folder: Path) -> None:
    server = serving(folder, "queue=600", "batch=1")
    host, port = urlparse(server.url).hostname, urlparse(server.url).port
    text = '{"run":"labels","text":"' + "film " * 300 + '"}'
    head = f"POST /look HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(text)}\r\n\r\n{text}".encode()
    askers = []
    for i in range(100):
        asker = socket.create_connection((host, port))
        asker.sendall(request.replace(b"film", f"f{i:03}".encode(), 1))
        askers.append(asker)

    def taken() -> int:
        lines = httpx.get(f"{server.url}/metrics", timeout=20).text.splitlines()
        return int(float(next(x for x in lines if x.startswith("regard_queue_length ")).split()[1]))

    while taken() < 50:
        time.sleep(0.01)
    for asker in askers:
        asker.close()
    left, begun = taken(), time.monotonic()
    while left > 1 and time.monotonic() - begun < 5:
        time.sleep(0.02)
        left = taken()
    assert left <= 1
    assert time.monotonic() - begun <= 1.0


def test_a_taken_port_is_one_line(serving: Begin, folder: Path) -> None:
    import subprocess
    import sys

    port = urlparse(serving(folder).url).port
    words = [sys.executable, "-m", "regard", "serve", str(folder), "--port", str(port)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert found.returncode == 2
    assert found.stderr.count("\n") == 1
    assert f":{port}: Address already in use" in found.stderr


def test_no_spelling_leads_out_of_the_folder(serving: Begin, folder: Path) -> None:
    """As they are written: a client's own library would tidy most of them up."""
    found = urlparse(serving(folder).url)
    host, port = str(found.hostname), int(found.port or 0)
    asker = http.client.HTTPConnection(host, port)
    statuses: dict[int, list[str]] = {}
    more = ["/static/%00", "/static/%00/../api.py", "/..", "/.", "//etc/passwd", "/static/..%00/"]
    absolute = [f"http://{host}:{port}{path}" for path in SPELLINGS[:20]]
    for target in [*SPELLINGS, *more, *absolute]:
        asker.putrequest("GET", target)
        asker.endheaders()
        answer = asker.getresponse()
        body = answer.read()
        statuses.setdefault(answer.status, []).append(target)
        assert b"root:" not in body
    asker.close()
    assert {status: len(targets) for status, targets in statuses.items()} == {
        404: len(SPELLINGS) + len(more) + len(absolute)
    }
    for target in (b"/static/.. /x", b"/static/\xc0\xae\xc0\xae/x", b"/static/\x00", b"/a\tb"):
        with socket.create_connection((host, port)) as raw:  # no HTTP: a target is visible ASCII
            raw.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: " + host.encode() + b"\r\n\r\n")
            assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
