"""Numbers from tables: columns found and named, what is missing, what spoils a file."""

from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import RegardError
from regard.lab.data.columns import read_columns
from tests.lab.data.small_files import refusal, write


def written(folder: Path, text: str, name: str = "t.csv") -> Path:
    return write(folder / name, text)


def test_named_columns_in_their_order(tmp_path: Path) -> None:
    path = written(tmp_path, "name,a,b,c\nx,1,2,3\ny,4,5e0,-6\n")
    table = read_columns(path, ["c", "a"], "b")
    assert list(table.names) == ["c", "a", "b"]
    assert table.x.tolist() == [[3, 1], [-6, 4]]
    assert table.y.tolist() == [2, 5]


def test_unnamed_the_last_column_of_numbers_is_predicted(tmp_path: Path) -> None:
    path = written(tmp_path, "name,a,b,word\nx,1,2,p\ny,4,5,q\n")
    table = read_columns(path)
    assert list(table.names) == ["a", "b"]
    assert read_columns(path, y="a").names == ["b", "a"]


def test_without_a_header_columns_have_numbers(tmp_path: Path) -> None:
    table = read_columns(written(tmp_path, "1\t2\n3\t4\n", "t.tsv"), y="1")
    assert table.names == ["2", "1"]
    assert table.values.tolist() == [[2, 1], [4, 3]]


def test_json_lines_and_gzip(tmp_path: Path) -> None:
    rows = '{"a": 1, "b": "2.5"}\n\n{"b": 4, "a": null}\n' + 8 * '{"a": 3, "b": 4}\n'
    path = written(tmp_path, rows, "t.jsonl.gz")
    table = read_columns(path)
    assert len(table.values) == 9
    assert table.missing == 1
    assert table.first == "t.jsonl.gz:3: missing number in column 'a'"


@pytest.mark.parametrize("word", ["", "NA", "nan", "null", "?", " n/a "])
def test_missing_numbers_are_counted_and_left_out(tmp_path: Path, word: str) -> None:
    path = written(tmp_path, f"a,b\n1,2\n3,{word}\n" + "5,6\n" * 8)
    table = read_columns(path)
    assert table.missing == 1
    assert table.first == "t.csv:3: missing number in column 'b'"
    assert table.values[:2].tolist() == [[1, 2], [5, 6]]


def test_too_many_missing_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2\n,4\n" + "5,\n" * 2 + "5,6\n" * 9)
    says = "t.csv:3: missing number in column 'a'; 3 of 13 rows have missing numbers, more than 20%"
    with pytest.raises(RegardError, match=says):
        read_columns(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n3,abc\n", r"t.csv:3: column 'b' must be numeric, not 'abc'"),
        ("a,b\n1,2\n3,1_000\n", r"t.csv:3: column 'b' must be numeric, not '1_000'"),
        ("a,b\n1,2\n3,-inf\n", r"t.csv:3: column 'b' must be numeric, not infinity"),
        ("a,b\n1,2\n1e999,2\n", r"t.csv:3: column 'a' must be numeric, not infinity"),
        ("a,b\n1,2\n3\n", r"t.csv:3: 1 fields, but the first row has 2"),
        ("a,a\n1,2\n", r"t.csv:1: duplicate column name 'a'"),
        ("a,b\n", r"t.csv: contains a header but no rows"),
        ("\n\n", r"t.csv: contains no rows"),
        ("", r"t.csv: the file is empty"),
        ("a,b\nx,y\n", r"t.csv:2: no numeric column is left to predict"),
        ("a,b\nx,1\n", r"t.csv:2: no numeric column to predict 'b' from"),
        ('a,b\n1,"2\n', r"t.csv:2: unclosed quote"),
    ],
)
def test_what_spoils_a_file_is_named_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(RegardError, match=says) as error:
        read_columns(written(tmp_path, text))
    assert "\n" not in str(error.value)


def test_columns_that_cannot_be_meant(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b,c\n1,2,3\n")
    unknown = "t.csv: unknown column 'd'; columns: 'a', 'b', 'c'"
    assert unknown in refusal(read_columns, path, ["a", "d"], "b")
    assert "y=a is also in x=a,b" in refusal(read_columns, path, ["a", "b"], "a")
    assert "names 'a' twice" in refusal(read_columns, path, ["a", "a"], "b")
    assert "no such file" in refusal(read_columns, tmp_path / "none.csv")
    assert "use .csv, .tsv or .jsonl" in refusal(read_columns, written(tmp_path, "", "t.xlsx"))


def test_json_that_is_no_number(tmp_path: Path) -> None:
    for value, says in (("true", "not true"), ("[1]", r"not \[1\]"),
                        ("1" + "0" * 400, "1000.* is larger than 64 bits hold")):  # fmt: skip
        path = written(tmp_path, f'{{"a": 1, "b": 2}}\n{{"a": {value}, "b": 2}}\n', "t.jsonl")
        with pytest.raises(RegardError, match=f"t.jsonl:2: .*{says}"):
            read_columns(path)


def test_numbers_are_those_of_the_file(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(20, 3))
    path = written(
        tmp_path, "a;b;c\n" + "\n".join(";".join(map(repr, map(float, row))) for row in numbers)
    )
    assert np.array_equal(read_columns(path).values, numbers)
