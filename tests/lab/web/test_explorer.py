"""What the explorer shows first, on a phone, of long names, and of two models on the test split."""

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

import regard
from tests.lab.web.conftest import Open, answering, look_at, until

pytestmark = pytest.mark.browser
PHONE = {"viewport": {"width": 390, "height": 800}}
LONG = [
    "A complaint about a parcel that the courier brought far too late",
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "praise",
]
WIDE = "document.documentElement.scrollWidth"
LABELS = """() => {
  const box = document.querySelector('.painted').getBoundingClientRect();
  const region = document.querySelector('.scroll:has(.matrix)').getBoundingClientRect();
  const rows = [...document.querySelectorAll('.matrix .rows span')].map((s) => s.getBoundingClientRect());
  const off = rows.map((r, i) => Math.abs((r.top + r.bottom) / 2 - box.top - (i + 0.5) * box.height / rows.length));
  return [rows.length, Math.max(...off), Math.min(...rows.map((r) => r.left - region.left)), Math.min(...rows.map((r) => r.height))];
}"""  # noqa: E501


def run_row(name: str, **more: Any) -> dict[str, Any]:
    """A run as /runs lists it."""
    about = {"task": "classification", "model": "mean", "says": "a mean", "data": "reviews"}
    does = {"attends": True, "answers_in_texts": False, "labels": []}
    return {"name": name, **about, **does, **more}


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


def test_long_names_of_labels_hide_no_number(opened: Open) -> None:
    on = opened(**PHONE)
    rows = [{"text": t, "truth": t, "a": t, "b": LONG[0], "right": "a"} for t in LONG[1:]]
    found = {"truths": LONG, "found": 2, "offset": 0, "shown": rows}
    counts = {"both": 1, "a": 2, "b": 0, "neither": 1}
    on.page.route("**/look", answering(look_at(LONG)))
    on.page.route("**/disagreements*", answering({"right": counts, **found}))
    state = {"view": "compare", "a": "labels", "b": "counts", "text": "x", "apart": "shown"}
    page = on.show(state, ".texts li")
    page.wait_for_selector(".bars")
    assert page.evaluate(WIDE) <= 390
    hidden = """[...document.querySelectorAll('.bars .share, [aria-label="probabilities of both"] td')]
      .filter((cell) => cell.getBoundingClientRect().right > cell.closest('section').getBoundingClientRect().right)
      .length"""  # noqa: E501
    assert page.evaluate(hidden) == 0
    for name in LONG:
        assert name in page.inner_text(".bars >> nth=0")


@pytest.mark.parametrize("state", ["view=heads", "view=heads&run=counts", "view=heads&run=hugging"])
def test_heads_open_with_a_text_and_a_matrix(opened: Open, state: str) -> None:
    page = opened().show(state, ".painted canvas")
    page.wait_for_selector(".arcs path")
    assert page.input_value("textarea")
    options = page.locator("[aria-label=Model] option").all_inner_texts()
    assert sorted(options) == ["goes", "hugging", "labels", "writes"], "counts has no heads"
    chosen = "getComputedStyle(document.querySelector('.thumb[aria-pressed=true]')).outlineColor"
    before = page.evaluate(chosen)
    page.focus("[aria-label='Find heads that']")
    page.keyboard.press("Tab")
    assert page.evaluate(chosen) != before, "where the focus is can be seen"


def test_an_example_goes_with_its_model_and_what_was_typed_stays(opened: Open) -> None:
    page = opened().show("view=try&run=labels", ".bars")

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


def test_disagreements_come_in_pages_with_a_filter(opened: Open, folder: Path) -> None:
    ours, theirs = (regard.load(folder / name).evaluate() for name in ("labels", "counts"))
    places = [i for i in range(ours.n) if ours.correct[i] != theirs.correct[i]]
    alone = [ours.examples[i].text for i in places if theirs.correct[i]]
    on = opened()
    page = on.show({"view": "compare", "a": "labels", "b": "counts", "text": "x"}, ".answer-card")
    page.click("text=Show texts that only one of them gets right")
    says = page.locator(".pages [role=status]")
    texts = page.locator(".texts button")
    page.wait_for_selector(".texts li")
    assert says.inner_text() == f"1 to 10 of {len(places)}"
    before = texts.all_inner_texts()
    page.keyboard.press("Tab")
    page.focus("text=Next →")
    page.keyboard.press("Enter")
    until(page, lambda: says.inner_text() == f"11 to 20 of {len(places)}")
    assert not set(before) & set(texts.all_inner_texts())
    assert page.evaluate("document.activeElement.textContent") == "Next →"
    page.select_option("[aria-label='Correct']", "b")
    until(page, lambda: says.inner_text() == f"1 to 10 of {len(alone)}")
    assert set(texts.all_inner_texts()) <= set(alone)
    word = alone[-1].split()[-1]
    some = [text for text in alone if word in text]
    page.fill("[aria-label='Contains']", word)
    until(page, lambda: says.inner_text().endswith(f" of {len(some)}"))
    other = opened().show(urllib.parse.urlparse(page.url).fragment, ".texts li")
    assert other.locator(".texts button").all_inner_texts() == texts.all_inner_texts()
    other.fill("[aria-label='Contains']", "no such words")
    until(other, lambda: other.inner_text(".pages [role=status]").startswith("No matching texts."))


def test_the_comparison_is_that_of_the_runs(opened: Open) -> None:
    on = opened()
    page = on.page
    names = [f"{home}/{arm}/seed-0" for home in ("one", "two") for arm in ("mean", "gru")]
    rows = [run_row(name) for name in [*names, "alone"]]
    page.route("**/runs", answering({"runs": rows, "comparisons": ["one", "two"]}))
    page.route("**/examples*", answering({"texts": ["a film"]}))
    page.route("**/look", answering(look_at(["fine", "bad"])))

    def compared(route: Any) -> None:
        (name,) = urllib.parse.parse_qs(urllib.parse.urlparse(route.request.url).query)["name"]
        arms = [
            {"name": arm, "mean": mean, "low": 0.4, "high": 0.9, "seconds": 1}
            for arm, mean in (("gru", 0.5), ("mean", 0.8))
        ]
        runs = {arm["name"]: [f"{name}/{arm['name']}/seed-0"] for arm in arms}
        found = {"question": f"Of {name}?", "metric": "accuracy", "arms": arms, "runs": runs}
        route.fulfill(body=json.dumps(found), content_type="application/json")

    page.route("**/comparison?*", compared)
    heading = "section:has(.results) h2"
    on.show({"view": "compare", "a": "two/mean/seed-0", "b": "two/gru/seed-0"}, heading)
    assert page.inner_text(heading) == "Of two?"
    page.select_option("[aria-label=A]", "alone")
    page.select_option("[aria-label=B]", "one/gru/seed-0")
    until(page, lambda: page.inner_text(heading) == "Of one?")
    page.select_option("[aria-label=Comparison]", "two")
    until(page, lambda: page.inner_text(heading) == "Of two?")
    pair = [page.input_value(f"[aria-label={side}]") for side in "AB"]
    assert pair == ["two/mean/seed-0", "two/gru/seed-0"], "the best arm first"
    page.select_option("[aria-label=B]", "alone")
    page.select_option("[aria-label=A]", "alone")
    page.wait_for_selector("text=These two models are not part of one comparison.")
    assert page.locator(".results").count() == 0
