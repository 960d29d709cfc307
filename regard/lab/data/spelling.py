"""Equality of texts and of labels whose spellings look the same."""

import re
from collections.abc import Sequence
from typing import Final
from unicodedata import east_asian_width, normalize

#: Invisible characters: Unicode's property Default_Ignorable_Code_Point, as of 14.0.
IGNORABLE: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# Joiners, variation selectors and tags, which change the shape of the preceding Arabic or Indian
# letter, symbol or emoji.
_JOINING = "\u200c\u200d\ufe00-\ufe0f\U000e0020-\U000e007f\U000e0100-\U000e01ef"
_SHAPED = "\u0600-\u1cff\u2100-\u2bff\u3030-\u303d\u3297-\u3299\ua800-\uabff\U0001f000-\U0001faff"
_ignorable = re.compile(f"[{IGNORABLE}]+")
meaningless = re.compile(f"(?<![{_SHAPED}{_JOINING}])[{_JOINING}]+|(?![{_JOINING}])[{IGNORABLE}]")


def plain(text: str) -> str:
    """Return a text in Unicode's composed form (NFC), without invisible characters.

    >>> plain("cafe\u0301"), plain("\ufeffgo\u200bod")
    ('café', 'good')
    """
    return text if text.isascii() else normalize("NFC", _ignorable.sub("", text))


def likeness(text: str) -> str:
    """Return the key under which two texts are equal.

    It ignores case, whitespace, invisible characters, composition and compatible forms such as
    full width: Unicode's NFKC_Casefold, with single spaces.

    >>> likeness("A  CAFÉ") == likeness("ａ cafe\u0301\u200b")
    True
    """
    if text.isascii():
        return " ".join(text.casefold().split())
    folded = normalize("NFKC", _ignorable.sub("", text)).casefold()
    return " ".join(normalize("NFKC", folded).split())


def label_of(text: str) -> str:
    """Return the normal form of a label, tag or group, equal for labels that look the same.

    It is composed (NFC); full- and half-width letters and digits get their usual width, runs of
    whitespace become a space, and invisible characters are dropped unless they change the preceding
    character, as in an emoji.

    >>> label_of("\ufeffｐｏｓ\u200b\u00a0"), label_of("❤\ufe0f") == "❤\ufe0f"
    ('pos', True)
    """
    if not text.isascii():
        text = "".join(
            normalize("NFKC", sign) if east_asian_width(sign) in "FH" and sign.isalnum() else sign
            for sign in meaningless.sub("", text)
        )
    return normalize("NFC", " ".join(text.split()))


def repeats(row: Sequence[str], header: Sequence[str]) -> bool:
    """Return whether a row repeats the header, as in joined files."""
    return len(row) == len(header) and all(
        len(cell) < len(name) + 9 and likeness(cell) == likeness(name)  # no key of a long text
        for cell, name in zip(row, header, strict=True)
    )


def counted(count: int, what: str) -> str:
    """Return a number and a noun: "1 row", "2 rows"."""
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, the first column left-aligned, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
