"""The README's animation of the explorer, taken from the real page.

    python -m benchmarks.animation --out docs/pictures/explorer.webp

A small transformer is trained on the built-in reviews and served on loopback. Chromium types a
sentence, shows the answer and the attention, opens the heads, and switches off the one that
matters most. Needs playwright, pillow and a Chromium of this machine.
"""

import argparse
import io
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.looking import browser, chromium
from benchmarks.serving import started
from regard.core.errors import RegardError
from regard.lab import runs
from regard.lab.runs import Run

SENTENCE = "the plot is wonderful rather than dull"
POINTED = "rather"
SETTINGS = [
    "layers=2", "heads=4", "width=32", "feedforward=64", "examples=5000", "epochs=8",
    "batch_tokens=1000", "precision=fp32", "threads=1",
]  # fmt: skip
SIZE = {"width": 720, "height": 660}


class Film:
    """Screenshots of a page, each with its duration in milliseconds."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.shots = list[bytes]()
        self.times = list[int]()

    def shoot(self, milliseconds: int) -> None:
        """Take a screenshot."""
        self.shots.append(self.page.screenshot(animations="disabled", caret="initial"))
        self.times.append(milliseconds)

    def show(self, selector: str, steps: int = 4) -> None:
        """Scroll smoothly until the element's top is near the top of the window."""
        begun = self.page.evaluate("scrollY")
        top = self.page.locator(selector).first.bounding_box()["y"] + begun - 70
        for step in range(1, steps + 1):
            self.page.evaluate("(y) => scrollTo(0, y)", begun + (top - begun) * step / steps)
            self.shoot(80)

    def save(self, path: Path) -> None:
        """Write one looping animation; the file's suffix names the format."""
        from PIL import Image

        first, *rest = [Image.open(io.BytesIO(shot)).convert("RGB") for shot in self.shots]
        path.parent.mkdir(parents=True, exist_ok=True)
        first.save(
            path, save_all=True, append_images=rest, duration=self.times, loop=0,
            quality=70, method=6,
        )  # fmt: skip


def trained(folder: Path) -> Run:
    """Train a small transformer to distinguish good reviews from bad ones."""
    run = runs.start(folder, "classification", "transformer", SETTINGS)
    for _ in run.train():
        pass
    return run


def head_that_matters(run: Run) -> int:
    """Return the head, counted from 0 over all layers, whose removal changes the answer most."""
    from regard.analysis.interventions import Head, heads_of, layers_with_heads, without_heads

    before = run.predict(SENTENCE)
    moved = list[float]()
    for layer, attention in layers_with_heads(run.network).items():
        for head in range(1, heads_of(attention) + 1):
            with without_heads(run.network, [Head(layer, head)]):
                after = run.predict(SENTENCE)
            label = before.label
            moved.append(abs(before.probabilities[label] - after.probabilities[label]))
    return moved.index(max(moved))


def act(page: Any, url: str, head: int) -> Film:
    """Show a sentence, its answer, the heads, and the answer without one head."""
    film = Film(page)
    page.goto(f"{url}/#view=try&run=reviews")
    page.wait_for_selector(".answer-card")
    page.fill("textarea", "")
    page.wait_for_selector(".empty")
    film.shoot(500)
    page.focus("textarea")
    for letter in SENTENCE:
        page.keyboard.type(letter)
        if letter == " ":
            page.wait_for_timeout(400)  # the page answers 120 ms after the last key
        film.shoot(70)
    page.wait_for_timeout(1500)
    film.shoot(1200)
    film.show(".answer-place")
    page.hover(f".tokens [data-i]:has-text('{POINTED}')")
    page.wait_for_timeout(300)
    film.shoot(1500)
    page.click("a:has-text('See all')")
    page.wait_for_selector(".thumb")
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(500)
    film.shoot(700)
    film.show(".seen-place")
    page.locator(".thumb").nth(head).click()
    page.wait_for_timeout(500)
    film.shoot(900)
    film.show("text=/^layer .*, head/")
    page.hover(f".tokens [data-i]:has-text('{POINTED}')")
    page.wait_for_timeout(300)
    film.shoot(1800)
    page.click(".change summary")
    page.wait_for_selector(".change input[type=checkbox]")
    film.show(".change")
    film.shoot(500)
    page.locator(".change input[type=checkbox]").nth(head).check()
    page.wait_for_selector(".change table")
    film.shoot(2800)
    return film


def animate(out: Path, place: Path) -> Film:
    """Train, serve and film a model. Raises: no Chromium; a format other than WebP and GIF."""
    if out.suffix not in (".webp", ".gif"):
        raise RegardError(f"--out must end in .webp or .gif, not {out.suffix!r}")
    chromium()
    head = head_that_matters(trained(place / "reviews"))
    with started(place) as (_, url), browser() as opened:
        page = opened.new_page(viewport=SIZE, color_scheme="light")
        page.add_init_script("localStorage.setItem('regard-tour', 'seen')")
        film = act(page, url, head)
    film.save(out)
    return film


def main() -> None:
    """Run the command and print the length and size of the animation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    with TemporaryDirectory() as place:
        film = animate(asked.out, Path(place))
    seconds, size = sum(film.times) / 1000, asked.out.stat().st_size / 1000
    sys.stdout.write(f"{asked.out}: {len(film.shots)} shots, {seconds:.1f} s, {size:.0f} kB\n")


if __name__ == "__main__":
    main()
