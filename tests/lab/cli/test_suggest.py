"""`regard suggest`: the table, the sentences, the files, and mistakes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from regard.lab.data.synthetic import reviews
from regard.lab.studies import suggest
from tests.lab.cli.conftest import Command


@pytest.fixture
def films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(suggest.DEFAULTS, "classification", ("tfidf",))
    path = tmp_path / "films.csv"
    rows = "".join(f'"{example.text}",{example.label}\n' for example in reviews(60, 3))
    path.write_text("text,label\n" + rows)
    return path


def test_what_is_printed_and_written(regard: Command, films: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = regard("suggest", films, "--arms", "nb-svm", "--out", out)
    assert said.status == 0
    lines = said.out.splitlines()
    assert lines[0] == "films.csv: 60 rows, 2 labels; 10 draws of each size"
    assert "48 rows" in lines[2]
    assert "60 (forecast)" in lines[2]
    assert {lines[3].split()[0], lines[4].split()[0]} == {"tfidf", "nb-svm"}
    assert any(line.startswith("With your 60 rows: ") for line in lines)
    assert any(line.startswith("note: no pretrained weights") for line in lines)
    assert lines[-1].startswith(f"next: regard train classification --data {films}")
    found = json.loads((out / "suggestion.json").read_text())
    assert found["verdict"].startswith("With your 60 rows: ")
    page = (out / "report.html").read_text()
    assert found["sentences"][0].split(" (")[0] in page
    assert "regard suggest" in page
    ElementTree.parse(out / "curves.svg")


def test_json_is_one_object(regard: Command, films: Path) -> None:
    said = regard("suggest", films, "--json")
    found = json.loads(said.out)
    assert (found["best"], found["rows"], found["report"]) == ("tfidf", 60, None)
    sizes = [point["rows"] for point in found["arms"][0]["curve"]]
    assert sizes[0] == 24 or sizes[0] == 25


def test_lists_of_labels_are_refused(regard: Command, films: Path) -> None:
    lists = ["x;y", "y;z", "x", "y", "z"] * 12
    films.write_text("text,label\n" + "".join(f"film {i},{x}\n" for i, x in enumerate(lists)))
    said = regard.refused("suggest", films)
    assert "looks like several labels separated by ';'" in said
    assert f"learn them with regard train multilabel --data {films}" in said


def test_compare_draws_the_curves_of_its_arms(regard: Command, films: Path, tmp_path: Path) -> None:
    out, arms = tmp_path / "compared", ("--arms", "nb-svm,tfidf:minimum=3")
    said = regard("compare", "classification", *arms, "--data", films, "--out", out, "--curve")
    assert said.status == 0
    assert said.out.splitlines()[-1] == f"learning curves: {out / 'curves' / 'report.html'}"
    found = json.loads((out / "curves" / "suggestion.json").read_text())
    assert {arm["name"] for arm in found["arms"]} == {"nb-svm", "tfidf:minimum=3"}
    told = regard.refused(
        "compare", "tagging", "--arms", "rnn,transformer", "--out", out, "--curve"
    )
    assert "no task with learning curves is called 'tagging'" in told


def test_mistakes(regard: Command, films: Path) -> None:
    for words, hint in (
        (("none.csv",), "no such file"),
        ((films, "--arms", "tfdif"), "did you mean tfidf"),
        ((films, "--weights", films.parent / "none"), "none"),
        ((films, "--task", "tagging"), "tagging"),
        ((films, "--label", "verdict"), "verdict"),
        ((films, "--open"), "add --out"),
    ):
        assert hint in regard.refused("suggest", *words)
