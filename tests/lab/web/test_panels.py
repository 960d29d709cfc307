"""The tour and the panel that changes the model, in a real browser."""

from pathlib import Path
from typing import Any

import pytest

import regard
from regard.analysis.interventions import Head, layers_with_heads, without_heads
from tests.lab.web.conftest import Open, Opened, answering, faults

pytestmark = pytest.mark.browser


def test_the_tour_comes_once_and_again_from_its_button(opened: Open) -> None:
    page = opened(first=True).show("view=try&run=labels", "dialog.tour")
    for number in range(1, 5):
        assert page.inner_text("dialog.tour .soft") == f"{number} of 4"
        page.keyboard.press("Enter")
    page.wait_for_selector("dialog.tour", state="detached")
    page.reload()
    page.wait_for_selector(".answer-card")
    assert page.locator("dialog.tour").count() == 0
    page.click("header button")
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog.tour", state="detached")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_head_off_and_attribution_are_shown(opened: Open, folder: Path, scheme: str) -> None:
    run, text = regard.load(folder / "labels"), "a good film"
    on = opened(color_scheme=scheme, viewport={"width": 390, "height": 850})
    page = on.show({"view": "heads", "run": "labels", "text": text}, ".tokens")
    page.click(".change summary")
    page.locator(".change input[type=checkbox]").first.check()
    page.wait_for_selector(".change table")
    with without_heads(run.network, [Head(next(iter(layers_with_heads(run.network))), 1)]):
        after = run.predict(text)
    share = f"{100 * after.probabilities[after.label]:.1f} % sure"
    assert page.locator(".change tbody td").nth(1).inner_text() == f"{after.label}, {share}"
    page.click("button:has-text('Attribute the answer')")
    page.wait_for_selector("text=Spearman")
    assert page.locator(".change [aria-label=Explain] option").all_inner_texts() == [
        f"logit of {label}" for label in run.task.labels
    ]
    page.fill("[aria-label='Other text']", "<b>the</b> bad plot")
    page.fill("[aria-label=Positions]", "0 1")
    page.select_option("[aria-label=State]", label="layer 2 attention, head 2")
    page.click("button:has-text('Patch')")
    page.wait_for_selector("th:has-text('other text')")
    assert page.locator(".change legend").all_inner_texts() == [
        "layer 1 attention",
        "layer 2 attention",
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert faults(page) == []
    page.locator(".change").screenshot(path=str(folder.parent / f"change-{scheme}.png"))


ATTRIBUTE = "button:has-text('Attribute the answer')"


def panel(on: Opened, state: dict[str, str]) -> Any:
    """Open the panel of a view, as far as the browser is wide."""
    page = on.show(state, ".answer-card")
    page.click(".change summary")
    page.wait_for_selector(".change h3, .change .problem")
    return page


def test_a_model_without_attention_says_what_can_be_done(
    browser: Any, server_of_every: str
) -> None:
    on = Opened(browser, server_of_every)
    page = panel(on, {"view": "try", "run": "recurrent", "text": "a good film"})
    off, states = page.locator(".change .empty").all_inner_texts()
    assert off == (
        "This model has no attention by heads. To switch heads off, choose a model of "
        "self-attention, such as transformer, gpt or bert."
    )
    assert states.endswith(
        "To patch, choose a model of self-attention, such as transformer, gpt or bert."
    )
    assert "rnn has no attention layer" in page.inner_text(".seen-place .empty")
    page.click(ATTRIBUTE)
    page.wait_for_selector(".change table")
    assert page.locator(".change thead th").all_inner_texts() == ["word", "integrated gradients"]
    assert page.locator(".change tbody th").all_inner_texts() == ["a", "good", "film"]
    page.fill("[aria-label=Text]", "another text")
    page.wait_for_selector("text=The text has changed.")
    page.fill("[aria-label=Text]", " ")
    page.wait_for_selector("text=Type a text or choose an example.")
    page.click(ATTRIBUTE)
    page.wait_for_selector("text=Type a text above first")
    on.well()


def test_the_panel_of_tags_and_of_a_translation(browser: Any, server_of_every: str) -> None:
    on = Opened(browser, server_of_every)
    page = on.show({"view": "heads", "run": "tags", "text": "Ada saw Paris"}, ".tokens")
    page.click(".change summary")
    page.locator(".change input[type=checkbox]").first.check()
    page.wait_for_selector(".change table")
    assert page.locator(".change tbody th").all_inner_texts() == ["Ada", "saw", "Paris"]
    page.locator(".change input[type=checkbox]").first.uncheck()
    page.wait_for_selector(".change table", state="detached")
    page.click(ATTRIBUTE)
    page.wait_for_selector("[aria-label=Explain]")
    names = page.locator("[aria-label=Explain] option").all_inner_texts()
    assert [name.split(":")[0] for name in names] == [
        f"tag of word {i}, {word}" for i, word in enumerate(["Ada", "saw", "Paris"], 1)
    ]
    before = page.locator(".change td").all_inner_texts()
    page.select_option("[aria-label=Explain]", label=names[2])
    page.wait_for_selector(".change table", state="detached")
    page.wait_for_selector(".change table")
    assert page.locator("[aria-label=Explain]").input_value() == "2"
    assert page.locator(".change td").all_inner_texts() != before
    page = on.show({"view": "heads", "run": "translates", "text": "ABC"}, ".tokens")
    page.wait_for_selector(".change summary")
    page.click(".change summary")
    page.wait_for_selector("legend:has-text('decoder 2 attention to the source')")
    page.click(ATTRIBUTE)
    page.wait_for_selector("[aria-label=Explain]")
    rows = page.locator(".change tbody th").all_inner_texts()
    assert rows == ["source", "A", "B", "C", "written before it", "[BEGIN]"]
    on.well()


def test_next_words_before_and_after(opened: Open, folder: Path) -> None:
    run, text = regard.load(folder / "goes"), "Maria was"
    page = opened().show({"view": "heads", "run": "goes", "text": text}, ".tokens")
    page.click(".change summary")
    page.locator(".change input[type=checkbox]").first.check()
    page.wait_for_selector(".ranks table")
    with run.computing():
        words = run.task.next_words(run.network, text)
    cells = page.locator(".ranks tbody tr td:nth-child(2)").all_inner_texts()
    assert cells == [
        f"{word.token.replace(' ', '·')} {100 * word.probability:.1f} %" for word in words
    ]


def test_failed_requests_say_what_to_do(opened: Open) -> None:
    on = opened()
    page = on.show({"view": "heads", "run": "labels", "text": "a good film"}, ".tokens")
    page.route("**/parts", lambda route: route.abort())
    page.click(".change summary")
    page.wait_for_selector(".change .problem")
    gone = "The server does not respond. See whether regard serve is still running, and try again."
    assert page.inner_text(".change .problem") == gone
    page.unroute("**/parts")
    page.click(".change button:has-text('Try again')")
    page.wait_for_selector(ATTRIBUTE)
    page.route("**/attribute", lambda route: route.fulfill(status=500, body="oh"))
    page.click(ATTRIBUTE)
    page.wait_for_selector("text=The server failed with status 500. Try again")
    page.route("**/attribute", lambda route: route.fulfill(status=400, body='{"error": "no <b>"}'))
    page.click("button:has-text('Try again')")
    page.wait_for_selector("text=no <b>")
    assert page.locator("button:has-text('Try again')").count() == 0  # it would fail again
    page.unroute("**/attribute")
    page.click(ATTRIBUTE)
    page.wait_for_selector(".change table")
    page.click("button:has-text('Patch')")
    page.wait_for_selector("text=Type another text into the field above first.")
    page.fill("[aria-label='Other text']", "dull")
    page.fill("[aria-label=Positions]", "one")
    page.click("button:has-text('Patch')")
    page.wait_for_selector("text=Positions are numbers from 0")
    page.fill("[aria-label=Positions]", "9")
    page.click("button:has-text('Patch')")
    page.wait_for_selector("text=position 9 is not in both texts")
    page.route("**/look", lambda route: route.abort())
    page.fill("[aria-label=Text]", "a bad film")
    page.wait_for_selector(".answer-place .problem")
    assert page.inner_text(".answer-place .problem") == gone
    page.unroute("**/look")
    page.click(".answer-place button:has-text('Try again')")
    page.wait_for_selector(".answer-card")
    assert all(said.startswith("Failed to load resource") for said in on.complaints)
    on.complaints.clear()


def test_a_baseline_and_a_server_without_runs_say_what_to_do(opened: Open) -> None:
    on = opened()
    page = panel(on, {"view": "try", "run": "counts", "text": "a good film"})
    assert "tfidf is a baseline without a network" in page.inner_text(".change .problem")
    assert "choose another model above" in page.inner_text(".change .note")
    page.route("**/runs", answering({"runs": [], "comparisons": []}))
    for view in ("try", "heads", "compare"):
        page.goto("about:blank")
        page = on.show({"view": view}, ".empty")
        assert "regard train classification" in page.inner_text(".empty code")
    page.click(".empty a")
    page.wait_for_selector(".tabs")
    page.route("**/runs", lambda route: route.abort())
    page.reload()
    page.wait_for_selector("text=See whether regard serve is still running")
    on.complaints.clear()


def test_hostile_words_stay_text(opened: Open) -> None:
    bad = "<img src=x onerror=alert(1)>"
    found = {
        "tokens": [bad, "b"], "sizes": [1, 1], "choice": 0, "choices": [bad, "c"], "unit": bad,
        "integrated_gradients": [0.5, -0.5], "output": 1, "baseline": 1, "steps": 32,
        "attention_gradients": [0.1, 0.2], "spearman": None, "says": bad,
    }  # fmt: skip
    parts = {
        "heads": [{"layer": bad, "name": bad, "heads": 1}],
        "blocks": [{"block": bad, "name": bad}],
    }
    answer = {
        "written": bad,
        "log_probability": -1,
        "ended": True,
        "next": [{"token": bad, "probability": 0.5}],
    }
    page = opened().show({"view": "heads", "run": "labels", "text": "a good film"}, ".tokens")
    for path, body in (
        ("parts", parts),
        ("attribute", found),
        ("without", {"before": answer, "after": answer}),
    ):
        page.route(f"**/{path}", answering(body))
    page.click(".change summary")
    page.locator(".change input[type=checkbox]").first.check()
    page.click(ATTRIBUTE)
    page.wait_for_selector("[aria-label=Explain]")
    assert page.locator(".change img").count() == 0
    assert page.inner_text(".change legend") == bad
    assert page.locator(".change .ranks td").first.inner_text() == f"{bad} 50.0 %"
