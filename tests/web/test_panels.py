"""The tour and the panel that changes the model, in a real browser."""

from collections.abc import Callable
from pathlib import Path

import pytest

import regard
from regard.analysis.interventions import Head, layers_with_heads, without_heads
from tests.web.conftest import Opened

pytestmark = pytest.mark.browser


def test_the_tour_comes_once_and_again_from_its_button(opened: Callable[..., Opened]) -> None:
    on = opened(first=True)
    page = on.show("view=try&run=labels", "dialog.tour")
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
    on.well()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_head_off_and_attribution_are_shown(
    opened: Callable[..., Opened], folder: Path, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    run, text = regard.load(folder / "labels"), "a good film"
    on = opened(color_scheme=scheme, viewport={"width": 390, "height": 850})
    page = on.show({"view": "heads", "run": "labels", "text": text}, ".tokens")
    page.click(".change summary")
    assert page.inner_text(".change legend >> nth=0") == page.inner_text(".thumb-row span >> nth=0")
    page.locator(".change input[type=checkbox]").first.check()
    page.wait_for_selector(".change table")
    with without_heads(run.network, [Head(next(iter(layers_with_heads(run.network))), 1)]):
        after = run.predict(text)
    share = f"{100 * after.probabilities[after.label]:.1f} % sure"
    assert page.locator(".change td").nth(1).inner_text() == f"{after.label}, {share}"
    page.click("text=Attribute the answer")
    page.wait_for_selector("text=Spearman")
    page.fill("[aria-label='Other text']", "<b>the</b> bad plot")
    page.fill("[aria-label=Positions]", "0 1")
    page.click("button:has-text('Patch')")
    page.wait_for_selector("th:has-text('other text')")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    faults = [
        (fault["id"], [node["html"][:120] for node in fault["nodes"]][:3])
        for fault in axe.Axe().run(page).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert faults == []
    page.locator(".change").screenshot(path=str(folder.parent / f"change-{scheme}.png"))
    on.well()
