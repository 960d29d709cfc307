"""Serve the page's files, a fixed set of names from the package.

They are read once, so that no request reaches the file system as with Starlette's StaticFiles.
ETags are hashes of the contents, so that a browser never shows an old version.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response

KINDS = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def add_page(app: FastAPI) -> None:
    """Serve the page at ``/`` and its files below ``/static/``."""

    @app.get("/", include_in_schema=False)
    async def index(request: Request) -> Response:
        return _file(request, "index.html", "text/html")

    @app.get("/static/{name:path}", include_in_schema=False)
    async def static(name: str, request: Request) -> Response:
        if name not in modules():
            return Response(status_code=404, content='{"error":"not found"}')
        return _file(request, name, KINDS[name.rsplit(".", 1)[1]])


@cache
def modules() -> dict[str, bytes]:
    """Return the contents of every file of the page by name."""
    folder = files("regard.lab.reports").joinpath("static")
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.is_file() and file.name.rsplit(".", 1)[-1] in (*KINDS, "html")
    }


def _file(request: Request, name: str, kind: str) -> Response:
    content = modules()[name]
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers: dict[str, Any] = {"cache-control": "no-cache", "etag": tag}
    if _matches(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=f"{kind}; charset=utf-8")


def _matches(condition: str, tag: str) -> bool:
    """Return whether If-None-Match names a tag; a proxy that compresses answers weakens it.

    >>> _matches('W/"a", "b"', '"a"'), _matches("*", '"a"'), _matches('"b"', '"a"')
    (True, True, False)
    """
    names = [name.strip().removeprefix("W/") for name in condition.split(",")]
    return tag in names or names == ["*"]
