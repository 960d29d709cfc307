"""The report in a real browser: nothing runs, nothing is fetched, nothing sticks out."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.lab.reports.comparison import write_report
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table, film, write_findings
from tests.lab.reports.conftest import Make, Open
from tests.lab.reports.hostile import HOSTILE
from tests.lab.web.conftest import csv_rows, faults

pytestmark = pytest.mark.browser


def hostile_report(made: Make) -> Path:
    """A report in which every text that comes from outside is hostile."""
    comparison, folder = made(HOSTILE[:40])
    says = iter(HOSTILE * 3)
    comparison |= {key: next(says) for key in ("question", "data", "fingerprint", "command")}
    comparison["notes"] = HOSTILE
    comparison["claims"] = [{"says": text, "value": 1, "holds": True} for text in HOSTILE]
    comparison["errors"] = [{"arm": text, "seed": 0, "says": text} for text in HOSTILE]
    costs = {"seeds": 1, "seconds": 1, "peak_mb": 1, "parameters": 1}
    comparison["arms"] += [
        {"name": text, "mean": 0.5, "low": 0.4, "high": 0.6, **costs} for text in HOSTILE
    ]
    comparison["verdicts"] += [
        {"a": t, "b": "mean", "difference": 0.0, "low": -0.1, "high": 0.1, "p": 0.5, "says": t}
        for t in HOSTILE
    ]
    comparison["word_order"] = {
        "pairs": 1,
        "arms": {text: {"both": 0.0, "same": 1.0} for text in HOSTILE},
        "shown": [{"texts": [t, t], "truths": [t, t], "said": {t: [t, t]}} for t in HOSTILE],
    }
    for answers in folder.rglob("predictions.jsonl"):
        rows = [json.loads(line) for line in answers.read_text("utf-8").splitlines()]
        answers.write_text("".join(json.dumps(renamed(row)) + "\n" for row in rows))
    for env in folder.rglob("env.json"):
        env.write_text('{"<script>window.broken=1</script>": "</td><script>window.broken=1"}')
    return write_report(comparison, folder)


LABELS = {"positive": HOSTILE[0], "negative": HOSTILE[6]}


def renamed(row: dict[str, Any]) -> dict[str, Any]:
    """A row of answers with hostile labels."""
    said = {LABELS[label]: share for label, share in row["probabilities"].items()}
    return {**row, "label": LABELS[row["label"]], "predicted": LABELS[row["predicted"]],
            "probabilities": said}  # fmt: skip


def test_sixty_hostile_texts_run_nowhere(opened: Open, made: Make) -> None:
    path = hostile_report(made)
    page, requests, complaints = opened(path)
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true })")
    page.wait_for_timeout(300)
    assert page.evaluate("window.broken") is None
    assert requests == []
    assert complaints == []
    assert page.evaluate("document.scripts.length") == 1
    assert (
        page.evaluate("document.querySelectorAll('iframe, object, embed, base, form, img').length")
        == 0
    )
    shown = page.evaluate("document.body.innerText")
    for text in (*LABELS.values(), "</td><script>window.broken=1", HOSTILE[32], HOSTILE[55]):
        assert text in shown, "it is shown as the text that it is"


@pytest.mark.parametrize(("scheme", "width"), [("light", 1240), ("dark", 1240), ("light", 390)])
def test_it_fits_the_window(opened: Open, made: Make, scheme: str, width: int) -> None:
    page, requests, complaints = opened(
        write_report(*made()), color_scheme=scheme,
        viewport={"width": width, "height": 800},
    )  # fmt: skip
    assert requests == []
    assert complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert faults(page) == []
    ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert ground == ("rgb(20, 24, 29)" if scheme == "dark" else "rgb(255, 255, 255)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_of_a_lab_fits_and_has_no_serious_fault(
    opened: Open, tmp_path: Path, scheme: str
) -> None:
    curves = [Series("a", [1, 2, 3], [3, 4, 2]), Series("b", [1, 2, 3], [1, 2, 3])]
    chart = line_chart("Two curves", curves, x_label="x", y_label="y")
    wide = Table("Wide", [f"column {i}" for i in range(12)], [["a", *map(float, range(11))]])
    frames = film("w is learned", [("step 0", chart), ("step 1", chart)])
    figures = [Figure(chart, "look here"), Figure(frames, "and here")]
    record = {
        "task": "lab", "question": "Why?", "answer": "Because.", "command": "regard lab x",
        "claims": [{"says": "three is 3", "value": 3.0, "holds": True}],
        "machine": {"versions": {"torch": "2.13"}},
    }  # fmt: skip
    path = write_findings(record, [Section("First", ["words"], figures, [wide])], tmp_path)
    page, requests, complaints = opened(
        path, color_scheme=scheme, viewport={"width": 390, "height": 800}
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert (requests, complaints, faults(page)) == ([], [], [])


def test_figures_and_tables_of_a_report_are_taken_along(
    opened: Open, made: Make, tmp_path: Path
) -> None:
    page, requests, complaints = opened(write_report(*made()))

    def take(word: str, place: str) -> bytes:
        with page.expect_download() as download:
            page.locator(place).get_by_role("button", name=word).first.click(force=True)
        assert download.value.suggested_filename.endswith(f".{word.lower()}")
        download.value.save_as(tmp_path / word)
        return (tmp_path / word).read_bytes()

    assert take("SVG", "figure").startswith(b"<svg")
    assert take("PNG", "figure")[:8] == b"\x89PNG\r\n\x1a\n"
    take("CSV", "main")
    heading, *rows = csv_rows(tmp_path / "CSV")
    assert heading[0] == "arm"
    assert [row[0] for row in rows] == ["mean", "transformer", "nb-svm"]
    assert requests == [url for url in requests if url.startswith(("blob:", "data:"))]
    assert complaints == []


def test_the_hostile_page_fits_a_phone(opened: Open, made: Make) -> None:
    page, _, _ = opened(hostile_report(made), viewport={"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_table_sorts_by_its_numbers(opened: Open, made: Make) -> None:
    page, _, complaints = opened(write_report(*made()))
    names = (
        "[...document.querySelectorAll('table.sortable tbody tr')].map((r) => r.cells[0].innerText)"
    )
    assert page.evaluate(names) == ["mean", "transformer", "nb-svm"]
    page.click("table.sortable th:nth-child(2) button")
    assert page.evaluate(names) == ["nb-svm", "transformer", "mean"]
    page.click("table.sortable th:nth-child(2) button")
    assert page.evaluate(names) == ["mean", "transformer", "nb-svm"]
    assert complaints == []


def test_letters_do_not_lie_on_each_other(opened: Open, made: Make) -> None:
    page, _, _ = opened(write_report(*made()))
    overlaps = page.evaluate(
        """() => [...document.querySelectorAll('svg')].flatMap((svg) => {
            const boxes = [...svg.querySelectorAll(':scope > text')].filter((t) => t.textContent)
              .filter((t) => !t.hasAttribute('transform'))
              .map((t) => [t.textContent, t.getBoundingClientRect()]);
            return boxes.flatMap(([a, p], i) => boxes.slice(0, i)
              .filter(([, q]) => Math.min(p.right, q.right) - Math.max(p.left, q.left) > 2
                && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 5)
              .map(([b]) => `${svg.getAttribute('aria-label')}: ${a} | ${b}`));
        })"""
    )
    assert overlaps == []
