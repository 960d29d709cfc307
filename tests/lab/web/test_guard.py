"""Whom the server answers, and what an answer lets a page do."""

import asyncio
import time
from itertools import product
from typing import Any

import pytest

from regard.lab.web.guard import Guard
from regard.lab.web.limits import Limits
from regard.lab.web.metrics import Metrics
from tests.lab.web.conftest import Ask

UPS = (
    "../",
    "..%2f",
    "%2e%2e/",
    "%2e%2e%2f",
    "..\\",
    "..%5c",
    "....//",
    "..%252f",
    "..;/",
    "%c0%ae%c0%ae/",
)
TARGETS = ("etc/passwd", "pyproject.toml", "errors.py", "web/api.py", "C:/windows/win.ini")
PLACES = ("/static/", "/static//", "/", "/static/./")
SPELLINGS = [place + up * n + target for place, up, n, target in product(
    PLACES, UPS, (1, 6), TARGETS)]  # fmt: skip


def test_two_hundred_ways_out_of_the_folder_find_nothing(client: Ask) -> None:
    assert len(SPELLINGS) >= 200
    found = [path for path in SPELLINGS if client("GET", path).status_code != 404]
    assert found == []


@pytest.mark.parametrize("name", ["127.0.0.1", "127.0.0.1:8042", "LOCALHOST", "[::1]:80"])
def test_its_own_names_are_answered(client: Ask, name: str) -> None:
    assert client("GET", "/health", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost:x", "", "127.0.0.1@evil", "[::1"]
)
def test_another_name_is_not_answered(client: Ask, name: str) -> None:
    answer = client("GET", "/health", headers={"host": name})
    assert answer.status_code == 421
    assert "--allow" in answer.json()["error"]


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}],
)
def test_pages_of_other_sites_are_not_answered(client: Ask, headers: dict[str, str]) -> None:
    body = {"run": "labels", "text": "a"}
    assert client("POST", "/predict", body, headers=headers).status_code == 403
    own = {"origin": "http://127.0.0.1"}
    assert (
        client("POST", "/predict", {"run": "labels", "text": "a"}, headers=own).status_code == 200
    )


def test_every_answer_is_signed(client: Ask) -> None:
    for path in ("/", "/health", "/nowhere", "/static/none.js"):
        headers = client("GET", path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
    assert client("GET", "/health").headers["cache-control"] == "no-store"
    page = client("GET", "/")
    tag = page.headers["etag"]
    assert client("GET", "/", headers={"if-none-match": tag}).status_code == 304


def test_a_body_that_comes_byte_by_byte_has_no_more_time() -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    async def reads(scope: Any, receive: Any, send: Any) -> None:
        while (await receive())["more_body"] and time.monotonic() < begun + 5:
            pass

    scope = {"type": "http", "method": "POST", "path": "/predict"}
    scope |= {"headers": [(b"host", b"localhost")]}
    begun = time.monotonic()
    asyncio.run(Guard(reads, Limits(body_timeout=0.3), Metrics())(scope, receive, send))
    assert time.monotonic() < begun + 3
    assert sent[0]["status"] == 408
    assert b"did not arrive within 0.3 s" in sent[1]["body"]
