"""Nothing that anyone typed becomes markup."""

import html

import pytest

from regard.lab.reports.markup import Html, escape, join, shorten, tag
from tests.lab.reports.hostile import HOSTILE


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
    assert tag("a", title='"><script>') == '<a title="&#34;&gt;&lt;script&gt;"/>'
    assert join(["<", Html("<")]) == "&lt;<"


def test_text_that_is_added_to_markup_is_escaped() -> None:
    plain, escaped = "<script>\u202e", "&lt;script&gt;‹U+202E›"
    assert escape(Html("<b>") + plain) == "<b>" + escaped
    assert escape(plain + Html("<b>")) == escaped + "<b>"
    assert Html("<b>").join([plain, plain]) == f"{escaped}<b>{escaped}"
    assert Html("<b>{}").format(plain) == "<b>" + escaped


def test_shorten_marks_the_cut() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
