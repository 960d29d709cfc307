"""Rows of tables: which sign divides them, what quotes mean, and empty rows at the end."""

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.data.columns import read_columns
from regard.lab.data.data_source import Columns
from regard.lab.data.delimited import table_rows
from regard.lab.data.files import read
from regard.lab.data.guess import guess
from regard.lab.data.lines import Lines, open_binary
from regard.lab.data.pair_files import read_pairs
from regard.lab.data.predictions import read_predictions
from regard.lab.data.text_rows import text_rows
from tests.lab.data.small_files import write


def rows(path: Path, text: str, **how: Any) -> list[Any]:
    path.write_bytes(text.encode())
    with open_binary(path) as file:
        return [fields for _, fields in table_rows(Lines(file, "x"), path.suffix[1:], **how)]


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ('id;"review, full";label\n1;great;pos\n2;"bad; sad";neg\n', ["1", "great", "pos"]),
        ("1;Great, really good\n0;Bad, boring\n", ["0", "Bad, boring"]),
        ("good; nice,pos\nbad; awful,neg\n", ["bad; awful", "neg"]),
        ("text\tlabel, kind\ngood, fine\tpos\n", ["good, fine", "pos"]),
        ("text|label\ngood, fine|pos\nbad; sad|neg\n", ["good, fine", "pos"]),
        ("Action|Comedy,1\nDrama|Horror,0\n", ["Drama|Horror", "0"]),
        ("Temp, C|Druck, bar\n21,5|1,013\n22,5|1,020\n", ["21,5", "1,013"]),
        ("1,5;2,25\n2,5;3,25\n", ["2,5", "3,25"]),
        ("1,5\t2,25\n2,5\t3,25\n", ["2,5", "3,25"]),
        ("text, label\ngood, pos\n", ["good", " pos"]),
        ('text\n"good; fine, really"\nbad\n', ["good; fine, really"]),
        ("text,label\na,b\n" + "c;d;e,f\n" * 9, ["a", "b"]),
        ("text;label\na;b\n" + "c, d;f;g\n" * 9, ["a", "b"]),
        ("\n\nde;en\nein Hund;a dog\n", ["ein Hund", "a dog"]),
        ("sep=;\nx,y;z\n1,2;3\n", ["1,2", "3"]),
        ('"sep=|"\r\nx|y\r\n1|2\r\n', ["1", "2"]),
        ("\ufeffSEP=\t\r\nx\ty\r\n1\t2\r\n", ["1", "2"]),
        ("x;y\n" + "1;2\n" * 200 + '"3,4', ["1", "2"]),
    ],
)
def test_the_delimiter_divides_most_rows_alike(tmp_path: Path, text: str, second: Any) -> None:
    assert rows(tmp_path / "x.csv", text)[1] == second


def test_every_reader_of_tables_finds_the_delimiter(tmp_path: Path) -> None:
    def put(text: str) -> Path:
        return write(tmp_path / "x.csv", text)

    path = put("sep=;\ntext, all;label\nWell, good;pos\nWell, bad;neg\n")
    assert [(x.text, x.source) for x in read(path, Columns("text, all")).examples] == [
        ("Well, good", "x.csv:3"),
        ("Well, bad", "x.csv:4"),
    ]
    assert guess(str(path)).settings == {"text": "text, all", "label": "label"}
    assert list(text_rows(path, "text, all")) == ["Well, good", "Well, bad"]
    (pair, _) = read_pairs(put("source;target\nJa, gut;Yes, good\nNein, nie;No, never\n"))
    assert (pair.source, pair.target) == ("Ja, gut", "Yes, good")
    (row, _) = read_predictions(put("label;predicted;text\na;b;Well, good\nb;b;Well, bad\n"))
    assert (row.predicted, row.keys[2]) == ("b", "Well, good")
    assert read_columns(put("a, b|c, d\n1|2\n3|4\n")).names == ["a, b", "c, d"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (  # as pandas writes it
            'text\tlabel\n"one\ntwo"\tpos\n"a\tb"\tneg\n"say ""x"""\tneg\n',
            [["text", "label"], ["one\ntwo", "pos"], ["a\tb", "neg"], ['say "x"', "neg"]],
        ),
        ('neg\tbad\npos\t"one\n\n""two"""\n', [["neg", "bad"], ["pos", 'one\n\n"two"']]),
        ('text\n"one\r\ntwo"\nother\n', [["text"], ["one\r\ntwo"], ["other"]]),
        (  # quotes as text
            '"Go\tx\nhe said "no"\ty\n"Go," he said\tz\nno"\tx\n',
            [['"Go', "x"], ['he said "no"', "y"], ['"Go," he said', "z"], ['no"', "x"]],
        ),
        ('"Go," he said\n"Stop\nhere"\n', [['"Go," he said'], ['"Stop'], ['here"']]),
        ('"Stop\nit "now"\nhere"\n', [['"Stop'], ['it "now"'], ['here"']]),
        ('text\na\n""\n', [["text"], ["a"], [""]]),
    ],
)
def test_quotes_of_tab_separated_files(tmp_path: Path, text: str, expected: Any) -> None:
    assert rows(tmp_path / "x.tsv", text) == expected


def test_a_line_end_in_quotes_of_pairs_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'source\ttarget\n"Ja."\tYes.\n"Gut,\nja."\tGood, yes.\n')
    with pytest.raises(RegardError, match=r"x\.tsv:3: a field in quotes contains a line end"):
        read_pairs(path)


def test_empty_rows_at_the_end_are_omitted(tmp_path: Path) -> None:
    texts = "text,label\n" + "good,pos\n,\nbad,neg\n" + ",\n" * 3 + "\n ,\t\n"
    for blank in (False, True):
        filled = [["text", "label"], ["good", "pos"], ["", ""], ["bad", "neg"]]
        assert rows(tmp_path / "x.csv", texts, blank=blank) == filled
    assert rows(tmp_path / "x.csv", 'text\n""\n\n""\n', blank=True) == [["text"], [""], [], [""]]
    (tmp_path / "n.csv").write_text("x,y\n1,2\n3,4\n" + ",\n" * 10)
    assert read_columns(tmp_path / "n.csv").missing == 0
    (tmp_path / "t.tsv").write_text("text\tlabel\ngood\tpos\nbad\tneg\n" + "\t\n" * 10)
    assert not read(tmp_path / "t.tsv").bad
    assert list(text_rows(tmp_path / "t.tsv", empty=True)) == ["good", "bad"]
