"""The page in a real browser, view by view: what it shows is what the models do."""

import json
import subprocess
import sys
import urllib.parse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import regard
from regard.lab.web.registry import Registry
from tests.lab.reports.hostile import HOSTILE
from tests.lab.web.conftest import (
    Open,
    Opened,
    answering,
    csv_rows,
    faults,
    look_at,
    saved,
    until,
    wait_for,
)

pytestmark = pytest.mark.browser
TEXT = "the plot was not bad at all , and the plot was long"
LESSONS = ("train", "scaling", "positions", "steps", "masks")
SHADES = (
    "[...[...document.querySelectorAll('.tokens')].at(-1).querySelectorAll('[data-i]')]"
    ".map((word) => Number(/w(\\d+)/.exec(word.className)?.[1] ?? 0))"
)
WRITTEN = "button:has-text('Write again')"
VIEWS = {
    "try": {
        "view=try&run=labels": ".bars",
        "view=try&run=counts": ".bars",
        "view=try&run=writes": ".arcs",
        "view=try&run=goes": WRITTEN,
        "view=try&run=hugging&text=Maria": WRITTEN,
    },
    "heads": {
        "view=heads&run=labels": ".tokens",
        f"view=heads&run=labels&layer=0&text={TEXT.replace(' ', '+')}": ".arcs",
        "view=heads&run=goes&text=Maria": ".arcs",
    },
    "compare": {"view=compare&a=labels&b=counts": ".answer-card >> nth=1"},
    "learn": {f"view=learn&lesson={name}": ".lesson .card" for name in LESSONS},
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["try", "heads", "compare", "learn"])
def test_every_view_fits_and_has_no_serious_fault(opened: Open, kind: str, scheme: str) -> None:
    for state, ready in VIEWS[kind].items():
        on = opened(color_scheme=scheme, viewport={"width": 1440, "height": 850})
        page = on.show(state, ready)
        fits(page, 1440, state)
        page.set_viewport_size({"width": 390, "height": 850})
        fits(page, 390, state)
        assert faults(page) == [], state
        on.well()


def fits(page: Any, width: int, state: str) -> None:
    page.wait_for_timeout(120)
    assert page.evaluate("document.documentElement.scrollWidth") <= width, state


def test_what_is_typed_is_answered(opened: Open, folder: Path) -> None:
    run = regard.load(folder / "labels")
    page = opened().show({"view": "try", "run": "labels"}, ".answer-card")
    for text in ("a good film", "the worst plot , not good"):
        page.fill("textarea", text)
        wanted = run.predict(text)
        share = f"{100 * wanted.probabilities[wanted.label]:.1f} % sure"
        said, words = f"{wanted.label} {share}", len(run.tokens(text))
        until(page, lambda s=said: page.text_content(".answer-card .label") == s)
        until(page, lambda n=words: page.locator(".tokens [data-i]").count() == n)
    page.fill("textarea", long := "good " * 500)
    says = f"The text is too long: the model did not read {run.left_out([long])[0]} of its tokens."
    until(page, lambda: says in page.inner_text(".answer-card"))


def test_a_writer_shows_its_alignment_and_writes_token_by_token(opened: Open, folder: Path) -> None:
    run = regard.load(folder / "writes")
    page = opened().show({"view": "try", "run": "writes", "text": "ABCD"}, ".arcs")
    wanted = run.predict("ABCD").text
    assert page.inner_text(".answer-card .written") == (wanted or "(nothing)")
    seen = run.attention("ABCD")[0]
    assert page.locator(".tokens").nth(0).locator("[data-i]").count() == len(seen.asking or [])
    assert page.locator(".tokens").nth(1).locator("[data-i]").count() == 4
    page.click("button.main")
    page.wait_for_selector(WRITTEN)
    assert "".join(page.locator(".told span:not(.end)").all_inner_texts()) == wanted
    page.wait_for_selector(".answer-card .written")


