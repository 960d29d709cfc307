"""Texts without labels: by name and from files, split by what they say."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data import biographies, pydoc
from regard.lab.data.birthplaces import counted
from regard.lab.data.data_source import Columns, DataSource, Limits, Splits
from regard.lab.data.text_rows import passages
from regard.lab.data.texts import labelled_texts, load_texts, read_texts
from tests.lab.data import small_files
from tests.lab.data.archives import REVIEWS, archive, folder


def write(path: Path, content: str | bytes) -> str:
    return str(small_files.write(path, content))


def cut(path: str) -> list[str]:
    return list(passages(Path(path)))


def test_a_text_file_is_cut_at_empty_lines_or_else_at_every_line(tmp_path):
    assert cut(write(tmp_path / "a.txt", "one\ntwo\n\n \nthree\n")) == ["one\ntwo", "three"]
    assert cut(write(tmp_path / "b.txt.gz", "one\r\ntwo\n")) == ["one", "two"]
    assert cut(write(tmp_path / "c.txt", "one\ntwo\n\n \n")) == ["one", "two"]


def test_empty_lines_at_the_ends_are_none_between(tmp_path):
    assert cut(write(tmp_path / "d.txt", "\n \none\ntwo\n\n")) == ["one", "two"]


def test_a_column_by_its_number_is_of_a_table_without_a_header(tmp_path):
    bare = write(tmp_path / "n.csv", '"a film, good",1\nbad,0\n')
    assert read_texts(DataSource(bare, columns=Columns("1")))[0] == ["a film, good", "bad"]
    assert labelled_texts(DataSource(bare, columns=Columns("1"))) == {"a film, good", "bad"}
    with pytest.raises(RegardError, match="unknown column '3'"):
        read_texts(DataSource(bare, columns=Columns("3")))
    titled = write(tmp_path / "t.csv", "0,1\npos,a good film\nneg,a bad one\n")
    assert read_texts(DataSource(titled, columns=Columns("1")))[0] == [
        "a good film",
        "a bad one",
    ], "a name before a number"
    usual = write(tmp_path / "u.csv", "id,text,verdict\n1,a good film,pos\n")
    assert read_texts(DataSource(usual, columns=Columns("2")))[0] == ["a good film"], (
        "what is always called text is a name"
    )


def test_one_column_of_a_table_or_of_json_lines(tmp_path):
    rows = [{"id": 1, "text": "a"}, {"id": 2, "text": " "}, {"id": 3, "text": "c"}]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    assert read_texts(write(tmp_path / "a.jsonl", lines))[0] == ["a", "c"]
    table = 'label,Review\n1,"x, y"\n0,z\n'
    assert read_texts(write(tmp_path / "a.csv", table))[0] == ["x, y", "z"]
    labels = DataSource(write(tmp_path / "b.csv", table), columns=Columns("label"))
    assert read_texts(labels)[0] == ["1", "0"]
    assert read_texts(write(tmp_path / "a.tsv", "first\nsecond\n"))[0] == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", '{"t": 1}\n', "a.jsonl:1: cannot find the text column; columns: 't'"),
        ("a.jsonl", '{"text": 1}\n', "a.jsonl:1: 'text' must be a string, not 1"),
        ("a.jsonl", "no\n", "a.jsonl:1: not JSON"),
        ("a.csv", "text,b\nx,1\n", "unknown column 'body'"),
        ("a.txt", "", "is empty"),
        ("a.txt", b"fine\nb\xe9d\n", r"a\.txt:2: not UTF-8"),
        ("a.pdf", "x", "use .csv, .tsv or .jsonl"),
    ],
)
def test_what_is_wrong_is_said_by_file_and_line(tmp_path, name, content, says):
    path = write(tmp_path / name, content)
    with pytest.raises(RegardError, match=says.replace("(", r"\(")):
        read_texts(DataSource(path, columns=Columns("body" if "body" in says else "")))


def test_splits_share_nothing_and_are_stable(tmp_path):
    path = write(tmp_path / "a.txt", "\n".join(f"line {i}" for i in range(2_000)))
    given = DataSource(path, splits=Splits(validation=0.1))
    corpus = load_texts(given)
    parts = [set(corpus.train), set(corpus.validation), set(corpus.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 2_000
    assert 140 < len(corpus.validation) < 250
    assert 60 < len(corpus.test) < 140
    fewer = write(tmp_path / "b.txt", "\n".join(f"line {i}" for i in range(1_000)))
    assert set(load_texts(given.at(fewer)).test) <= parts[2]
    assert load_texts(given).fingerprint == corpus.fingerprint
    other = load_texts(replace(given, splits=Splits(validation=0.1, seed=1)))
    assert other.fingerprint != corpus.fingerprint


def test_nothing_held_out_is_the_whole_three_times():
    corpus = load_texts(DataSource("biographies", splits=Splits(validation=0)))
    assert corpus.train == corpus.validation == corpus.test == biographies.passages()
    assert counted(corpus.train) == "data has 24267 characters, 49 unique."


def test_too_few_documents(tmp_path):
    with pytest.raises(RegardError, match=r"2 documents are too few .* validation=0"):
        load_texts(write(tmp_path / "a.txt", "one\ntwo\n"))


def test_some_of_the_documents():
    corpus = load_texts(
        DataSource("biographies", splits=Splits(validation=0), limits=Limits(examples=20))
    )
    assert len(corpus.train) == 20
    assert corpus.notes == ("20 documents used, chosen by seed",)
    assert corpus.train == sorted(corpus.train, key=biographies.passages().index)


def test_a_name_that_is_none():
    with pytest.raises(RegardError, match="or file is called 'pydocs'; did you mean pydoc"):
        load_texts("pydocs")


def test_reviews_hold_no_review_of_the_labelled_test():
    from regard.lab.data.sources import load_corpus

    test = {example.text for example in load_corpus("reviews").test}
    texts = read_texts("reviews")[0]
    assert len(texts) > 15_000
    assert not test & set(texts)


def test_texts_that_a_model_will_be_judged_by_are_left_out(tmp_path):
    texts = write(tmp_path / "a.txt", "One film\ntwo\nthree\nfour\n")
    table = write(tmp_path / "few.csv", "says,label\none  FILM,1\nfour,0\nfive,0\n")
    whole = DataSource(texts, splits=Splits(validation=0))
    corpus = load_texts(replace(whole, without=DataSource(table, columns=Columns("says"))))
    assert corpus.train == ["two", "three"]
    assert corpus.notes == ("2 texts excluded that also occur in few.csv",)
    with pytest.raises(RegardError, match=r"few\.csv:1: cannot find the text column"):
        load_texts(replace(whole, without=DataSource(table)))
    with pytest.raises(RegardError, match=r"none\.csv"):
        load_texts(replace(whole, without=DataSource(tmp_path / "none.csv")))


def test_the_test_of_data_by_name_is_left_out(tmp_path):
    reviews(tmp_path, "train", ["good", "bad"], 0)
    reviews(tmp_path, "test", ["in  test", "other"], 1)
    texts = write(tmp_path / "a.txt", "In test\ngood\nnew\n")
    tested = DataSource("imdb", data_dir=tmp_path)
    corpus = load_texts(
        DataSource(texts, data_dir=tmp_path, splits=Splits(validation=0), without=tested)
    )
    assert corpus.train == ["good", "new"]


def test_the_test_of_a_folder_of_reviews_is_left_out(tmp_path):
    places = ("train/pos", "train/neg", "test/pos", "test/neg")
    films = {f"{place}/0_9": f"film {name}" for place, name in zip(places, "abcd", strict=True)}
    tested = DataSource(folder(tmp_path / "aclImdb", films))
    texts = write(tmp_path / "a.txt", "film a\nfilm c\nFILM  d\n")
    corpus = load_texts(DataSource(texts, splits=Splits(validation=0), without=tested))
    assert corpus.train == ["film a"]


def test_pydoc_is_english_prose_without_copies():
    documents = pydoc.documents()
    paragraphs = [x.strip("\n") for text in documents for x in text.split("\n\n")]
    assert len(set(paragraphs)) > 0.98 * len(paragraphs)
    assert sum(map(len, documents)) > 250_000
    assert "statement" in " ".join(documents)


def reviews(folder: Path, name: str, texts: list[str], label: int | None) -> None:
    rows = [
        {"id": f"{name}/{i}", "text": text, "movie": str(i)}
        | ({} if label is None else {"label": label})
        for i, text in enumerate(texts)
    ]
    write(folder / f"{name}.jsonl.gz", "".join(json.dumps(row) + "\n" for row in rows))


def test_imdb_without_what_stands_in_test(tmp_path):
    reviews(tmp_path, "train", ["good", "bad", "In test"], 0)
    reviews(tmp_path, "test", ["in  test", "other"], 1)
    reviews(tmp_path, "unsup", ["free", "OTHER"], None)
    texts, notes = read_texts(DataSource("imdb", data_dir=tmp_path))
    assert texts == ["good", "bad", "free"]
    assert notes == ["2 texts excluded that also occur in test"]


def test_unlabelled_reviews_come_by_number_from_every_shape(tmp_path):
    free = {f"train/unsup/{i}_0": f"review {i}" for i in (0, 1, 10, 11, 2)}
    place = folder(tmp_path / "folder" / "aclImdb", REVIEWS | free)
    packed = archive(tmp_path / "aclImdb_v1.tar.gz", REVIEWS | free)
    found = [
        read_texts(DataSource("imdb", data_dir=where))[0] for where in (place.parent, packed.parent)
    ]
    assert found[0] == found[1]
    assert found[0][-5:] == [f"review {i}" for i in (0, 1, 2, 10, 11)]


def test_a_comma_that_is_not_quoted_cuts_no_text(tmp_path):
    for header, row in (("text", "Hello, world"), ("id,text", "1,Good, but long")):
        path = write(tmp_path / "a.csv", f"{header}\n{row}\n")
        with pytest.raises(
            RegardError, match=r"a\.csv:2: \d fields, but the first row has \d; quote"
        ):
            read_texts(path)
