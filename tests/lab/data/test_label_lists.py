"""Several labels in one value: found, told apart, split, and bad input."""

import json

import pytest

from regard.core.errors import RegardError
from regard.lab.data.check import check
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.examples import Example
from regard.lab.data.label_lists import labels_in, separator_of, split, with_lists
from regard.lab.data.sources import load_corpus
from tests.lab.data.small_files import refusal

ANY = Columns(separator="any")


def written(path, labels, header="text,label"):
    rows = (f'film number {i},"{label}"' for i, label in enumerate(labels))
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def refused(data, columns=ANY):
    return refusal(load_corpus, DataSource(data, columns=columns))


@pytest.mark.parametrize(
    ("labels", "separator"),
    [
        (["a", "b", "a;b"], ";"),
        (["a|b", "b|c", "a|c"], "|"),
        (["a, b", "b, c", "c", "a"], ","),
        (["27", "2,27", "2,10,27", "10"], ","),
        (["a", "b", "c", "['a', 'b']"], "[]"),
        (['["a"]', "[]"], "[]"),
        (["Rome, Italy", "Nice", "Oslo"], ""),
        (["Rome, Italy", "Pisa, Italy", "Nice, France"], ""),
        (["1,5", "2,5", "1", "5", "2"], ""),  # decimal commas
        (["yes, sure", "no, sure"], ""),
        (["a", "b", ""], ""),
        ([], ""),
    ],
)
def test_separators_are_found(labels, separator):
    assert separator_of(labels) == separator


def test_values_are_split():
    assert split(" a ;b;; a", ";") == ["a", "b", "a"]
    assert split('["a;b", 3, "c, d"]', "[]") == ["a;b", "3", "c, d"]
    assert split("['a', 'b c']", "[]") == ["a", "b c"]
    assert split("[" * 100_000 + "]", "[]")  # too deep for JSON
    (told,) = with_lists([Example("x", "b;a;b", "r.csv:2")], ";")
    assert (told.label, labels_in(told.label)) == ("a; b", ["a", "b"])
    with pytest.raises(RegardError, match=r"^r.csv:2: the label 'a; b' contains '; '"):
        with_lists([Example("x", '["a; b"]', "r.csv:2")], "[]")


def test_rows_may_have_no_label_and_rare_labels_stay_in_train(tmp_path):
    labels = [["a", "b", "a;b", ""][i % 4] for i in range(200)]
    labels[7:10] = ["rare1", "rare2;a", "rare3"]
    path = written(tmp_path / "r.csv", labels)
    corpus = load_corpus(DataSource(path, columns=ANY))
    assert (corpus.labels, corpus.separator) == (("a", "b", "rare1", "rare2", "rare3"), ";")
    assert len(corpus.train) + len(corpus.test) == 200
    assert any(example.label == "" for example in corpus.test)
    seen = [label for example in corpus.test for label in labels_in(example.label)]
    assert set(seen) <= {"a", "b"}
    test = written(tmp_path / "t.csv", ["a", "c;b"])
    source = DataSource(path, columns=ANY, splits=Splits(test=str(test)))
    assert "t.csv:3: the label 'c' occurs only in test" in refusal(load_corpus, source)


def test_json_lines_have_lists(tmp_path):
    path = tmp_path / "r.jsonl"
    rows = [{"text": f"film {i}", "label": [["a"], ["a", "b"], [], None][i % 4]} for i in range(80)]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    corpus = load_corpus(DataSource(path, columns=ANY))
    assert (corpus.labels, corpus.separator) == (("a", "b"), "[]")
    assert {example.label for example in corpus.train} == {"", "a", "a; b"}


def test_classification_asks_what_lists_are(tmp_path):
    path = written(tmp_path / "r.csv", ["a", "b", "a;b", "b;a"] * 50)
    assert refused(path, Columns()) == (
        f"{path}: the label column looks like several labels separated by ';', as in 100 rows of "
        "200 (first r.csv:4: 'a;b'); learn them with regard train multilabel, or set "
        "separator=none (--separator none for data check) to keep each combination as one label"
    )
    kept = load_corpus(DataSource(path, columns=Columns(separator="none")))
    assert kept.labels == ("a", "a;b", "b", "b;a")


def test_one_label_for_each_text_is_no_list(tmp_path):
    path = written(tmp_path / "r.csv", ["a", "b"] * 50)
    assert "does not look like several labels for each text; set separator=" in refused(path)
    assert refused(written(tmp_path / "s.csv", ["a;b"] * 9), Columns(separator="|")).endswith(
        "train has only the label 'a;b'"
    )


def test_data_check_counts_each_label(tmp_path):
    path = written(tmp_path / "r.csv", ["a", "b", "a;b", ""] * 25)
    findings = check(path)
    assert (findings.separator, findings.problems) == (";", [])
    assert findings.parts[0].labels == {"a": 50, "b": 50}
    assert any(line.startswith("label a ") and "50 (50.0%)" in line for line in findings.lines())
    (remark,) = findings.remarks
    assert "use regard train multilabel separator=';', or --separator none" in remark
    kept = check(DataSource(path, columns=Columns(separator="none")))
    assert kept.parts[0].labels == {"a": 25, "a;b": 25, "b": 25}
    assert check("praise").parts[1].labels.keys() == {
        "acting", "camera", "dialogue", "music", "plot"
    }  # fmt: skip