def test_a_text_gone_on_with_shows_what_each_word_looked_at(opened: Open, folder: Path) -> None:
    run = regard.load(folder / "goes")
    on = opened(viewport={"width": 1300, "height": 900})
    page = on.show({"view": "try", "run": "goes", "text": "Maria was"}, WRITTEN)
    page.focus("input[aria-label=Temperature]")
    page.keyboard.press("Home")  # 0: drawn of so few steps, symbols would stand in the text
    page.click(WRITTEN)
    page.wait_for_selector("text=Stop", state="detached")
    written = [*page.locator(".told span:not(.end):not(.read)").all_inner_texts()]
    text = "Maria was" + "".join(written)
    tokens = run.tokens(text)
    until(page, lambda: page.locator(".tokens [data-i]").count() == len(tokens))
    assert page.locator(".tokens .own").count() == len(written)
    layer, head = 1, 1  # as the pictures of heads have them, chosen by keyboard
    page.focus(".thumb[aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    until(page, lambda: page.inner_text(".one-head h2") == "layer 2, head 2")
    weights = run.attention(text)[layer].weights[head]
    row = len("Maria was") + 2
    page.hover(f".told [data-piece='{row - 9}']")
    said = f"{shown_as(tokens[row])} looks at {shown_as(tokens[int(weights[row].argmax())])} "
    until(page, lambda: page.inner_text(".says").startswith(said))
    shades = page.evaluate(SHADES)
    lift = np.log(np.maximum(weights[row] * len(tokens), 1)) / np.log(16)
    assert np.abs(np.array(shades) - 12 * lift).max() <= 1.1
    assert max(shades[row + 1 :], default=0) == 0, "it could not look ahead"
    page.focus(".tokens")
    page.mouse.move(5, 5)
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    until(page, lambda: page.inner_text(".says").startswith("a looks at "))
    other = opened().show(urllib.parse.urlparse(page.url).fragment, ".tokens [data-i='1'].asked")
    assert other.inner_text(".told") == page.inner_text(".told")
    assert other.inner_text(".says") == page.inner_text(".says")
    assert other.inner_text(".one-head h2") == "layer 2, head 2"
    other.select_option("[aria-label='Point at a word to see']", "back")
    other.locator(".tokens [data-i='0']").hover()
    until(other, lambda: other.inner_text(".says").startswith("M is looked at by "))


def shown_as(token: str) -> str:
    return {" ": "·", "\n": "⏎"}.get(token, token)


SLOW = """
import sys, time
from pathlib import Path
import regard
from regard.lab.web.limits import Limits
from regard.lab.web.server import address, bound, serve
from regard.lab.web.registry import find
from regard.lab.web.served_model import ServedRun

class Slow(ServedRun):
    def write(self, text, drawing):
        for piece in super().write(text, drawing):
            time.sleep(0.3)
            yield piece

registry = find([Path(sys.argv[1])])
registry.open = lambda name, folder: Slow(name, regard.load(folder))
listening = bound("127.0.0.1", 0)
print(address(listening), flush=True)
serve(registry, Limits(), listening)
"""


def test_a_text_can_be_pointed_at_while_it_is_written_and_stopped(
    browser: Any, folder: Path
) -> None:
    words = [sys.executable, "-c", SLOW, str(folder / "goes")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        on = Opened(browser, process.stdout.readline().strip().rstrip("/"))
        wait_for(on.server)
        page = on.show({"view": "try", "run": "goes", "text": "Maria was"}, ".tokens .own")
        assert page.inner_text("button.main") == "Stop"
        page.locator(".tokens").get_by_text("M", exact=True).click()
        until(page, lambda: page.inner_text(".says").startswith("M looks at M 1.00"))
        page.mouse.move(5, 5)
        page.hover(".told [data-piece='0']")
        until(page, lambda: not page.inner_text(".says").startswith("M looks"))
        here = page.locator(".tokens .own").count()
        until(page, lambda: page.locator(".tokens .own").count() > here)  # it follows
        until(page, lambda: not page.inner_text(".says").startswith("M looks"))  # still pointed at
        assert page.inner_text("button.main") == "Stop"
        page.mouse.move(5, 5)
        page.click("text=Stop")
        page.wait_for_selector(WRITTEN)
        stands = page.locator(".told [data-piece]").count()
        until(page, lambda: page.locator(".tokens .own").count() == stands)
        until(page, lambda: page.inner_text(".says").startswith("M looks at M"))  # still pinned
        assert page.url.partition("written=")[2].partition("&")[0].count(".") == stands - 1
        on.well()
    finally:
        process.kill()
        process.communicate()


def test_tokens_are_drawn_by_the_temperature_of_the_run_unless_another_is_chosen(
    opened: Open,
) -> None:
    on = opened()
    asked: list[dict[str, Any]] = []
    on.page.on(
        "request",
        lambda r: asked.append(r.post_data_json) if r.url.endswith("/generate") else None,
    )
    page = on.show({"view": "try", "run": "goes", "text": "Maria was"}, WRITTEN)
    warmth = "input[aria-label=Temperature]"
    assert float(page.input_value(warmth)) == 0.8
    page.focus(warmth)
    page.keyboard.press("ArrowRight")
    page.click(WRITTEN)
    until(page, lambda: len(asked) == 2)
    assert [round(said["temperature"], 3) for said in asked] == [0.8, 0.9]
    page.wait_for_selector(WRITTEN)
    page.select_option("select[aria-label=Model]", "writes")
    until(page, lambda: float(page.input_value(warmth)) == 0)


def test_writing_again_begins_anew_whatever_is_still_asked(opened: Open) -> None:
    on = opened()
    page = on.page
    body, whole = "", ""
    for place, letter in enumerate("abcd"):
        whole += letter
        line = {"token": letter, "probability": 0.5, "text": whole, "id": 5 + place, "end": False}
        body += json.dumps(line) + "\n"
    asked: list[Any] = []
    looks: list[Any] = []
    page.route("**/generate", lambda route: asked.append(route))
    page.route("**/look", lambda route: looks.append(route))
    on.show({"view": "try", "run": "goes", "text": "Maria was"}, ".told .read")
    until(page, lambda: len(asked) == 1)
    assert page.inner_text("button.main") == "Stop"
    asked[0].fulfill(body=body)  # without a last line: it was cut
    page.wait_for_selector(WRITTEN)
    assert page.locator(".told .w6").count() == 4
    page.click(WRITTEN)
    until(page, lambda: len(asked) == 2)
    looks[-1].fulfill(json={"answer": {"written": whole, "pieces": json.loads(f"[{body.strip()}]"
                      .replace("\n", ","))}, "layers": [], "axes": [], "read": 9})  # fmt: skip
    page.wait_for_timeout(200)
    assert page.locator(".told .w6").count() == 0
    asked[1].fulfill(body=body)
    page.wait_for_selector(WRITTEN)
    assert page.locator(".told .w6").count() == 4
    page.fill("textarea", "M")
    until(page, lambda: len(asked) == 3)
    until(page, lambda: page.inner_text(".told") == "M")
    page.click("text=Stop")
    until(page, lambda: page.inner_text("button.main") == "Write again")


def test_a_head_is_chosen_hovered_and_pinned(opened: Open, folder: Path) -> None:
    weights = regard.load(folder / "labels").attention(TEXT)[1].weights[1]
    on = opened(viewport={"width": 1300, "height": 900})
    page = on.show({"view": "heads", "run": "labels", "text": TEXT, "layer": 1, "head": 0}, ".arcs")
    page.focus(".thumb[aria-pressed=true]")
    page.keyboard.press("ArrowRight")
    until(page, lambda: page.inner_text(".one-head h2").endswith("head 2"))
    page.locator(".tokens").nth(0).locator("[data-i='3']").click()
    best = int(weights[3].argmax())
    page.wait_for_selector(".tokens [data-i='3'].asked")
    shades = page.evaluate(SHADES)
    n = weights.shape[-1]
    lift = np.log(np.maximum(weights[3] * n, 1)) / np.log(min(16, n))
    assert np.abs(np.array(shades) - 12 * lift).max() <= 1.1
    tokens = regard.load(folder / "labels").tokens(TEXT)
    assert page.inner_text(".says").startswith(f"{tokens[3]} looks at {tokens[best]} ")
    state = urllib.parse.parse_qs(urllib.parse.urlparse(page.url).fragment)
    assert [state[key] for key in ("layer", "head", "query")] == [["1"], ["1"], ["3"]]
    other = opened().show(urllib.parse.urlparse(page.url).fragment, ".arcs")
    other.wait_for_selector(".tokens [data-i='3'].asked")
    assert other.inner_text(".one-head h2") == page.inner_text(".one-head h2")
    assert other.inner_text(".says") == page.inner_text(".says")


def test_a_figure_is_taken_along_as_numbers_drawing_and_picture(
    opened: Open, folder: Path, tmp_path: Path
) -> None:
    seen = regard.load(folder / "labels").attention(TEXT)[0]
    on = opened()
    page = on.show({"view": "heads", "run": "labels", "text": TEXT, "layer": 0, "head": 1}, ".arcs")

    def take(word: str) -> Path:
        return saved(page, page.locator(f"[aria-label='{word} of As a matrix']"), tmp_path)

    heading, *rows = csv_rows(take("CSV"))
    assert [word.removeprefix("'") for word in heading[1:]] == seen.tokens
    found = np.array([[float(cell) for cell in row[1:]] for row in rows])
    assert np.abs(found - seen.weights[1]).max() <= seen.weights[1].max() / 510 + 1e-5
    drawing = take("SVG").read_text(encoding="utf-8")
    assert drawing.startswith("<svg")
    assert drawing.count("<text") == 2 * len(seen.tokens)
    assert "data:image/png;base64," in drawing
    assert take("PNG").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_heads_are_found_by_what_they_do(opened: Open, folder: Path) -> None:
    page = opened().show({"view": "heads", "run": "labels", "text": TEXT}, ".thumb")
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


def test_two_runs_side_by_side(opened: Open, folder: Path) -> None:
    on = opened()
    state = {"view": "compare", "a": "labels", "b": "counts", "text": TEXT}
    page = on.show(state, ".answer-card >> nth=1")
    for side, name in enumerate(("labels", "counts")):
        said = regard.load(folder / name).predict(TEXT).label
        assert page.locator(".answer-card .label").nth(side).inner_text().startswith(said)
    page.click("text=Show texts that only one of them gets right")
    page.wait_for_selector("[aria-label='who is right'] tbody td")
    ours, theirs = (regard.load(folder / name).evaluate().correct for name in ("labels", "counts"))
    cells = page.locator("[aria-label='who is right'] tbody td").all_inner_texts()
    counts = [int(cell.split(" ")[0]) for cell in cells]
    assert counts == [
        int((ours & theirs).sum()), int((ours & ~theirs).sum()),
        int((~ours & theirs).sum()), int((~ours & ~theirs).sum()),
    ]  # fmt: skip
    said = page.locator("[aria-label='Differences between the answers'] td").all_inner_texts()
    chances = [regard.load(folder / name).predict(TEXT).probabilities for name in state.values()
               if name in ("labels", "counts")]  # fmt: skip
    gap = max(100 * abs(chances[0][label] - chances[1][label]) for label in chances[0])
    assert abs(float(said[2].replace("−", "-"))) == pytest.approx(gap, abs=0.051)
    other = opened().show(
        urllib.parse.urlparse(page.url).fragment, "[aria-label='who is right'] tbody td"
    )
    assert other.locator("[aria-label='who is right'] tbody td").all_inner_texts() == cells


def test_the_scaling_lesson_shows_what_it_says(opened: Open) -> None:
    page = opened().show("view=learn&lesson=scaling", ".lesson .card")

    def row(words: str) -> list[float]:
        cells = page.locator(f".lesson .card tr:has-text('{words}') td").all_inner_texts()
        return [float(cell) for cell in cells]

    for power in range(2, 13):
        page.locator("input[type=range]").fill(str(power))
        vectors, mean = row("these vectors"), row("mean of 300 draws")
        assert (mean[0] < mean[1]) == (power >= 5), "the caption: from d = 32 on"
        assert (vectors[0] < vectors[1]) == (power >= 5), "the draw shown at first is typical"
    assert "smaller from d = 32 on" in page.inner_text(".lesson")
    page.locator("input[type=range]").fill("6")
    said = set()
    for _ in range(12):  # 37 % of the draws at d = 64 show the opposite
        page.click("text=Draw other vectors")
        without, scaled = row("these vectors")
        told = page.inner_text(".lesson .says")
        assert f"is {'smaller' if without < scaled else 'larger'} without √d" in told
        said.add(told.rsplit(" in ", 1)[1])
    assert said == {"63 % of 300 draws at this d.", "37 % of 300 draws at this d."}


def test_a_painted_mask_hides_and_an_empty_row_is_zero(opened: Open) -> None:
    page = opened().show("view=learn&lesson=masks", ".board")
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


def test_one_head_step_by_step_adds_up(opened: Open) -> None:
    page = opened().show("view=learn&lesson=steps", ".step-table")
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


def test_a_link_brings_a_lesson_back_as_it_was_left(opened: Open) -> None:
    on, again = opened(), opened()

    def link(key: str) -> str:
        until(on.page, lambda: key in on.page.url)
        return urllib.parse.urlparse(on.page.url).fragment

    page = on.show("view=learn&lesson=steps", ".step-table")
    page.fill("input[type=text]", "a small dog ran")
    page.select_option("[aria-label=Mask]", "causal")
    page.click("text=5. Softmax, row by row")
    other = again.show(link("steps.step=4"), ".step-table")
    assert other.inner_text(".step-table") == page.inner_text(".step-table")
    page.click("text=Masks")
    page.click("button.cell >> nth=7")
    other = again.show(link("masks.cells=813"), ".board")
    assert "steps.step" not in page.url, "of the lesson before nothing is kept"
    assert other.inner_text(".says") == page.inner_text(".says")
    wild = "view=learn&lesson=scaling&scaling.power=99&scaling.seed=x&train.score=x&train.rate=y"
    assert again.show(wild, ".lesson .card").inner_text("output") == "4096"


NEVER = "iframe, object, embed, base, form, main img, main script"


def test_runs_that_cannot_be_read_say_why(opened: Open) -> None:
    on = opened()
    rows = [{"name": "old", "error": "no task 'sorting'"}, {"name": "cut", "error": "it is cut"}]
    on.page.route("**/runs", answering({"runs": rows, "comparisons": []}))
    for state in ("", "view=try", "view=heads", "view=compare"):
        page = on.show(state, "#main li")
        assert page.locator("#main li").all_inner_texts() == [
            "old: no task 'sorting'", "cut: it is cut",
        ]  # fmt: skip
    on.show("view=learn", ".lesson .card")


@pytest.mark.parametrize("texts", [False, True])
def test_a_subject_of_ones_own_is_tried(opened: Open, tmp_path: Path, texts: bool) -> None:
    model = SimpleNamespace(answers_in_texts=texts)
    registry = Registry({"mine": tmp_path}, open=lambda name, folder: model)  # type: ignore[arg-type,return-value]
    on = opened()
    on.page.route("**/runs", answering({"runs": registry.listed(), "comparisons": []}))
    on.page.route("**/examples*", answering({"texts": []}))
    on.page.route("**/look", answering(look_at(["fine", "bad"])))
    for view in ("try", "heads", "compare"):
        page = on.show({"view": view, "text": "a film"}, ".tokens")
        if view != "heads":
            assert page.inner_text(".answer-card .label >> nth=0").startswith("fine")


def test_an_encoder_is_explained_by_attribution(opened: Open, tmp_path: Path) -> None:
    model = SimpleNamespace(answers_in_texts=False)
    registry = Registry({"mine": tmp_path}, open=lambda name, folder: model)  # type: ignore[arg-type,return-value]
    on = opened()
    rows = [{**row, "attributes": True} for row in registry.listed()]
    explained = {
        "tokens": ["fine", "<b>"], "sizes": [2], "choice": 0, "choices": ["logit of good"],
        "unit": "logit", "integrated_gradients": [1.25, -0.5], "output": 1.0, "baseline": 0.25,
        "steps": 32, "attention_gradients": None, "spearman": None, "says": "Said.",
    }  # fmt: skip
    on.page.route("**/runs", answering({"runs": rows, "comparisons": []}))
    on.page.route("**/examples*", answering({"texts": []}))
    on.page.route("**/look", answering(look_at(["fine", "bad"])))
    on.page.route("**/attribute", answering(explained))
    page = on.show({"view": "try", "text": "a film"}, "text=Explained: logit of good")
    cells = page.locator("td").all_inner_texts()
    assert [cell.replace("−", "-") for cell in cells if "." in cell] == ["1.25", "-0.5000"]
    assert page.locator("text=See the attention of all 4 heads").count() == 1
    on.show({"view": "heads", "text": "a film"}, ".tokens")


@pytest.mark.parametrize(("metric", "unit"), [("BLEU", ""), ("accuracy", " %")])
def test_a_comparison_is_headed_by_its_metric_and_unit(
    opened: Open, tmp_path: Path, metric: str, unit: str
) -> None:
    arms = [{"name": "gru", "mean": 0.331, "low": 0.32, "high": 0.34, "seconds": 1}]
    (tmp_path / "comparison.json").write_text(json.dumps({"metric": metric, "arms": arms}))
    found = Registry({}, {"c": tmp_path}).comparison("c")
    on = opened()
    page = on.page
    page.route("**/runs", lambda route: route.fulfill(
        json={**route.fetch().json(), "comparisons": ["c"]}))  # fmt: skip
    page.route("**/comparison?*", answering(found))
    on.show("view=compare&a=labels&b=counts&comparison=c", ".results td")
    headed = metric + unit.replace(" ", ", ")
    assert page.locator(".results th").all_inner_texts()[1] == headed
    assert page.get_attribute(".results .interval", "aria-label") == f"32.0 to 34.0{unit}"
    button = page.locator("section:has(> .scroll .results) .tools button", has_text="SVG")
    drawn = saved(page, button, tmp_path).read_text(encoding="utf-8")
    assert f">{headed} (95 % interval)<" in drawn


def test_sixty_hostile_texts_run_nowhere(opened: Open, tmp_path: Path) -> None:
    on = opened()
    page = on.page
    sound = [text.encode(errors="replace").decode() for text in HOSTILE]
    listed = [
        {"name": text, "task": text, "model": text, "says": text, "answers_in_texts": False,
         "data": text, "labels": [text], "attends": True}
        for text in sound
    ]  # fmt: skip
    arms = [{"name": text, "mean": 0.5, "low": 0.4, "high": 0.6, "seconds": 1} for text in sound]
    answers = {
        "**/runs": {"runs": listed, "comparisons": sound},
        "**/examples*": {"texts": sound},
        "**/look": look_at(sound),
        "**/comparison?*": {"question": sound[0], "metric": sound[1], "arms": arms,
                            "verdicts": [{"says": text} for text in sound]},
        "**/disagreements*": {"right": {"both": 1, "a": 1, "b": 1, "neither": 1}, "truths": sound,
                              "found": len(sound), "offset": 0, "shown": [
            {"text": t, "truth": t, "a": t, "b": t, "right": "a"} for t in sound]},
    }  # fmt: skip
    for pattern, body in answers.items():
        page.route(pattern, answering(body))
    for view in ("try", "heads", "compare"):
        on.show({"view": view, "text": sound[0], "comparison": sound[0]}, ".tokens")
        if view == "compare":
            page.wait_for_selector(".results td")
            page.click("text=Show texts that only")
            page.wait_for_selector(".texts li")
            table = page.locator("section:has(> .scroll .results)")
            button = table.locator(".tools button", has_text="CSV")
            _, *rows = csv_rows(saved(page, button, tmp_path))
            names = (
                "[...document.querySelectorAll('.results td:first-child')].map((c) => c.innerText)"
            )
            before = page.evaluate(names)
            page.click(".results th:first-child button")
            page.click(".results th:first-child button")
            assert sorted(page.evaluate(names)) == sorted(before)
            assert page.evaluate(names) != before
        page.wait_for_timeout(150)
        assert page.evaluate("window.broken") is None
        assert page.evaluate(f"document.querySelectorAll('{NEVER}').length") == 0
        assert "<script>window.broken=1</script>" in page.evaluate("document.body.textContent")
        if view == "heads":
            button = page.locator("[aria-label='CSV of As a matrix']")
            heading, *written = csv_rows(saved(page, button, tmp_path))
    assert [row[0].removeprefix("'") for row in rows] == [text.removeprefix("'") for text in sound]
    assert {len(row) for row in written} == {len(sound) + 1}
    pairs = zip(heading[1:], sound, strict=True)
    assert [text for cell, text in pairs if cell not in (text, f"'{text}")] == []
    assert not [cell for cell in heading if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
