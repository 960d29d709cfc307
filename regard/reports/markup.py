"""Text into HTML and SVG. What a person or a file wrote is escaped unless it is `Html` already."""

import math
import re
from collections.abc import Iterable
from typing import Any

import markupsafe


class Html(markupsafe.Markup):
    """Markup that was built here and may go into a page as it is; every other text is escaped,
    also where it is added to markup, joined or formatted by it.

    >>> Html("<b>") + "<i>"
    Html('<b>&lt;i&gt;')
    """

    __slots__ = ()

    @classmethod
    def escape(cls, s: object, /) -> "Html":
        """Escape any text as `escape` of this module does."""
        return escape(s)


# Signs that turn the direction of what follows: a text could make a page lie with them.
_TURNING = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# What HTML and XML cannot hold: control signs, surrogates, non-characters.
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LINES = re.compile("[\u2028\u2029]")


def escape(text: object) -> Html:
    """Any text as markup that shows just that text, in an element or in a quoted attribute.

    Signs that turn the reading direction are shown by their number, unfit signs as U+FFFD.

    >>> print(escape('<b title="x">&'))
    &lt;b title=&#34;x&#34;&gt;&amp;
    >>> print(escape("safe\u202egnp.exe"))
    safe‹U+202E›gnp.exe
    """
    if isinstance(text, Html):
        return text
    plain = _UNFIT.sub("\ufffd", _LINES.sub(" ", str(text)))
    plain = _TURNING.sub(lambda sign: f"‹U+{ord(sign[0]):04X}›", plain)
    return Html(markupsafe.escape(plain))


def tag(name: str, /, *content: object, **attributes: object) -> Html:
    """One element. Attributes that are None are left out; ``class_`` and ``fill_opacity`` read
    ``class`` and ``fill-opacity``; numbers are rounded to a hundredth.

    >>> print(tag("p", "1 < 2", class_="note"))
    <p class="note">1 &lt; 2</p>
    >>> print(tag("circle", cx=1 / 3, r=2.0))
    <circle cx="0.33" r="2"/>
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not content and name not in _NEVER_EMPTY:
        return Html(f"<{name}{said}/>" if name not in _VOID else f"<{name}{said}>")
    return Html(f"<{name}{said}>{join(content)}</{name}>")


def join(parts: Iterable[object], between: str = "") -> Html:
    """Pieces one after the other, each escaped unless it is `Html`."""
    return Html(between.join(escape(part) for part in parts))


def shorten(text: str, length: int) -> str:
    """A text cut to `length` signs, the cut marked by an ellipsis.

    >>> shorten("a long story", 7)
    'a long…'
    """
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


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
