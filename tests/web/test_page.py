"""The page in a real browser, view by view: what it shows is what the models do."""

import csv
import json
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regard
from tests.reports.hostile import HOSTILE
from tests.web.conftest import Server

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not CHROMIUM, reason="no chromium on the path"),
]
TEXT = "the plot was not bad at all , and the plot was long"
LESSONS = ("kernel", "scaling", "positions", "steps", "masks")
VIEWS = ["view=try", "view=heads", "view=compare", *(f"view=learn&lesson={n}" for n in LESSONS)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic"]
        )
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    begun = Server(folder, "deadline=60")
    yield begun.url
    begun.process.kill()
    begun.process.communicate()


class Opened:
    """A page of the server, what it asked for elsewhere, and what it complained about."""

    def __init__(self, browser: Any, server: str, **options: Any) -> None:
        self.page = browser.new_page(**{"accept_downloads": True, **options})
        self.page.set_default_timeout(20_000)
        self.server, self.elsewhere, self.complaints = server, list[str](), list[str]()
        self.page.on("request", lambda r: self._asked(r.url))
        self.page.on("console", lambda m: self.complaints.append(m.text))
        self.page.on("pageerror", lambda e: self.complaints.append(str(e)))
        self.page.on("dialog", lambda d: self.complaints.append(d.message))

    def _asked(self, url: str) -> None:
        if not url.startswith((self.server, "data:", "blob:")):
            self.elsewhere.append(url)

    def show(self, state: str | dict[str, Any], wait: str = "h1") -> Any:
        said = state if isinstance(state, str) else urllib.parse.urlencode(state)
        self.page.goto(f"{self.server}/#{said}")
        self.page.wait_for_selector(wait)
        return self.page

    def well(self) -> None:
        assert (self.elsewhere, self.complaints) == ([], [])
        self.page.close()


