"""Span corruption of characters, as in the assignment of document 004."""

from regard.lab.exercises.part import Part


def corrupt(text: str, start: int, length: int, block: int) -> str:
    """Return prefix ⁇ suffix ⁇ span ⁇, padded with □ to `block` characters.

    The span has `length` characters of the text from `start`; prefix and suffix are what stands
    before and after it.
    """
    return _corrupted(text, start, start + length, block)


def training_pair(corrupted: str) -> tuple[str, str]:
    """Return x and y for predicting each next character: all but the last, all but the first."""
    return corrupted[:-1], corrupted[1:]


def _corrupted(text: str, start: int, end: int, block: int, form: str = "{0}⁇{2}⁇{1}⁇") -> str:
    return form.format(text[:start], text[start:end], text[end:]).ljust(block, "□")


PARTS = [
    Part(
        corrupt,
        lambda: [("abcdef", 2, 1, 12), ("Khatchig was born in Lebanon.", 9, 8, 40),
                 ("abc", 0, 2, 6), ("□a⁇b", 1, 2, 9)],
        {
            "off by one: the span has one character too many": (
                lambda t, s, n, b: _corrupted(t, s, s + n + 1, b)
            ),
            "length is taken for the end of the span": (
                lambda t, s, n, b: _corrupted(t, s, n, b)
            ),
            "the span begins one character too early": (
                lambda t, s, n, b: _corrupted(t, s - 1, s - 1 + n, b)
            ),
            "the last ⁇ is missing": (
                lambda t, s, n, b: _corrupted(t, s, s + n, b, "{0}⁇{2}⁇{1}")
            ),
            "the suffix is missing": lambda t, s, n, b: _corrupted(t, s, s + n, b, "{0}⁇⁇{1}⁇"),
            "no ⁇ stands where the span was": (
                lambda t, s, n, b: _corrupted(t, s, s + n, b, "{0}{2}⁇{1}⁇")
            ),
            "the span stands before the suffix": (
                lambda t, s, n, b: _corrupted(t, s, s + n, b, "{0}⁇{1}⁇{2}⁇")
            ),
            "the span is still in its place": (
                lambda t, s, n, b: _corrupted(t, s, s + n, b, "{0}{1}{2}⁇{1}⁇")
            ),
            "the padding is missing": lambda t, s, n, b: _corrupted(t, s, s + n, 0),
            "the padding stands in front": (
                lambda t, s, n, b: _corrupted(t, s, s + n, 0).rjust(b, "□")
            ),
        },
    ),
    Part(
        training_pair,
        lambda: [("ab⁇c",), ("Where⁇born⁇□□□",)],
        {
            "y equals x: each character would be predicted from itself": lambda t: (t[:-1], t[:-1]),
            "x and y are swapped": lambda t: (t[1:], t[:-1]),
            "y is not shifted, and both keep all characters": lambda t: (t, t),
            "y is two characters later": lambda t: (t[:-2], t[2:]),
            "x keeps the last character, so x is longer than y": lambda t: (t, t[1:]),
        },
    ),
]  # fmt: skip
