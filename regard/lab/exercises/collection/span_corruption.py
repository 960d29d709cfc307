"""Span corruption of characters, as in the assignment of document 004."""

from regard.lab.exercises.part import Part


def corrupt(text: str, start: int, length: int, block: int) -> str:
    """Return prefix ⁇ suffix ⁇ span ⁇, padded with □ to `block` characters.

    The span has `length` characters of the text from `start`; prefix and suffix are what stands
    before and after it.
    """
    end = start + length
    prefix, span, suffix = text[:start], text[start:end], text[end:]
    return f"{prefix}⁇{suffix}⁇{span}⁇".ljust(block, "□")


def training_pair(corrupted: str) -> tuple[str, str]:
    """Return x and y for predicting each next character: all but the last, all but the first."""
    return corrupted[:-1], corrupted[1:]


PARTS = [
    Part(corrupt, lambda: [
        ("abcdef", 2, 1, 12), ("Khatchig was born in Lebanon.", 9, 8, 40),
        ("abc", 0, 2, 6), ("□a⁇b", 1, 2, 9),
    ], {
        "off by one: the span has one character too many": ("+ length", "+ length + 1"),
        "length is taken for the end of the span": ("start + length", "length"),
        "the span begins one character too early": ("end = start", "start -= 1; end = start"),
        "the last ⁇ is missing": ("{span}⁇", "{span}"),
        "the suffix is missing": ("{suffix}", ""),
        "no ⁇ stands where the span was": ("{prefix}⁇", "{prefix}"),
        "the span stands before the suffix": ("{suffix}⁇{span}", "{span}⁇{suffix}"),
        "the span is still in its place": ("{prefix}⁇{suffix}", "{text}"),
        "the padding is missing": ('.ljust(block, "□")', ""),
        "the padding stands in front": ("ljust", "rjust"),
    }),
    Part(training_pair, lambda: [("ab⁇c",), ("Where⁇born⁇□□□",)], {
        "y equals x: each character would be predicted from itself": ("[1:]", "[:-1]"),
        "x and y are swapped": ("[:-1], corrupted[1:]", "[1:], corrupted[:-1]"),
        "y is not shifted, and both keep all characters": ("[:-1], corrupted[1:]", ", corrupted"),
        "y is two characters later": ("[:-1], corrupted[1:]", "[:-2], corrupted[2:]"),
        "x keeps the last character, so x is longer than y": ("[:-1]", ""),
    }),
]  # fmt: skip