def until(page: Any, holds: Callable[[], bool], seconds: float = 20) -> None:
    """Wait for something without a script of its own, which the page's policy would not run."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not come to hold"
        page.wait_for_timeout(30)


@pytest.fixture
def opened(browser: Any, server: str) -> Iterator[Callable[..., Opened]]:
    pages: list[Opened] = []

    def open_(**options: Any) -> Opened:
        pages.append(Opened(browser, server, **options))
        return pages[-1]

    yield open_
    for page in pages:
        page.page.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1440), ("dark", 390)])
def test_every_view_fits_and_has_no_serious_fault(
    opened: Callable[..., Opened], scheme: str, width: int
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    for view in VIEWS:
        on = opened(color_scheme=scheme, viewport={"width": width, "height": 850})
        page = on.show(view, ".tokens" if "learn" not in view else ".lesson .card")
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view
        faults = [
            (fault["id"], [node["html"][:120] for node in fault["nodes"]][:3])
            for fault in axe.Axe().run(page).response["violations"]
            if fault["impact"] in ("serious", "critical")
        ]
        assert faults == [], view
        on.well()


def test_what_is_typed_is_answered(opened: Callable[..., Opened], folder: Path) -> None:
    run = regard.load(folder / "labels")
    on = opened()
    page = on.show({"view": "try", "run": "labels"}, ".answer-card")
    for text in ("a good film", "the worst plot , not good"):
        page.fill("textarea", text)
        wanted = run.predict(text)
        share = f"{100 * wanted.probabilities[wanted.label]:.1f} % sure"
        said, words = f"{wanted.label} {share}", len(run.tokens(text))
        until(page, lambda s=said: page.text_content(".answer-card .label") == s)
        until(page, lambda n=words: page.locator(".tokens [data-i]").count() == n)
    on.well()


def test_a_writer_shows_its_alignment_and_writes_token_by_token(
    opened: Callable[..., Opened], folder: Path
) -> None:
    run = regard.load(folder / "writes")
    on = opened()
    page = on.show({"view": "try", "run": "writes", "text": "ABCD"}, ".arcs")
    wanted = run.predict("ABCD").text
    assert page.inner_text(".answer-card .written") == (wanted or "(nothing)")
    seen = run.attention("ABCD")[0]
    assert page.locator(".tokens").nth(0).locator("[data-i]").count() == len(seen.asking or [])
    assert page.locator(".tokens").nth(1).locator("[data-i]").count() == 4
    page.click("button.main")
    until(page, lambda: page.locator(".told span").count() == len(wanted))
    assert page.inner_text(".told").replace(" ", "") == wanted
    on.well()


def test_a_head_is_chosen_hovered_and_pinned(opened: Callable[..., Opened], folder: Path) -> None:
    weights = regard.load(folder / "labels").attention(TEXT)[1].weights[1]
    on = opened(viewport={"width": 1300, "height": 900})
    page = on.show({"view": "heads", "run": "labels", "text": TEXT, "layer": 1, "head": 0}, ".arcs")
    page.focus(".thumb[aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    until(page, lambda: page.inner_text(".one-head h2").endswith("head 2"))
    page.locator(".tokens").nth(0).locator("[data-i='3']").click()
    best = int(weights[3].argmax())
    page.wait_for_selector(".tokens [data-i='3'].asked")
    shades = page.evaluate(
        "[...document.querySelectorAll('.tokens')[1].querySelectorAll('[data-i]')]"
        ".map((word) => Number(/w(\\d+)/.exec(word.className)?.[1] ?? 0))"
    )
    n = weights.shape[-1]
    lift = np.log(np.maximum(weights[3] * n, 1)) / np.log(min(16, n))
    assert np.abs(np.array(shades) - 12 * lift).max() <= 1.1
    tokens = regard.load(folder / "labels").tokens(TEXT)
    assert page.inner_text(".says").startswith(f"{tokens[3]} looks at {tokens[best]} ")
    state = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).fragment)
    assert [state[key] for key in ("layer", "head", "query")] == [["1"], ["1"], ["3"]]
    again = opened()
    other = again.show(urllib.parse.urlparse(page.url).fragment, ".arcs")
    other.wait_for_selector(".tokens [data-i='3'].asked")
    assert other.inner_text(".one-head h2") == page.inner_text(".one-head h2")
    assert other.inner_text(".says") == page.inner_text(".says")
    again.well()
    on.well()


def test_a_figure_is_taken_along_as_numbers_drawing_and_picture(
    opened: Callable[..., Opened], folder: Path, tmp_path: Path
) -> None:
    seen = regard.load(folder / "labels").attention(TEXT)[0]
    on = opened()
    page = on.show({"view": "heads", "run": "labels", "text": TEXT, "layer": 0, "head": 1}, ".arcs")

    def take(word: str) -> Path:
        with page.expect_download() as download:
            page.click(f"[aria-label='{word} of As a matrix']")
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    with take("CSV").open(encoding="utf-8-sig", newline="") as file:
        heading, *rows = csv.reader(file)
    assert [word.removeprefix("'") for word in heading[1:]] == seen.tokens
    found = np.array([[float(cell) for cell in row[1:]] for row in rows])
    assert np.abs(found - seen.weights[1]).max() <= seen.weights[1].max() / 510 + 1e-5
    drawing = take("SVG").read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert drawing.count("<text") == 2 * len(seen.tokens)
    assert "data:image/png;base64," in drawing
    assert take("PNG").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    on.well()


def test_heads_are_found_by_what_they_do(opened: Callable[..., Opened], folder: Path) -> None:
    on = opened()
    page = on.show({"view": "heads", "run": "labels", "text": TEXT}, ".thumb")
    page.select_option("[aria-label='Find heads that']", "previous")
    n = len(regard.load(folder / "labels").tokens(TEXT))
    layers = regard.load(folder / "labels").attention(TEXT)[:2]
    shares = {
        (layer, head): float(np.diagonal(weights, -1).sum() / n)
        for layer, seen in enumerate(layers) for head, weights in enumerate(seen.weights)
    }  # fmt: skip
    layer, head = max(shares, key=lambda place: shares[place])
    first = page.inner_text(".best .chip >> nth=0")
    assert first == f"layer {layer + 1}, head {head + 1}: {100 * shares[layer, head]:.0f} %"
    page.click(".best .chip >> nth=0")
    page.wait_for_selector(f".one-head h2:has-text('layer {layer + 1}, head {head + 1}')")
    on.well()


def test_two_runs_side_by_side(opened: Callable[..., Opened], folder: Path) -> None:
    on = opened()
    state = {"view": "compare", "a": "labels", "b": "counts", "text": TEXT}
    page = on.show(state, ".answer-card >> nth=1")
    for side, name in enumerate(("labels", "counts")):
        said = regard.load(folder / name).predict(TEXT).label
        assert page.locator(".answer-card .label").nth(side).inner_text().startswith(said)
    page.click("text=Show the texts on which one of them is right")
    page.wait_for_selector(".texts li, .card table")
    ours, theirs = (regard.load(folder / name).evaluate().correct for name in ("labels", "counts"))
    cells = page.locator(".card table tbody td").all_inner_texts()
    counts = [int(cell.split(" ")[0]) for cell in cells]
    assert counts == [
        int((ours & theirs).sum()), int((ours & ~theirs).sum()),
        int((~ours & theirs).sum()), int((~ours & ~theirs).sum()),
    ]  # fmt: skip
    on.well()


def test_the_kernel_lesson_is_kernel_regression(opened: Callable[..., Opened]) -> None:
    on = opened(viewport={"width": 1200, "height": 900})
    page = on.show("view=learn&lesson=kernel", ".drag")
    width = page.locator("input[type=range]")
    before = page.inner_text(".says")
    width.fill("0.05")
    assert page.inner_text(".says") != before
    page.click("text=Find the best width")
    error = float(page.inner_text(".says b >> nth=1"))
    for value in ("0.1", "0.3", "1", "3"):
        width.fill(value)
        assert float(page.inner_text(".says b >> nth=1")) >= error
    dot = page.locator(".drag").nth(4)
    place = dot.get_attribute("cy")
    dot.focus()
    page.keyboard.press("ArrowUp")
    assert float(dot.get_attribute("cy")) < float(place)
    on.well()


def test_a_painted_mask_hides_and_an_empty_row_is_zero(opened: Callable[..., Opened]) -> None:
    on = opened()
    page = on.show("view=learn&lesson=masks", ".board")
    assert "causal()" in page.inner_text(".says")
    page.click("button.cell >> nth=0")
    assert "1 row may see nothing" in page.inner_text(".says")
    row = (
        "[...document.querySelectorAll('div.cell')].slice(0, 10)"
        ".map((cell) => cell.style.getPropertyValue('--level'))"
    )
    assert page.evaluate(row) == ["0.000"] * 10
    page.focus("button.cell >> nth=0")
    page.keyboard.press("Space")
    assert page.evaluate(row)[0] == "1.000"
    on.well()


def test_one_head_step_by_step_adds_up(opened: Callable[..., Opened]) -> None:
    on = opened()
    page = on.show("view=learn&lesson=steps", ".step-table")
    page.fill("input[type=text]", "a small dog ran")
    page.select_option("[aria-label=Mask]", "causal")
    page.click("text=5. Softmax, row by row")
    cells = page.locator(".step-table tbody tr").all()
    table = [
        [float(t.replace("−", "-")) for t in row.locator("td").all_inner_texts()] for row in cells
    ]
    weights = np.array(table)
    np.testing.assert_allclose(weights.sum(1), 1, atol=0.011)
    assert (weights[np.triu_indices(4, 1)] == 0).all()
    on.well()


def hostile_look(texts: list[str]) -> dict[str, Any]:
    """A look in which every text that comes from outside is hostile."""
    from regard.reports.packed import pack
    from regard.runs import Looked

    n = len(texts)
    layers = [Looked(f"blocks.{i}.attention", texts, np.full((2, n, n), 1 / n)) for i in range(2)]
    answer = {"label": texts[0], "probabilities": dict.fromkeys(texts, 1 / n)}
    return {"run": texts[1], "text": "\n".join(texts), "answer": answer, **pack(layers)}


NEVER = "iframe, object, embed, base, form, main img, main script"


def answering(body: Any) -> Callable[[Any], None]:
    said = json.dumps(body)
    return lambda route: route.fulfill(body=said, content_type="application/json")


def test_sixty_hostile_texts_run_nowhere(opened: Callable[..., Opened], tmp_path: Path) -> None:
    on = opened()
    page = on.page
    sound = [text.encode(errors="replace").decode() for text in HOSTILE]
    rows = [
        {"name": text, "task": text, "model": text, "says": text, "kind": "classification",
         "data": text, "labels": [text], "attends": True}
        for text in sound
    ]  # fmt: skip
    arms = [{"name": text, "mean": 0.5, "low": 0.4, "high": 0.6, "seconds": 1} for text in sound]
    answers = {
        "**/runs": {"runs": rows, "comparisons": sound},
        "**/examples*": {"texts": sound},
        "**/look": hostile_look(sound),
        "**/comparison?*": {"question": sound[0], "metric": sound[1], "arms": arms,
                            "verdicts": [{"says": text} for text in sound]},
        "**/disagreements*": {"right": {"both": 1, "a": 1, "b": 1, "neither": 1}, "shown": [
            {"text": t, "truth": t, "a": t, "b": t, "right": "a"} for t in sound]},
    }  # fmt: skip
    for pattern, body in answers.items():
        page.route(pattern, answering(body))
    for view in ("try", "heads", "compare"):
        on.show({"view": view, "text": sound[0]}, ".tokens")
        if view == "compare":
            page.click("text=Show the texts on which")
            page.wait_for_selector(".texts li")
        page.wait_for_timeout(150)
        assert page.evaluate("window.broken") is None
        assert page.evaluate(f"document.querySelectorAll('{NEVER}').length") == 0
        assert "<script>window.broken=1</script>" in page.evaluate("document.body.textContent")
        if view == "heads":
            with page.expect_download() as download:
                page.click("[aria-label='CSV of As a matrix']")
            download.value.save_as(tmp_path / "hostile.csv")
    on.well()
    with (tmp_path / "hostile.csv").open(encoding="utf-8-sig", newline="") as file:
        heading, *written = csv.reader(file)
    assert {len(row) for row in written} == {len(sound) + 1}
    pairs = zip(heading[1:], sound, strict=True)
    assert [text for cell, text in pairs if cell not in (text, f"'{text}")] == []
    assert not [cell for cell in heading if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
