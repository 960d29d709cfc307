"""Titles of columns: as written, then in another case; no title twice, in any reader."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from regard.lab.data.check import check
from regard.lab.data.columns import read_columns
from regard.lab.data.data_source import Columns, DataSource
from regard.lab.data.files import read
from regard.lab.data.guess import guess
from regard.lab.data.pair_files import read_pairs
from regard.lab.data.predictions import read_predictions
from regard.lab.data.text_rows import text_rows
from tests.lab.data.small_files import refusal


def put(path: Path, header: str, *rows: str) -> Path:
    """Write a table of these comma-separated rows in the format of the file's name."""
    cells = [row.split(",") for row in (header, *rows)]
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = list(zip(*cells[1:], strict=True))
        arrays = [pyarrow.array(column) for column in columns]
        parquet.write_table(pyarrow.Table.from_arrays(arrays, names=cells[0]), path)
    elif path.suffix == ".jsonl":
        pairs = (zip(cells[0], row, strict=True) for row in cells[1:])
        lines = (", ".join(f"{json.dumps(a)}: {json.dumps(b)}" for a, b in row) for row in pairs)
        path.write_text("".join(f"{{{line}}}\n" for line in lines))
    else:
        sign = "\t" if path.suffix in (".tsv", ".txt") else ","
        path.write_text("".join(sign.join(row) + "\n" for row in cells))
    return path


READERS: list[tuple[str, Callable[[Path], Any], tuple[str, ...]]] = [
    (
        "text,label,text",
        read,
        (".csv", ".tsv", ".txt", ".jsonl", ".parquet"),
    ),
    (
        "text,label,label",
        lambda path: read(path, Columns(label="LABEL")),
        (".csv", ".jsonl", ".parquet"),
    ),
    ("text,label,note,note", check, (".csv", ".tsv", ".parquet")),
    ("text,label,label", lambda path: guess(str(path)), (".csv", ".tsv", ".jsonl", ".parquet")),
    ("a,b,a", lambda path: guess(str(path)), (".csv",)),
    ("Text,TEXT,label", read, (".csv", ".tsv", ".jsonl", ".parquet")),
    ("text,text", lambda path: list(text_rows(path)), (".csv", ".tsv", ".jsonl")),
    ("source,target,source", read_pairs, (".csv", ".tsv", ".txt", ".jsonl")),
    ("en,de,en", read_pairs, (".csv", ".tsv", ".jsonl")),
    (
        "SRC,Src,tgt",
        lambda path: read_pairs(DataSource(path, columns=Columns("src", "tgt"))),
        (".csv",),
    ),
    ("label,predicted,predicted", read_predictions, (".csv", ".tsv", ".jsonl")),
    ("Label,LABEL,predicted", read_predictions, (".csv", ".tsv", ".jsonl")),
    ("x,y,x", read_columns, (".csv", ".tsv", ".jsonl")),
    ("X,x,x,y", lambda path: read_columns(path, ["X"], "y"), (".csv",)),
]


@pytest.mark.parametrize("case", READERS)
def test_a_title_twice_is_refused(tmp_path: Path, case: Any) -> None:
    header, reads, endings = case
    width = len(header.split(","))
    rows = [",".join(str(column + 3 * row) for column in range(width)) for row in range(4)]
    for ending in endings:
        path = put(tmp_path / f"x{ending}", header, *rows)
        says = refusal(reads, path)
        assert any(
            why in says
            for why in ("duplicate column name", "occurs twice", "in case only", "cannot tell")
        ), ending


def test_a_title_as_written_comes_before_one_in_another_case(tmp_path: Path) -> None:
    for ending in (".csv", ".tsv", ".jsonl", ".parquet"):
        path = put(tmp_path / f"x{ending}", "Text,text,LABEL", "raw,clean,a", "ruin,clear,b")
        for name, texts in (("Text", ["raw", "ruin"]), ("text", ["clean", "clear"])):
            found = read(path, Columns(text=name, label="label"))
            assert [(x.text, x.label) for x in found.examples] == [*zip(texts, "ab", strict=True)]
            other = {"Text": "text", "text": "Text"}[name]
            assert found.remarks == [
                f"the column {name!r} is read, not {other!r}, which differs in case only"
            ]
            assert guess(str(path), text=name, label="label").settings == {
                "text": name,
                "label": "LABEL",
            }
            if ending != ".parquet":
                assert list(text_rows(path, name)) == texts
        assert [x.text for x in read(path).examples] == ["clean", "clear"]
    pairs = put(tmp_path / "p.csv", "De,de,EN", "x,ja,yes")
    (pair,) = read_pairs(DataSource(pairs, columns=Columns("de", "en")))
    assert (pair.source, pair.target) == ("ja", "yes")
    (row,) = read_predictions(put(tmp_path / "r.jsonl", "Label,label,PREDICTED", "x,y,z"))
    assert (row.label, row.predicted) == ("y", "z")
    table = read_columns(put(tmp_path / "c.csv", "X,x,Y", "1,2,3"), ["x"], "y")
    assert (table.names, table.values.tolist()) == (["x", "Y"], [[2, 3]])


def test_columns_without_a_title_may_be_several(tmp_path: Path) -> None:
    spam = put(tmp_path / "s.csv", "v1,v2,,,", "ham,hello,,,", "spam,buy,,,")
    assert [x.text for x in read(spam, Columns("v2", "v1")).examples] == ["hello", "buy"]
    rows = [f"{i},a longer text {i},{'yes' if i % 2 else 'no'}" for i in range(8)]
    for header, settings in (
        (",,kind", {"text": "2", "label": "kind"}),
        (",t,0", {"text": "t", "label": "3"}),
    ):
        path = put(tmp_path / "g.csv", header, *rows)
        assert guess(str(path)).settings == settings
        found = read(path, Columns(**settings)).examples
        assert [(x.text, x.label) for x in found][-1] == ("a longer text 7", "yes")
    table = put(tmp_path / "c.csv", ",x,y", "0,1,2", "1,3,4")  # row numbers, as pandas writes them
    assert read_columns(table).names == ["x", "y"]
    assert read_columns(table, ["1"], "2").values.tolist() == [[0, 1], [1, 3]]


def test_columns_by_number_may_have_any_title(tmp_path: Path) -> None:
    path = put(tmp_path / "x.csv", "text,label,text", "raw,a,clean", "ruin,b,clear")
    assert [x.text for x in read(path, Columns("3", "2")).examples] == ["clean", "clear"]
    pairs = put(tmp_path / "p.csv", "source,target,source", "x,yes,ja")
    (pair,) = read_pairs(DataSource(pairs, columns=Columns("3", "2")))
    assert (pair.source, pair.target) == ("ja", "yes")
