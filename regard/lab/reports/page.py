"""Self-contained HTML files: they load nothing, and never execute user input."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from regard.lab.reports.markup import Html, tag

LIMIT = 5_000_000  # maximum bytes of a report
FRAME = 150_000  # maximum bytes of its scripts and styles
IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (async function|function|class|const) (\w+)", re.MULTILINE)


def page(
    title: str,
    body: Sequence[Html],
    *,
    stored: Mapping[str, Any] | None = None,
    lang: str = "en",
) -> str:
    """Return an HTML page whose security policy loads nothing and runs only the hashed script.

    With ``stored`` = {"title", "looks"}, where looks are the results of `packed.pack_below`, the
    element with the id ``looks`` becomes the explorer's view of heads.
    """
    style, script = static("report.css"), bundle("report.js")
    data = []
    if stored is not None:
        style, script = style + static("explorer.css"), bundle("report.js", "stored.js")
        content = json.dumps(stored, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        content = content.encode(errors="replace").decode()
        for char in "<>&\u2028\u2029":  # so that no text can close or open an element
            content = content.replace(char, f"\\u{ord(char):04x}")
        data.append(tag("script", Html(content), type="application/json", id="stored"))
    whole = tag("body", tag("main", *body), *data, tag("script", Html(script)))
    return _document(title, style, script, whole, lang)


def learn_page() -> str:
    """Return the explorer's lessons and its playground as one file, which needs no server.

    The code that trains is a block of text, from which the page makes its worker.
    """
    style, script = static("report.css") + static("explorer.css"), bundle("learn-page.js")
    worker = tag("script", Html(bundle("train-worker.js")), type="text/plain", id="train-worker")
    main = tag("main", "", id="main", tabindex="-1")
    body = tag("body", main, worker, tag("script", Html(script)), class_="explorer")
    title = "Attention that learns in the page · regard"
    return _document(title, style, script, body, more="worker-src blob:; ")


def _document(
    title: str, style: str, script: str, body: Html, lang: str = "en", more: str = ""
) -> str:
    """Return a page that may use this style and this script; ``more`` extends the policy."""
    policy = (
        f"default-src 'none'; style-src '{fingerprint(style)}'; "
        f"script-src '{fingerprint(script)}'; {more}base-uri 'none'; form-action 'none'; "
        "img-src data: blob:"  # figures that the reader saves as images
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
    return f"<!doctype html>\n{tag('html', head, body, lang=lang)}\n"


@cache
def bundle(*entries: str) -> str:
    """Bundle modules and their imports into one plain script, each module in its own scope.

    Only two forms are supported: ``import { a, b } from "./x.js";`` and ``export`` before a
    function, a class or a constant.
    """
    parts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in parts:
            return
        source = static(name)
        for _, other in IMPORT.findall(source):
            add(other)
        source = IMPORT.sub(lambda m: f"const {{{m[1]}}} = modules[{m[2]!r}];", source)
        names = EXPORT.findall(source)
        body = EXPORT.sub(lambda m: m[0].removeprefix("export "), source)
        exports = ", ".join(name for _, name in names)
        parts[name] = f"modules[{name!r}] = (() => {{\n{body}\nreturn {{{exports}}};\n}})();"

    for entry in entries:
        add(entry)
    return "\n(() => {\nconst modules = {};\n" + "\n".join(parts.values()) + "\n})();\n"


@cache
def static(name: str) -> str:
    """Return the text of a static file of the package."""
    return files("regard.lab.reports").joinpath("static", name).read_text(encoding="utf-8")


def fingerprint(text: str) -> str:
    """Return the sha256 of an inline style or script in the form of a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
