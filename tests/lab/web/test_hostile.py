"""Sixty hostile texts as text, label, name of a run and of a file; in page, report, notebook, CSV.

A run is trained on a file of a hostile name whose texts and labels are all hostile, and stands
under every hostile name. What comes from it is shown as it was typed, and none of it runs.
"""

import html
import json
import os
import shlex
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import regard
from regard.lab.data.spelling import label_of
from regard.lab.reports.markup import escape
from regard.lab.reports.page import static
from regard.lab.reports.run import run_page, write_run_report
from regard.lab.web.registry import Registry, find
from tests.lab.reports.hostile import HOSTILE
from tests.lab.small_runs import trained_run
from tests.lab.web.conftest import Opened, csv_rows, saved, serving_until_done, until

SOUND = [text.encode(errors="replace").decode() for text in HOSTILE]
SETTINGS = [
    "width=8", "heads=2", "layers=1", "feedforward=12", "steps=3", "batch_tokens=2000",
    "threads=1", "precision=fp32", "length=60",
]  # fmt: skip
NEVER = {"img", "iframe", "object", "embed", "base", "form", "link", "math", "video", "textarea"}


def as_name(text: str) -> str:
    """The nearest name that a file may bear."""
    return text.replace("/", "⁄").replace("\0", "␀").encode()[:180].decode(errors="ignore")


def seen(text: str) -> str:
    """How it is shown: as it was typed, but for signs that turn the direction or are none."""
    return html.unescape(escape(text))


NAMES = [as_name(text) for text in SOUND]
FILES = [f"{name}.jsonl" for name in NAMES]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "data").mkdir()
    data = folder / "data" / FILES[5]
    rows = [{"text": f"{text} {i}", "label": text} for text in SOUND for i in range(8)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = folder / "made"
    trained_run(made, "classification", "transformer", [f"data={data}", *SETTINGS])
    for name, file in zip(NAMES, FILES, strict=True):
        shutil.copytree(made, folder / "runs" / name, copy_function=os.link)
        told = folder / "runs" / name / "env.json"
        known = json.loads(told.read_text())
        known["data"]["name"] = file
        told.unlink()  # else all of them were changed
        told.write_text(json.dumps(known))
    return folder / "runs"


@pytest.fixture(scope="module")
def registry(home: Path) -> Registry:
    return find([home])


class Elements(HTMLParser):
    """What a page consists of."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.acting: list[str] = []
        self.words: list[str] = []
        self.feed(page)
        self.text = "".join(self.words)

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.names.append(name)
        self.acting += [key for key, value in attributes if key.startswith("on")]
        self.acting += [value for _, value in attributes if (value or "").startswith("javascript:")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def harmless(page: str, scripts: int) -> Elements:
    found = Elements(page)
    assert (set(found.names) & NEVER, found.acting) == (set(), [])
    assert found.names.count("script") == scripts
    return found


def test_runs_of_every_name_are_listed_and_answer(registry: Registry) -> None:
    listed = registry.listed()
    assert {row["name"] for row in listed} == set(NAMES)
    assert {row["data"] for row in listed} == set(FILES)
    assert all(sorted(row["labels"]) == sorted(set(map(label_of, SOUND))) for row in listed)
    for name, text in zip(NAMES[::7], SOUND[::7], strict=True):
        assert registry.model(name).predict([text])[0]["label"] in listed[0]["labels"]


@pytest.mark.parametrize("place", range(60))
def test_a_report_opens_nothing(home: Path, place: int) -> None:
    run = regard.load(home / NAMES[place])
    text = SOUND[place]
    look = {"text": text, "answer": run.predict(text).json(), "layers": [], "axes": []}
    found = harmless(run_page(run, [look]), scripts=2)
    command = shlex.join(["regard", "serve", str((home / NAMES[place]).resolve())])
    assert seen(command) in found.text
    assert _stored(found.text)["looks"][0]["text"] == text


def _stored(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.JSONDecoder().raw_decode(text, text.index('{"title":'))[0]
    return found


@pytest.mark.parametrize("place", range(60))
def test_a_notebook_shows_it_in_a_frame_that_it_stays_in(home: Path, place: int) -> None:
    run = regard.load(home / NAMES[place])
    for shown in (regard.look(run, SOUND[place])._repr_html_(), run._repr_html_()):
        frame = Elements(shown)
        own = static("frame.js")
        assert (frame.names, frame.acting, frame.text) == (["iframe", "script"], [], own)
        inside, _, rest = shown.partition('srcdoc="')[2].partition('"')
        assert rest.startswith(' sandbox="allow-scripts allow-downloads"')
        inside = html.unescape(inside)
        harmless(inside, scripts=2)


@pytest.fixture(scope="module")
def serving_hostile(home: Path) -> Iterator[str]:
    yield from serving_until_done(home)


def read(path: Path) -> list[list[str]]:
    rows = csv_rows(path)
    assert not [c for row in rows for c in row if c.startswith(("=", "+", "-", "@", "\t", "\r"))]
    return [[cell.removeprefix("'") if cell[1:2] in "=+-@\t\r" else cell for cell in row]
            for row in rows]  # fmt: skip


@pytest.mark.browser
def test_the_page_shows_names_files_texts_and_labels(
    browser: Any, serving_hostile: str, tmp_path: Path
) -> None:
    on = Opened(browser, serving_hostile)
    labels = set(map(label_of, SOUND))
    for place in (0, 5, 43, 48):
        state = f"view=try&run={quote(NAMES[place])}&text={quote(SOUND[place])}"
        page = on.show(state, ".answer-card .label")
        options = page.locator("select[aria-label=Model] option").all_text_contents()
        groups = page.locator("select[aria-label=Model] optgroup").evaluate_all(
            "all => all.map((group) => group.label)"
        )
        assert sorted(options) == sorted(map(seen, NAMES))
        assert {group.partition(" · ")[2] for group in groups} == set(map(seen, FILES))
        assert page.evaluate("window.broken") is None
        assert page.locator("main img, main script, iframe, object, embed, base, form").count() == 0
        bars = page.locator(".answer-place")
        rows = read(saved(page, bars.locator("button", has_text="CSV"), tmp_path))
        assert {row[0] for row in rows[1:]} == labels
        drawing = saved(page, bars.locator("button", has_text="SVG"), tmp_path).read_text("utf-8")
        harmless(drawing, scripts=0)
    on.well()


@pytest.mark.browser
def test_a_report_of_hostile_things_runs_nothing(browser: Any, home: Path, tmp_path: Path) -> None:
    run = regard.load(home / NAMES[0])
    path = write_run_report(run, SOUND[::6], tmp_path / "report.html")
    on = Opened(browser, path.as_uri())
    page = on.page
    page.goto(path.as_uri())
    for place, text in enumerate(SOUND[::6]):
        page.select_option("[aria-label=Text]", str(place))
        until(page, lambda t=text: page.text_content(".stored-text") == seen(t))
        assert page.evaluate("window.broken") is None
    rows = read(saved(page, page.locator("[aria-label='CSV of Probabilities']"), tmp_path))
    assert {row[0] for row in rows[1:]} == set(map(label_of, SOUND))
    on.well()
