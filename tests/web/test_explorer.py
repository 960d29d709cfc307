"""What the explorer shows first, on a phone, of long names, and of two models on the test split."""

import urllib.parse
from collections.abc import Callable

import pytest

from tests.chromium import CHROMIUM
from tests.web.conftest import Opened, answering, look_at, until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path"),
]
Open = Callable[..., Opened]
PHONE = {"viewport": {"width": 390, "height": 800}}
WIDE = "document.documentElement.scrollWidth"
LABELS = """() => {
  const box = document.querySelector('.painted').getBoundingClientRect();
  const region = document.querySelector('.scroll:has(.matrix)').getBoundingClientRect();
  const rows = [...document.querySelectorAll('.matrix .rows span')].map((s) => s.getBoundingClientRect());
  const off = rows.map((r, i) => Math.abs((r.top + r.bottom) / 2 - box.top - (i + 0.5) * box.height / rows.length));
  return [rows.length, Math.max(...off), Math.min(...rows.map((r) => r.left - region.left)), Math.min(...rows.map((r) => r.height))];
}"""  # noqa: E501


def test_the_names_of_rows_stay_with_their_rows_on_a_phone(opened: Open) -> None:
    on = opened(**PHONE)
    words = [f"{word}{i}" for i in range(9) for word in ("a", "word", "unbrokenunbroken", "of")]
    on.page.route("**/look", answering(look_at(words)))
    page = on.show({"view": "heads", "run": "labels", "text": "x"}, ".matrix .rows")
    for _ in range(2):
        rows, off, left, high = page.evaluate(LABELS)
        assert (rows, off < 1, left >= 0, high >= 10) == (36, True, True, True)
        page.evaluate("document.querySelector('.scroll:has(.matrix)').scrollLeft = 150")
    assert page.evaluate("document.querySelector('.scroll:has(.matrix)').scrollLeft") > 50
    assert page.evaluate(WIDE) <= 390
    on.well()


@pytest.mark.parametrize("state", ["view=heads", "view=heads&run=counts", "view=heads&run=hugging"])
def test_heads_open_with_a_text_and_a_matrix(opened: Open, state: str) -> None:
    on = opened()
    page = on.show(state, ".painted canvas")
    page.wait_for_selector(".arcs path")
    assert page.input_value("textarea")
    options = page.locator("[aria-label=Model] option").all_inner_texts()
    assert sorted(options) == ["goes", "hugging", "labels", "writes"], "counts has no heads"
    chosen = "getComputedStyle(document.querySelector('.thumb[aria-pressed=true]')).outlineColor"
    before = page.evaluate(chosen)
    page.focus("[aria-label='Find heads that']")
    page.keyboard.press("Tab")
    assert page.evaluate(chosen) != before, "where the focus is can be seen"
    on.well()


def test_an_example_goes_with_its_model_and_what_was_typed_stays(opened: Open) -> None:
    on = opened()
    page = on.show("view=try&run=labels", ".bars")

    def examples() -> list[str]:
        return [str(chip.get_attribute("title")) for chip in page.locator(".examples .chip").all()]

    first = page.input_value("textarea")
    assert first in examples()
    page.select_option("[aria-label=Model]", "writes")
    page.wait_for_selector(".answer-card .written")
    assert page.input_value("textarea") == examples()[0] != first
    assert f"text={urllib.parse.quote_plus(examples()[0])}" in page.url
    page.fill("textarea", "ABCD")
    page.select_option("[aria-label=Model]", "labels")
    page.wait_for_selector(".answer-card .label")
    until(page, lambda: len(examples()) > 0)
    assert page.input_value("textarea") == "ABCD"
    on.well()
