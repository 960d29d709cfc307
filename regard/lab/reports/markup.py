"""Build HTML and SVG. Any text that is not already `Html` is escaped."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import markupsafe

SIZE = 15  # font size in units of a chart 640 wide: still legible at half the width


class Html(markupsafe.Markup):
    """Trusted markup that a page inserts verbatim.

    Any other text is escaped, also when it is added to markup, joined or formatted by it.

    >>> Html("<b>") + "<i>"
    Html('<b>&lt;i&gt;')
    """

    __slots__ = ()

    @classmethod
    def escape(cls, s: object, /) -> "Html":
        """Escape a text by `escape` of this module."""
        return escape(s)


# Characters that change the direction of the following text: they can disguise it.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# Characters that HTML and XML cannot contain: control characters, surrogates, non-characters.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LINES = re.compile("[\u2028\u2029]")


def escape(text: object) -> Html:
    """Return markup that shows exactly the text, in an element or in a quoted attribute.

    Characters that change the reading direction are shown by their code point, invalid ones as
    U+FFFD.

    >>> print(escape('<b title="x">&'))
    &lt;b title=&#34;x&#34;&gt;&amp;
    >>> print(escape("safe\u202egnp.exe"))
    safe‹U+202E›gnp.exe
    """
    return text if isinstance(text, Html) else Html(markupsafe.escape(show_hidden(str(text))))


def show_hidden(text: str) -> str:
    """Replace characters that a page cannot contain, or that would disguise other characters.

    >>> show_hidden("safe\u202egnp.exe")
    'safe‹U+202E›gnp.exe'
    """
    plain = _UNFIT.sub("\ufffd", _LINES.sub(" ", text))
    return _TURNING.sub(lambda match: f"‹U+{ord(match[0]):04X}›", plain)


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """Return an element.

    Attributes that are None are left out; ``class_`` and ``fill_opacity`` become ``class`` and
    ``fill-opacity``; numbers are rounded to two decimals.

    >>> print(tag("p", "1 < 2", class_="note"))
    <p class="note">1 &lt; 2</p>
    >>> print(tag("circle", cx=1 / 3, r=2.0))
    <circle cx="0.33" r="2"/>
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not content and name not in _NEVER_EMPTY:
        return Html(f"<{name}{written}/>" if name not in _VOID else f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(content)}</{name}>")


def framed(title: str, text: str, width: float, height: float, body: Iterable[Html]) -> Html:
    """Return an SVG with title and description for screen readers."""
    size = "wide" if width > 500 else "middle" if width > 400 else "small"
    return tag(
        "svg", tag("title", title), tag("desc", shorten(text, 2_000)), *body,
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width:.0f} {height:.0f}", role="img",
        class_=size, aria_label=title, font_size=SIZE, font_family="sans-serif",
    )  # fmt: skip


def join(parts: Iterable[object], between: str = "") -> Html:
    """Concatenate parts, each escaped unless it is `Html`."""
    return Html(between.join(escape(part) for part in parts))


def shorten(text: str, length: int) -> str:
    """Truncate a text to `length` characters, ending with an ellipsis.

    >>> shorten("a long story", 7)
    'a long…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def distinct(texts: Sequence[str], length: int) -> list[str]:
    """Truncate texts as `shorten` does, or in their middle where several would be the same.

    >>> distinct(["gpt:attention=delta,heads=2", "gpt:attention=delta,heads=4"], 16)
    ['gpt:a…ta,heads=2', 'gpt:a…ta,heads=4']
    """
    short = [shorten(text, length) for text in texts]
    if len(set(short)) == len(set(texts)):
        return short
    head = length // 3
    return [
        text if len(text) <= length else f"{text[:head]}…{text[head + 1 - length :]}"
        for text in texts
    ]


_VOID = {"br", "hr", "meta"}
_NEVER_EMPTY = {
    "p",
    "div",
    "span",
    "td",
    "th",
    "tbody",
    "script",
    "style",
    "section",
    "pre",
    "code",
}


def _short(value: Any) -> Any:
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"
    return value
