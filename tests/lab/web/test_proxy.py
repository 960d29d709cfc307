"""The server behind nginx, as docs/explorer.md configures it, and what proxies send."""

import gzip
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.lab.web.conftest import Ask, Opened, serving_until_done, wait_for

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin") or ""
GUIDE = Path(__file__).parents[3] / "docs" / "explorer.md"
QUESTION = {"run": "labels", "text": "a good film"}
LAB = {"host": "lab.example"}
NAVIGATION = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def configuration(home: Path, port: int, server: str) -> str:
    """The server block of the guide with these ports, in what nginx needs to run as a test."""
    (block,) = re.findall(r"```nginx\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    block = block.replace("listen 80;", f"listen 127.0.0.1:{port};")
    block = block.replace("http://127.0.0.1:8042", server).replace(
        "server_name lab.example", "server_name lab.example 127.0.0.1"
    )
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    folders = "".join(f"{kind}_temp_path {home}/{kind}; " for kind in kinds)
    more = "gzip on; gzip_proxied any; gzip_types application/json text/javascript;"
    return (
        f"daemon off; master_process off; pid {home}/pid; error_log {home}/errors;\n"
        f"events {{}}\nhttp {{ access_log off; {folders} {more}\n{block} }}"
    )


@pytest.fixture(scope="module")
def allowed(folder: Path) -> Iterator[str]:
    """The address of a server that also goes by the name lab.example."""
    yield from serving_until_done(folder, "--allow", "lab.example:80")


@pytest.fixture(scope="module")
def proxied(allowed: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of nginx in front of a server of the runs, below /regard/."""
    if not NGINX:
        pytest.skip("nginx is not installed")
    home, port = tmp_path_factory.mktemp("nginx"), free_port()
    (home / "conf").write_text(configuration(home, port, allowed), encoding="utf-8")
    command = [NGINX, "-p", str(home), "-c", str(home / "conf"), "-e", str(home / "errors")]
    proxy = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    wait_for(f"http://127.0.0.1:{port}/regard")
    yield f"http://127.0.0.1:{port}"
    proxy.kill()
    proxy.wait(timeout=10)


def test_the_page_and_its_files_are_below_the_prefix(proxied: str) -> None:
    with httpx.Client(base_url=proxied, headers=LAB) as asker:
        assert asker.get("/regard").headers["location"].endswith("/regard/")
        page = asker.get("/regard/")
        addresses = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
        assert len(addresses) >= 4
        for address in addresses:
            assert asker.get(f"/regard/{address}").status_code == 200
        script = asker.get("/regard/static/app.js")
        assert script.headers["content-encoding"] == "gzip"
        for module in re.findall(r'from "\./([\w.-]+)"', script.text):
            assert asker.get(f"/regard/static/{module}").status_code == 200
        again = {"if-none-match": script.headers["etag"]}
        assert again["if-none-match"].startswith("W/"), "nginx compressed it"
        assert asker.get("/regard/static/app.js", headers=again).status_code == 304
        assert asker.head("/regard/static/app.js").status_code == 200
        assert asker.get("/regard/openapi.json").json()["servers"] == [{"url": "."}]


def test_questions_pass_the_proxy_and_other_sites_do_not(proxied: str) -> None:
    with httpx.Client(base_url=proxied, headers=LAB, timeout=60) as asker:

        def answer(body: Any = QUESTION, **headers: str) -> httpx.Response:
            named = {key.replace("_", "-"): value for key, value in headers.items()}
            return asker.post("/regard/predict", json=body, headers=named)

        assert answer(origin="https://lab.example").status_code == 200
        assert answer(host="lab.example:8443", origin="https://lab.example:8443").status_code == 200
        assert answer(expect="100-continue").status_code == 200
        assert answer(origin="https://evil.example").status_code == 403
        assert answer(host="evil.example", x_forwarded_host="lab.example").status_code == 421
        assert answer(x_forwarded_host="evil.example").status_code == 200
        large = answer({**QUESTION, "text": "a" * 1_200_000})
        assert (large.status_code, large.json()["error"][:18]) == (413, "body: at most 1,00")
        compressed = asker.post(
            "/regard/predict", content=gzip.compress(json.dumps(QUESTION).encode()),
            headers={"content-type": "application/json", "content-encoding": "gzip"},
        )  # fmt: skip
        assert compressed.status_code == 415


def test_the_page_works_behind_the_proxy(browser: Any, proxied: str) -> None:
    opened = Opened(browser, f"{proxied}/regard")
    page = opened.show({"view": "try", "run": "labels", "text": "a good film"}, ".tokens [data-i]")
    assert "regard" in page.title()
    opened.well()


def test_head_is_get_without_the_body(client: Ask) -> None:
    for path in ("/", "/health", "/static/app.js", "/nowhere"):
        whole, head = client("GET", path), client("HEAD", path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]
    assert client("HEAD", "/predict").status_code == 405
    assert client("POST", "/health").headers["allow"] == "GET, HEAD"


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip"])
def test_a_compressed_body_is_refused_with_a_sentence(client: Ask, coding: str) -> None:
    answer = client("POST", "/predict", QUESTION, headers={"content-encoding": coding})
    assert answer.status_code == 415
    assert f"'{coding}'" in answer.json()["error"]
    assert answer.headers["accept-encoding"] == "identity"
    same = client("POST", "/predict", QUESTION, headers={"content-encoding": "identity"})
    assert same.status_code == 200


def test_a_proxy_that_changes_the_host_is_told_so(client: Ask) -> None:
    answer = client("POST", "/predict", QUESTION, headers={"origin": "https://lab.example"})
    assert answer.status_code == 403
    assert "a proxy must pass on the browser's Host" in answer.json()["error"]


def test_a_link_of_another_site_opens_the_page_and_nothing_else(client: Ask) -> None:
    link = {**NAVIGATION, "sec-fetch-dest": "document"}
    assert client("GET", "/", headers=link).status_code == 200
    assert client("GET", "/runs", headers=link).status_code == 403
    assert client("POST", "/", headers=link).status_code == 403
    framed = {**NAVIGATION, "sec-fetch-dest": "iframe"}
    assert client("GET", "/", headers=framed).status_code == 403


def test_a_refused_body_that_was_announced_ends_the_connection(allowed: str) -> None:
    url = httpx.URL(allowed)
    head = f"POST /health HTTP/1.1\r\nHost: lab.example:{url.port}\r\n"
    announced = "Expect: 100-continue\r\nContent-Length: 20\r\n\r\n"
    with socket.create_connection((url.host, int(url.port or 0)), timeout=20) as asker:
        asker.sendall((head + announced).encode())
        read, end = b"", time.monotonic() + 20
        while (part := asker.recv(4096)) and time.monotonic() < end:  # until it is closed
            read += part
    assert read.startswith(b"HTTP/1.1 405")
    assert b"connection: close" in read
