"""Nothing that anyone typed becomes markup."""

import html

import pytest

from regard.reports.markup import Html, escape, join, shorten, tag
from tests.reports.hostile import HOSTILE


@pytest.mark.parametrize("text", HOSTILE)
def test_escaped_text_opens_nothing(text: str) -> None:
    escaped = escape(text)
    for sign in "<>\"'":
        assert sign not in escaped
    assert not set(escaped) & set("\u202e\u2066\u2028\x00\x1b\ud800")
    escaped.encode("utf-8")


def test_plain_text_comes_back() -> None:
    text = 'plain "quoted" & <tagged> 中文 é 👍'
    assert html.unescape(escape(text)) == text


def test_content_is_escaped_unless_it_is_markup() -> None:
    assert tag("p", "<b>", Html("<i>")) == "<p>&lt;b&gt;<i></p>"
    assert tag("a", title='"><script>') == '<a title="&quot;&gt;&lt;script&gt;"/>'
    assert join(["<", Html("<")]) == "&lt;<"


def test_sums_of_markup_and_text_are_text_again() -> None:
    assert escape(Html("<b>") + "<script>") == "&lt;b&gt;&lt;script&gt;"


def test_shorten_marks_the_cut() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
