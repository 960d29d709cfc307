import json
from pathlib import Path

import pytest

from benchmarks.unseen import find, main, split
from regard.core.errors import RegardError
from regard.lab.data.files import read_examples
from regard.lab.data.synthetic import reviews


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "sets"
    folder.mkdir()
    rows = [f"{example.text}\t{example.label}" for example in reviews(90, 3)]
    for name in ("cr", "trec-train"):
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    (folder / "trec-test.tsv").write_text("\n".join(["text\tlabel", *rows[:20]]) + "\n")
    return folder


def test_folds_hold_every_row_once(data: Path, tmp_path: Path) -> None:
    folds = split("cr", data, tmp_path / "out", 4)
    tested = [row.text for _, test in folds for row in read_examples(test)]
    assert sorted(tested) == sorted(row.text for row in read_examples(data / "cr.tsv"))
    for train, test in folds:
        assert len(read_examples(train)) + len(read_examples(test)) == 90
    assert split("cr", data, tmp_path / "out", 4) == folds  # what is there stays
    ((train, test),) = split("trec", data, tmp_path / "trec", 4)
    assert (len(read_examples(train)), len(read_examples(test))) == (90, 20)


def test_a_missing_set_is_one_line(data: Path) -> None:
    with pytest.raises(RegardError, match=r"holds no subj.tsv; give the folder"):
        find(data, "subj")


def test_the_table_is_of_every_fold_and_goes_on_where_it_was(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--data", str(data), "--out", str(tmp_path / "out"), "--only", "cr", "--folds", "2"]
    words += ["--seeds", "1", "--arms", "cnn", "nb-svm", "--json", str(tmp_path / "rows.json")]
    small = ["width=8", "filters=4", "steps=3", "batch_size=16"]
    assert main([*words, "--workers", "2", *small]) == 1  # three steps reach no published figure
    said = capsys.readouterr().out
    assert "4 of 4: cr, fold" in said
    found = json.loads((tmp_path / "rows.json").read_text())
    assert [(row["arm"], row["runs"]) for row in found["rows"]] == [("cnn", 2), ("nb-svm", 2)]
    assert found["rows"][0]["published"] == 0.798
    assert main([*words, *small]) == 1
    assert " of 4:" not in capsys.readouterr().out
