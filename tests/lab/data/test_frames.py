"""DataFrames as data."""

import datetime

import pandas as pd
import pytest

from regard.core.errors import RegardError
from regard.lab.cli.calls import on_disk
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.files import read
from regard.lab.data.frames import Frame
from regard.lab.data.sources import load_corpus

DAY = datetime.datetime(2026, 1, 2)


def frame(rows: int = 40) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "text": [f"text number {row}" for row in range(rows)],
            "label": [row % 2 for row in range(rows)],
            "price": [None if row == 3 else row / 2 for row in range(rows)],
            "day": [DAY] * rows,
        }
    )


def test_rows_are_those_of_a_file() -> None:
    corpus = load_corpus(DataSource(frame(), columns=Columns(features="price,day")))
    rows = {x.text.texts[0]: x for x in corpus.train + corpus.test}
    assert len(rows) == 40
    assert (corpus.name, corpus.labels) == ("DataFrame", ("0", "1"))
    one = rows["text number 5"]
    assert (one.label, one.source) == ("1", "row 5")
    assert one.text.columns == {"price": "2.5", "day": "2026-01-02 00:00:00"}
    assert rows["text number 3"].text.columns["price"] == ""


def test_pyarrow_and_pandas_are_read_alike() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    here = frame()
    one = load_corpus(here)
    other = load_corpus(pyarrow.Table.from_pandas(here))
    assert one.fingerprint == other.fingerprint


def test_a_command_reads_the_same_rows_from_a_file(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("regard.lab.data.frames.cache", lambda: tmp_path)
    here = frame().assign(picture=[b"\xff"] * 40)  # a column that nothing reads
    settings = on_disk({"data": here, "test": here.head(4), "width": 8})
    assert settings["width"] == 8
    assert settings["data"] == on_disk({"data": here.copy()})["data"]
    source = DataSource(settings["data"], splits=Splits(test=str(settings["test"])))
    corpus = load_corpus(source)
    assert (len(corpus.train), len(corpus.test)) == (36, 4)


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (pd.DataFrame({"text": [], "label": []}), "DataFrame: contains no rows"),
        (pd.DataFrame({"text": ["a"], 3: ["x"]}), "the column name 3 must be a string"),
        (pd.DataFrame({"words": ["a"], "label": ["x"]}), "row 0: cannot find the text column"),
        (pd.DataFrame({"text": ["a", 7.5], "label": ["x", "y"]}), "row 1: the text must be a str"),
    ],
)
def test_bad_frames_are_refused_in_a_line(bad: pd.DataFrame, says: str) -> None:
    with pytest.raises(RegardError, match=says) as error:
        read(Frame(bad))
    assert "\n" not in str(error.value)
