"""Data sets by name, and those of a user's own file."""

from pathlib import Path
from typing import Any

import pytest

from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.named import DATA, DataSet, Source, is_own, parts_of, source_of
from regard.lab.data.parallel import load_pairs
from regard.lab.data.sources import load_corpus
from regard.lab.data.tagged import load_tagged
from regard.lab.data.texts import load_texts

ROWS = [(f"text {i} of {i % 7}", "even" if i % 2 == 0 else "odd") for i in range(60)]


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Give a data set the name "mine"."""

    def add(used_for: str, read: Any) -> None:
        monkeypatch.setitem(DATA.rows, "mine", DataSet("mine", used_for, read=read))

    return add


def test_rows_are_split_as_those_of_a_file(named: Any, tmp_path: Path) -> None:
    named("classification", lambda: ROWS)
    corpus = load_corpus("mine")
    assert (len(corpus.train) + len(corpus.test), corpus.labels) == (60, ("even", "odd"))
    file = tmp_path / "mine.csv"
    file.write_text("text,label\n" + "".join(f"{text},{label}\n" for text, label in ROWS))
    of_file = load_corpus(DataSource(file, columns=Columns("text", "label")))
    assert [x.text for x in corpus.test] == [x.text for x in of_file.test]


def test_parts_are_taken_as_they_are(named: Any) -> None:
    parts = {"train": ROWS[:40], "validation": ROWS[40:50], "test": ROWS[50:]}
    named("classification", lambda: parts)
    corpus = load_corpus("mine")
    assert corpus.validation is not None
    assert [x.text for x in corpus.validation] == [text for text, _ in ROWS[40:50]]
    assert [x.source for x in corpus.test][:1] == ["mine/test:1"]


def test_every_kind_of_task_reads_them(named: Any) -> None:
    named("regression", lambda: [(text, i / 7) for i, (text, _) in enumerate(ROWS)])
    assert load_corpus("mine", numbers=True).train[0].label == "0.0"
    named("tagging", lambda: [(f"word {i}", "A B") for i in range(60)])
    assert load_tagged("mine").train[0].label == "A B"
    named("translation", lambda: [(f"a {i}", f"b {i}") for i in range(60)])
    assert load_pairs("mine").train[0].target.startswith("b ")
    named("pretraining", lambda: [f"text {i}" for i in range(60)])
    assert "text 7" in load_texts(DataSource("mine", splits=Splits(validation=0))).train


def refused(read: Any, used_for: str = "classification") -> str:
    DATA.rows["mine"] = DataSet("mine", used_for, read=read)
    load = {"classification": load_corpus, "tagging": load_tagged, "translation": load_pairs}
    try:
        with pytest.raises(RegardError) as caught:
            load[used_for]("mine")
    finally:
        del DATA.rows["mine"]
    return str(caught.value)


def test_what_a_function_may_not_return() -> None:
    assert "mine cannot be read: ZeroDivisionError" in refused(lambda: 1 / 0)
    assert "mine cannot be read: TypeError" in refused(lambda: 3)
    assert "mine has the parts none" in refused(dict)
    assert "mine has the parts train, dev" in refused(lambda: {"train": ROWS, "dev": ROWS})
    assert "mine/train:2: 'b' is not a pair such as ('a text', 'a label')" in refused(
        lambda: [("a", "b"), "b"]
    )
    assert "mine/train:1: the text must be a string, not 3" in refused(lambda: [(3, "b")])
    assert "mine/train:1: the label is empty" in refused(lambda: [("a", None)])
    assert "mine/train:1: 2 words and 1 tags" in refused(lambda: [("a b", "A")], "tagging")
    assert "('a source', 'a target')" in refused(lambda: [("a", 3)], "translation")


def test_data_of_another_task(named: Any) -> None:
    named("pretraining", lambda: ["a"])
    with pytest.raises(RegardError, match="mine has no texts with labels; it is for pretraining"):
        load_corpus("mine")
    named("classification", lambda: ROWS)
    with pytest.raises(RegardError, match="mine has its own parts; remove test"):
        load_corpus(DataSource("mine", splits=Splits(test="b.csv")))


def test_names() -> None:
    assert isinstance(source_of("imdb"), Source)
    assert not is_own("reviews")
    assert is_own("examples/my_data.py:orders")
    assert parts_of("reviews.csv", "classification", "texts") is None
    with pytest.raises(RegardError, match="reviews is not downloaded: nothing to fetch"):
        source_of("reviews")
