import gzip
import os

import pytest

from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.examples import Remark
from regard.lab.data.files import read, read_examples, scan
from regard.lab.data.sources import load_corpus
from tests.lab.data.small_files import refused, write


def put(folder, **files):
    """Files of a folder by name, with - for / and . before the ending."""
    for name, content in files.items():
        path = folder / (name.replace("__", "/") + ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return folder


def told(rows):
    return [(row.text, row.label, row.source) for row in rows]


FILES = [
    ("dull", "neg", "neg.txt:1"),
    ("a poor film", "neg", "neg.txt:3"),
    ("a great film", "pos", "pos.txt:1"),
]


def test_a_file_of_a_folder_is_a_class(tmp_path):
    put(tmp_path, pos="a great film\n", neg="\ufeffdull\n\na poor film")
    assert told(read_examples(tmp_path)) == FILES
    named = f"{tmp_path / 'pos.txt'}, {tmp_path / 'neg.txt'}"
    assert told(read_examples(named)) == FILES
    (tmp_path / "pos.txt").unlink()
    (tmp_path / "pos.txt.gz").write_bytes(gzip.compress(b"a great film\n"))
    assert [(e.text, e.label) for e in read_examples(tmp_path)] == [row[:2] for row in FILES]


def test_a_folder_of_a_folder_is_a_class(tmp_path):
    put(tmp_path, neg__10="dull", neg__2="a poor\nfilm\n", pos__a="a great film")
    (tmp_path / "neg" / "notes.md").write_text("x")
    (tmp_path / ".DS_Store").write_text("x")
    (tmp_path / "README.txt").write_text("what this is")
    found = read(tmp_path)
    assert told(found.examples) == [
        ("a poor\nfilm", "neg", "neg/2.txt"),
        ("dull", "neg", "neg/10.txt"),
        ("a great film", "pos", "pos/a.txt"),
    ]
    says = "2 files skipped, not .txt"
    assert found.remarks == [says]
    assert told(read_examples(f"{tmp_path / 'neg'},{tmp_path / 'pos'}")) == told(found.examples)


def test_a_folder_is_a_data_set_with_a_test_folder(tmp_path):
    for part, count in (("a", 40), ("b", 9)):
        for label in ("neg", "pos"):
            texts = "\n".join(f"{label} {part} {i}" for i in range(count))
            put(tmp_path / part, **{label: texts})
    corpus = load_corpus(DataSource(tmp_path / "a", splits=Splits(test=str(tmp_path / "b"))))
    assert (len(corpus.train), len(corpus.test), corpus.labels) == (80, 18, ("neg", "pos"))


def test_empty_and_unreadable_texts_are_bad_rows(tmp_path):
    put(tmp_path, neg__1="dull", neg__2="", pos__1=" \n")
    (tmp_path / "pos" / "2.txt").write_bytes(b"caf\xe9")
    (tmp_path / "readme").write_text("")
    rows = list(scan(tmp_path))
    assert [(row.source, row.empty) for row in rows[1:-1]] == [
        ("neg/2.txt", True),
        ("pos/1.txt", True),
        ("pos/2.txt", False),
    ]
    assert "not UTF-8 (byte 0xe9 at 4)" in rows[-2].why
    assert isinstance(rows[-1], Remark)


def test_what_folders_do_not_say(tmp_path):
    put(tmp_path, both__neg="dull", both__pos__1="great")
    assert "contains texts both in files (neg.txt) and in folders (pos)" in refused(
        tmp_path / "both"
    )
    put(tmp_path, parts__train="1\ta", parts__test="0\tb", parts__dev="0\tc")
    parts = tmp_path / "parts"
    assert refused(parts) == (
        f"{parts}: contains parts of a data set; name them: data={parts / 'train.txt'} "
        f"test={parts / 'test.txt'} validation={parts / 'dev.txt'}"
    )
    put(tmp_path, named__neg="dull", named__pos="good")
    columns = refused(tmp_path / "named", text="1")
    assert "no columns" in columns
    twice = refused(f"{tmp_path / 'named' / 'neg.txt'},{tmp_path / 'both' / 'neg.txt'}")
    assert "have the same label, 'neg'" in twice
    none = refused(f"{tmp_path / 'named' / 'neg.txt'},{tmp_path / 'none.txt'}")
    assert "none.txt: no such file" in none
    assert "each, one text per line, and end in .txt; a table" in refused("a.csv,b.csv")
    (tmp_path / "bare").mkdir()
    assert "bare: contains no .txt files" in refused(f"{tmp_path / 'bare'},{tmp_path / 'named'}")


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    put(tmp_path, secret="root", data__neg="dull", data__pos="good", deep__neg__1="a")
    put(tmp_path, deep__pos__1="b")
    os.symlink(tmp_path / "secret.txt", tmp_path / "data" / "other.txt")
    says = f"{tmp_path / 'data' / 'other.txt'}: links out of {tmp_path / 'data'}"
    assert refused(tmp_path / "data").startswith(says)
    os.symlink(tmp_path / "secret.txt", tmp_path / "deep" / "neg" / "2.txt")
    assert "2.txt: links out of" in refused(tmp_path / "deep")
    (tmp_path / "deep" / "neg" / "2.txt").unlink()
    os.symlink("1.txt", tmp_path / "deep" / "neg" / "2.txt")
    assert [e.text for e in read_examples(tmp_path / "deep")] == ["a", "a", "b"]
    os.symlink("loop", tmp_path / "deep" / "loop")
    assert "loop: links out of" in refused(tmp_path / "deep")


def test_limits(tmp_path, monkeypatch):
    put(tmp_path, neg__1="x" * 1_000_001, pos__1="b")
    assert "neg/1.txt:1: the line is longer than 1,000,000 bytes" in refused(tmp_path)
    put(tmp_path, neg__1="x\n" * 600_000)
    assert "neg/1.txt:500001: the file is larger than 1,000,000 bytes" in refused(tmp_path)
    put(tmp_path, neg__1="a", neg__2="b")
    monkeypatch.setattr("regard.lab.data.class_files.FILE_LIMIT", 2)
    assert "pos/1.txt:1: the file is larger than 0 bytes" in refused(tmp_path)
    monkeypatch.setattr("regard.lab.data.class_files.MOST_CLASSES", 1)
    assert "2 classes exceed the limit of 1" in refused(tmp_path)
    monkeypatch.setattr("regard.lab.data.class_files.MOST_FILES", 1)
    assert "contains more than 1 files" in refused(tmp_path)


LINES = {
    "label first": ("neg\tdull\npos\ta great film\nneg\ta poor film\n", "a label, a tab and a"),
    "text first": ("dull\tneg\na great film\tpos\na poor film\tneg\n", "a text, a tab and a"),
}


@pytest.mark.parametrize("order", LINES)
def test_a_text_file_has_a_label_and_a_tab_in_each_line(tmp_path, order):
    path = write(tmp_path / "r.txt", LINES[order][0])
    found = read(path)
    assert told(found.examples) == [
        ("dull", "neg", "r.txt:1"),
        ("a great film", "pos", "r.txt:2"),
        ("a poor film", "neg", "r.txt:3"),
    ]
    assert len(found.remarks) == 1
    assert found.remarks[0].startswith(f"r.txt: each line is read as {LINES[order][1]}")
    other_way = found.remarks[0].rpartition(" set ")[2]
    columns = dict(pair.split("=") for pair in other_way.split())
    assert read_examples(path, Columns(**columns))[0].label == "dull"


def test_a_text_file_with_names_and_with_few_rows(tmp_path):
    path = write(tmp_path / "r.txt", "Sentiment\tReview\nok\tno\nyes\tgood\n")
    assert told(read_examples(path)) == [("no", "ok", "r.txt:2"), ("good", "yes", "r.txt:3")]
    path.write_text("1\ta great film\n")  # the label is shorter
    assert told(read_examples(path)) == [("a great film", "1", "r.txt:1")]


def test_bad_text_files(tmp_path):
    path = tmp_path / "r.txt"
    for content, says in (
        ("a\tb\n", "r.txt:1: cannot tell the label from the text; set text=2 label=1"),
        ("a film\n", "r.txt:1: no tab"),
        ("a\tb\tc\n", "r.txt:1: 3 fields"),
        ("neg\ta film\npos\tb\tc\n", "r.txt:2: 3 fields, but the first row has 2"),
        ("\n\n", "contains no rows"),
    ):
        path.write_text(content)
        assert says in refused(path)
    path.write_bytes(b"neg\ta film\npos\tcaf\xe9\n")
    assert "r.txt:2: not UTF-8" in refused(path)


def test_columns_by_number_say_that_the_first_row_is_data(tmp_path):
    path = write(tmp_path / "r.tsv", "good one\t5\nbad one\t1\n")
    assert read(path, Columns("1", "2")).remarks == ["r.tsv:1 is read as data, not as a header"]
    path.write_text("text\tlabel\ngood one\t5\n")
    assert read(path, Columns("1", "2")).remarks == []


def test_a_class_may_be_called_train(tmp_path):
    for label in ("bus", "train"):
        (tmp_path / label).mkdir()
        (tmp_path / label / "1.txt").write_text(f"by {label}")
    assert {example.label for example in read_examples(tmp_path)} == {"bus", "train"}


def test_two_folders_between_commas_are_read_where_they_lie(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for label in ("neg", "pos"):
        (tmp_path / label).mkdir()
        for number in range(40):
            (tmp_path / label / f"{number}.txt").write_text(f"{label} {number}")
    assert load_corpus("neg,pos").labels == ("neg", "pos")
