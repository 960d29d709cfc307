"""A lab's report holds what was found, escaped; one table says the same in three places."""

import math
from pathlib import Path
from typing import Any

import pytest

from regard.lab.reports import findings
from regard.lab.reports.figures import Series, line_chart
from regard.lab.reports.findings import Figure, Section, Table, film, write_findings
from tests.lab.reports.hostile import HOSTILE

CHART = line_chart("T", [Series("a", [1, 2], [3, 4])], x_label="x", y_label="y")


def record(**more: Any) -> dict[str, Any]:
    found = {
        "task": "lab",
        "question": "Why?",
        "answer": "Because of 3.",
        "command": "regard lab x",
    }
    claims = [{"says": "three is 3", "value": 3.0, "holds": True},
              {"says": "four is 5", "value": 5.0, "holds": False}]  # fmt: skip
    return {**found, "claims": claims, "machine": {"versions": {"torch": "2.13"}}, **more}


def test_a_table_says_the_same_everywhere() -> None:
    table = Table("Cost", ["arm", "s"], [["mean", 1.5], ["odd", math.nan], ["rnn", -1234.0]])
    lines = ["arm        s", "mean     1.5", "odd        –", "rnn   −1.23k"]
    assert table.text().splitlines() == lines
    assert table.json()["rows"] == [["mean", 1.5], ["odd", None], ["rnn", -1234.0]]
    assert '<td data-value="-1234.0">−1.23k</td>' in table.html()
    assert '<th class="words">arm</th><th>s</th>' in table.html()


def test_a_long_table_is_cut_in_the_terminal_alone() -> None:
    table = Table("Long", ["n"], [[str(i)] for i in range(30)])
    assert table.text().splitlines()[-1] == "… and 6 more rows in the report"
    assert table.html().count("<tr>") == 31


def test_a_report_holds_question_answer_claims_figures_and_command(tmp_path: Path) -> None:
    table = Table("Numbers", ["a", "b"], [["one", 1.0]], note="measured")
    sections = [Section("First", ["words"], [Figure(CHART, "look here")], [table])]
    text = write_findings(record(), sections, tmp_path).read_text()
    for part in ("<h1>Why?</h1>", "Because of 3.", '<li class="holds">three is 3</li>',
                 '<li class="fails">four is 5</li>', "<h2>First</h2>", CHART, "look here",
                 "<pre>regard lab x</pre>", "torch 2.13", "measured"):  # fmt: skip
        assert part in text


def test_small_figures_stand_side_by_side(tmp_path: Path) -> None:
    figures = [Figure(CHART, "1", small=True), Figure(CHART, "2", small=True), Figure(CHART, "3")]
    text = write_findings(record(), [Section("S", figures=figures)], tmp_path).read_text()
    grid = text.split('<div class="grid">')[1]
    assert grid.count("<figure>") == 3
    assert grid.index("2</figcaption></figure></div>") < grid.index("3</figcaption>")


def test_whatever_anyone_typed_is_escaped(tmp_path: Path) -> None:
    rows = [[text, 1.0] for text in HOSTILE]
    sections = [Section(text, [text], tables=[Table(text, [text, "b"], rows)]) for text in HOSTILE]
    found = record(question=HOSTILE[0], answer=HOSTILE[1], command=HOSTILE[0], data=HOSTILE[0])
    text = write_findings(found, sections, tmp_path).read_text()
    body = text.split("<body>")[1]
    assert body.count("<script") == 1, "the page's own"
    assert "<img" not in body


def test_a_report_over_the_limit_keeps_words_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(findings, "LIMIT", 2_000)
    sections = [Section("First", ["words"], [Figure(CHART)], [Table("N", ["a"], [[1.0]])])]
    text = write_findings(record(), sections, tmp_path).read_text()
    assert CHART not in text
    assert "Figures omitted" in text
    assert "words" in text


def test_a_film_shows_its_last_picture_without_a_script() -> None:
    html = film("w is learned", [("step 0", CHART), ("step 1", CHART)])
    assert html.count('class="frame"') == 2
    assert html.count(" hidden=") == 1
    assert html.index('hidden=""') < html.index("step 1")
