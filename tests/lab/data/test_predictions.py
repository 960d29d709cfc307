"""Files of predictions: what is read, how rows are paired, and every mistake by file:line."""

import json
from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.data.predictions import align, read_predictions
from tests.lab.data.small_files import refusal


def write(path: Path, *rows: dict[str, Any] | str) -> Path:
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("\n".join(lines) + "\n")
    return path


def test_rows_are_read_from_json_lines_and_tables(tmp_path: Path) -> None:
    chances = {"1": 0.25, "2": 0.75}
    path = write(
        tmp_path / "a.jsonl",
        {"label": 1, "predicted": 2, "probabilities": chances, "id": 7, "group": "film"},
        {"label": "2", "probabilities": chances},
    )
    first, second = read_predictions(path)
    assert (first.label, first.predicted, first.where) == ("1", "2", "a.jsonl:1")
    assert (first.keys, first.group, first.probabilities) == (("7", "", ""), "film", chances)
    assert second.predicted == "2", "the most probable label"
    table = write(tmp_path / "a.csv", "predicted,Label,text", 'no,yes,"a, b"')
    (row,) = read_predictions(table)
    assert (row.label, row.predicted, row.keys) == ("yes", "no", ("", "", "a, b"))
    pairs = write(tmp_path / "a.tsv", "source\ttarget\tpredicted", "ein Satz\ta text\ta text")
    (row,) = read_predictions(pairs)
    assert (row.label, row.predicted, row.keys) == ("a text", "a text", ("", "ein Satz", ""))


GOOD = {"label": "a", "predicted": "a"}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"predicted": "a"}, "a.jsonl:2: missing the true label ('label'); fields: 'predicted'"),
        ({"label": "a"}, "a.jsonl:2: missing the prediction ('predicted')"),
        ({"label": ["a"], "predicted": "a"}, "'label' must be a string or a number"),
        ({"label": None, "predicted": "a"}, "'label' must be a string or a number"),
        ('{"label": NaN, "predicted": "a"}', "NaN is not a finite number"),
        ({**GOOD, "probabilities": [0.5]}, "must be an object, {label: probability}, not [0.5]"),
        (
            '{"label": "a", "predicted": "a", "probabilities": {"a": NaN}}',
            "NaN is not a finite number",
        ),
        ({**GOOD, "probabilities": {"a": 1.5}}, "from 0 to 1, not 1.5"),
        ({**GOOD, "probabilities": {"a": 0.5}}, "sum to 0.500, not to 1"),
        ({**GOOD, "probabilities": {"b": 1.0}}, "'probabilities' has no entry for the label 'a'"),
        ("not json", "a.jsonl:2: not JSON"),
        ("[1]", "a.jsonl:2: not a JSON object"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: dict[str, Any] | str, says: str) -> None:
    assert says in refusal(read_predictions, write(tmp_path / "a.jsonl", GOOD, row))


def test_bad_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no such file" in refusal(read_predictions, tmp_path / "none.jsonl")
    monkeypatch.setattr("regard.lab.data.predictions.MOST", 60)
    for name, rows, says in (
        ("a.txt", ["x"], "use .csv, .tsv or .jsonl"),
        ("b.csv", ["label,predicted"], "contains no predictions"),
        ("c.csv", ["label,predicted", "a"], "c.csv:2: 1 fields, but the first row has 2"),
        ("d.csv", ["label,said", "a,b"], "d.csv:2: missing the prediction"),
        ("f.csv", ["label,predicted", ",a"], "f.csv:2: the true label ('label') is empty"),
        ("e.jsonl", [GOOD] * 3, "e.jsonl:2: the file is larger than 60 bytes"),
    ):
        assert says in refusal(read_predictions, write(tmp_path / name, *rows))


def test_rows_are_paired_by_what_tells_them_apart(tmp_path: Path) -> None:
    rows = [{"label": x, "predicted": "a", "id": i} for i, x in enumerate("abc")]
    first = read_predictions(write(tmp_path / "a.jsonl", *rows))
    other = read_predictions(write(tmp_path / "b.jsonl", *reversed(rows)))
    assert [row.label for row in align(other, first, "b", "a")] == ["a", "b", "c"]
    bare = [{k: v for k, v in row.items() if k != "id"} for row in rows]
    plain = read_predictions(write(tmp_path / "c.jsonl", *bare))
    assert align(plain, first, "c", "a") == plain, "line by line"
    turned = read_predictions(write(tmp_path / "c.jsonl", *bare[1:], bare[0]))
    with pytest.raises(RegardError, match=r"c.jsonl:1: the label is 'b', but 'a' in a.jsonl:1"):
        align(turned, first, "c", "a")
    assert "c has 2 predictions, but a has 3" in refusal(align, plain[:2], first, "c", "a")
    twice = [{"label": "x", "predicted": "x", "text": text} for text in ("one", "one", "two")]
    repeated = read_predictions(write(tmp_path / "d.jsonl", *twice))
    assert align(repeated, repeated, "d", "d") == repeated
    with pytest.raises(RegardError, match=r"d.jsonl:3: the text is 'two', but 'one' in d.jsonl:1"):
        align(repeated[::-1], repeated, "e", "d")
    with pytest.raises(RegardError, match=r"b has no test example with id '0', but a does"):
        align(other[:2], first, "b", "a")
    with pytest.raises(RegardError, match=r"a has no test example with id '2', but b does"):
        align(other, first[:2], "b", "a")
