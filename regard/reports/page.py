"""One HTML file that holds all it shows: nothing is fetched, nothing typed by anyone is run."""

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from regard.reports.markup import Html, tag

LIMIT = 5_000_000  # bytes of a report


def page(title: str, body: Sequence[Html]) -> str:
    """A whole page. Its policy lets nothing load and runs only the script that is hashed here."""
    style, script = static("report.css"), static("report.js")
    policy = (
        f"default-src 'none'; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; base-uri 'none'; form-action 'none'"
    )
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content="regard"),
        tag("title", title),
        tag("style", Html(style)),
    )
    content = tag("body", tag("main", *body), tag("script", Html(script)))
    return f"<!doctype html>\n{tag('html', head, content, lang='en')}\n"


@cache
def static(name: str) -> str:
    """A file that ships inside the package."""
    return files("regard.reports").joinpath("static", name).read_text(encoding="utf-8")


def fingerprint(text: str) -> str:
    """The sha256 of an inline style or script, as a content security policy names it."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
