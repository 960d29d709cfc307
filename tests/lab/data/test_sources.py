from functools import partial

import pytest

from regard.core.errors import RegardError
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.examples import Example
from regard.lab.data.sources import load_corpus
from regard.lab.data.splits import hold_out
from tests.lab.data.archives import folder
from tests.lab.data.small_files import refusal, write


def table(path, rows, header="text,label"):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return str(path)


def films(count, labels="ab"):
    return [(f"film number {i}", labels[i % len(labels)]) for i in range(count)]


def test_a_fifth_is_split_off_and_copies_stay_together(tmp_path):
    rows = films(500)
    copies = [(f"  Film NUMBER {text.split()[-1]}", label) for text, label in rows[:250]]
    corpus = load_corpus(table(tmp_path / "r.csv", rows + copies))
    assert len(corpus.train) + len(corpus.test) == 750
    assert 110 <= len(corpus.test) <= 190
    held = {" ".join(e.text.lower().split()) for e in corpus.test}
    assert not held & {" ".join(e.text.lower().split()) for e in corpus.train}
    assert corpus.labels == ("a", "b")
    assert corpus.notes == (
        f"{len(corpus.test)} of 750 texts split off as the test part, by a hash of the text",
    )
    other = load_corpus(DataSource(tmp_path / "r.csv", splits=Splits(seed=1)))
    assert other.fingerprint != corpus.fingerprint
    assert load_corpus(str(tmp_path / "r.csv")) == corpus


def test_own_test_file_and_shared_texts(tmp_path):
    train = table(tmp_path / "train.csv", [("x", "1"), ("y", "2"), ("y", "2"), ("z", "2")])
    test = table(tmp_path / "test.csv", [("y", "2"), ("w", "1")])
    corpus = load_corpus(DataSource(train, splits=Splits(test=test)))
    assert [e.text for e in corpus.train] == ["x", "z"]
    assert [e.text for e in corpus.test] == ["y", "w"]
    assert corpus.notes == ("2 rows of train dropped: text also in test",)


def test_labels_are_sorted_as_numbers_where_they_are(tmp_path):
    rows = films(300, ["10", "9", "2.5"])
    assert load_corpus(table(tmp_path / "r.csv", rows)).labels == ("2.5", "9", "10")
    rows = films(300, ["10", "9", "x"])
    assert load_corpus(table(tmp_path / "s.csv", rows)).labels == ("10", "9", "x")
    rows = films(300, ["inf", "2", "10"])  # a number that is none has no place among them
    assert load_corpus(table(tmp_path / "n.csv", rows)).labels == ("10", "2", "inf")


def test_fingerprint_sees_texts_labels_and_order(tmp_path):
    def fingerprint(*rows):
        train = table(tmp_path / "train.csv", rows)
        test = table(tmp_path / "test.csv", [("t", "a")])
        return load_corpus(DataSource(train, splits=Splits(test=test))).fingerprint

    first = fingerprint(("x", "a"), ("y", "b"))
    assert first == fingerprint(("x", "a"), ("y", "b"))
    changed = [
        fingerprint(("x", "b"), ("y", "a")),
        fingerprint(("y", "b"), ("x", "a")),
        fingerprint(("xy", "a"), ("y", "b")),
        fingerprint(("x", "a"), ("y", "b"), ("y", "b")),
    ]
    assert len({first, *changed}) == 5


def test_duplicates_are_kept_where_asked(tmp_path):
    train = table(tmp_path / "train.csv", [*films(10), ("Seen  twice", "a")])
    test = table(tmp_path / "test.csv", [("seen twice", "a"), ("y", "b")])
    assert len(load_corpus(DataSource(train, splits=Splits(test=test))).train) == 10
    kept = load_corpus(DataSource(train, splits=Splits(test=test, duplicates="keep")))
    assert len(kept.train) == 11
    assert kept.notes == ("1 row of train kept: text also in test",)


def test_empty_rows_are_noted(tmp_path):
    corpus = load_corpus(table(tmp_path / "r.csv", [*films(300), ("", "a")]))
    assert corpus.notes[0] == "1 row skipped, without text or label, first r.csv:302"


refused = partial(refusal, load_corpus)


def test_one_class_only(tmp_path):
    path = table(tmp_path / "r.csv", films(30, "a"))
    assert refused(path) == f"{path}: all 30 rows have the label 'a'; two labels are needed"


def test_label_in_test_only(tmp_path):
    train = table(tmp_path / "train.csv", films(10))
    test = table(tmp_path / "test.csv", [("x", "a"), ("y", "neutral")])
    assert refused(DataSource(train, splits=Splits(test=test))) == (
        "test.csv:3: the label 'neutral' occurs only in test; train has 'a', 'b'; regard data "
        "check reports likely causes"
    )


def test_rare_label_that_falls_into_test(tmp_path):
    rows = films(200)
    held = load_corpus(table(tmp_path / "r.csv", rows)).test[0].text
    rows = [(text, "rare" if text == held else label) for text, label in rows]
    path = table(tmp_path / "r.csv", rows)
    assert "the only row with the label 'rare' would be in the test part" in refused(path)


def test_too_small_to_split(tmp_path):
    rows = films(40)
    kept = {e.text for e in load_corpus(table(tmp_path / "r.csv", rows)).train}
    path = table(tmp_path / "r.csv", [row for row in rows if row[0] in kept][:4])
    assert "4 rows are too few to split off a test part" in refused(path)


def test_nothing_left_of_train(tmp_path):
    path = table(tmp_path / "r.csv", films(10))
    told = refused(DataSource(path, splits=Splits(test=path)))
    assert told == "r.csv: train has no rows not also in test"


def test_a_column_of_names_is_no_label(tmp_path):
    path = table(tmp_path / "r.csv", [(text, text[-6:]) for text, _ in films(300)])
    assert "different labels in" in refused(path)
    assert "label=NAME" in refused(path)


def test_what_is_no_data(tmp_path):
    assert "did you mean imdb?" in refused("imbd")
    assert "no such file" in refused(tmp_path / "none.csv")
    assert "the folder is neither aclImdb" in refused(tmp_path)
    assert "imdb has its own parts; remove test" in refused(
        DataSource("imdb", splits=Splits(test="x.csv"))
    )
    assert "invalid path '~nobody-of-that-name/x.csv'" in refused("~nobody-of-that-name/x.csv")
    assert ": File name too long" in refused("good " * 60)
    assert "no such file" in refused(tmp_path / "none.tgz")


def test_what_goes_with_files_alone_is_refused_of_a_folder_of_reviews(tmp_path):
    place = str(folder(tmp_path / "aclImdb"))
    assert len(load_corpus(place).test) == 3
    assert "aclImdb has its own parts; remove test" in refused(
        DataSource(place, splits=Splits(test="mine.csv"))
    )
    for column in ("text", "label", "group"):
        assert "no columns" in refused(DataSource(place, columns=Columns(**{column: "x"})))


def test_hold_out_is_stable_and_keeps_copies_together():
    examples = [Example(f"text {i}", "a", f"x:{i}") for i in range(2000)]
    train, held = hold_out(examples)
    assert len(train) + len(held) == 2000
    assert 160 <= len(held) <= 240
    fewer_train, fewer_held = hold_out(examples[::2])
    assert set(fewer_held) <= set(held)
    assert set(fewer_train) <= set(train)
    assert hold_out(examples, seed=1)[1] != held
    assert len(hold_out(examples, 0.5)[1]) > 900
    assert hold_out(examples, 0.0) == (examples, [])
    shouted = [Example(f" TEXT  {i}", "a", "") for i in range(2000)]
    assert len(hold_out(shouted)[1]) == len(held)


def test_copies_in_two_groups_are_not_in_train_and_validation():
    examples = [Example(f"text {i // 2}", "a", "", f"group {i}") for i in range(2000)]
    train, held = hold_out(examples)
    assert 160 <= len(held) <= 240
    assert not {e.text for e in train} & {e.text for e in held}
    assert 1500 < len(train) < 2000 - len(held), "copies of what is held out are in neither"


def test_validation_is_independent_of_the_test_split(tmp_path):
    corpus = load_corpus(table(tmp_path / "r.csv", films(1000)))
    held = hold_out(corpus.train)[1]
    assert 0.06 < len(held) / len(corpus.train) < 0.14


def test_a_group_stays_on_one_side_of_every_split(tmp_path):
    rows = [f"text {i},{'ab'[i % 2]},film {i // 6}" for i in range(1200)]
    path = write(tmp_path / "r.csv", "\n".join(["text,label,film", *rows]))
    corpus = load_corpus(DataSource(path, columns=Columns(group="film")))
    train, held = hold_out(corpus.train)
    parts = [{example.group for example in part} for part in (train, held, corpus.test)]
    assert [len(part) > 5 for part in parts] == [True] * 3
    assert parts[0] & parts[1] == parts[0] & parts[2] == parts[1] & parts[2] == set()
    assert sum(map(len, parts)) == 200
    assert "by a hash of the film" in corpus.notes[0]
    with pytest.raises(
        RegardError, match=r"r\.csv:1: unknown column 'films'; did you mean 'film'\?"
    ):
        load_corpus(DataSource(path, columns=Columns(group="films")))


def test_a_file_for_validation_takes_the_place_of_the_share(tmp_path):
    train = table(tmp_path / "train.csv", [("x", "a"), ("y", "b"), ("z", "b"), ("v", "a")])
    held = table(tmp_path / "dev.csv", [("Y", "b"), ("w", "a"), ("t", "a")])
    test = table(tmp_path / "test.csv", [("v", "a"), ("t", "b")])
    corpus = load_corpus(DataSource(train, splits=Splits(validation=held, test=test)))
    assert [e.text for e in corpus.train] == ["x", "z"]
    assert [e.text for e in corpus.validation] == ["Y", "w"]
    assert [e.text for e in corpus.test] == ["v", "t"]
    assert corpus.notes == (
        "1 row of validation dropped: text also in test",
        "2 rows of train dropped: text also in validation or test",
    )
    kept = load_corpus(
        DataSource(train, splits=Splits(validation=held, test=test, duplicates="keep"))
    )
    assert (len(kept.train), len(kept.validation)) == (4, 3)
    without = load_corpus(DataSource(train, splits=Splits(test=test)))
    assert without.validation is None
    assert len({found.fingerprint for found in (corpus, kept, without)}) == 3


def test_bad_validation_files(tmp_path):
    train, test = table(tmp_path / "train.csv", films(10)), table(tmp_path / "t.csv", [("t", "a")])
    held = table(tmp_path / "dev.csv", [("x", "a"), ("y", "B ")])
    assert refused(DataSource(train, splits=Splits(validation=held, test=test))) == (
        "dev.csv:3: the label 'B' occurs only in validation; train has 'a', 'b'; did you mean 'b'? "
        "labels=B:b renames it (--labels for data check and evaluate)"
    )
    assert refused(DataSource(train, splits=Splits(str(tmp_path / "none.csv")))).endswith(
        "no such file"
    )
    assert "all validation texts also occur in test" in refused(
        DataSource(train, splits=Splits(validation=test, test=test))
    )
    assert refused(DataSource(train, splits=Splits(validation=train, test=test))) == (
        "train.csv: train has no rows not also in validation and test"
    )
    assert "has its own parts; remove validation" in refused(
        DataSource("reviews", splits=Splits(validation=held))
    )


def test_labels_are_renamed_in_every_file(tmp_path):
    train = table(tmp_path / "train.csv", films(10))
    test = table(tmp_path / "test.csv", [("t", "0"), ("u", "1")])
    corpus = load_corpus(
        DataSource(train, columns=Columns(labels="a:0,b:1"), splits=Splits(test=test))
    )
    assert (corpus.labels, [e.label for e in corpus.test]) == (("0", "1"), ["0", "1"])
    assert {e.label for e in corpus.train} == {"0", "1"}
    assert "no row has the label 'c'" in refused(
        DataSource(train, columns=Columns(labels="c:0"), splits=Splits(test=test))
    )
    assert "reviews has no columns; remove labels" in refused(
        DataSource("reviews", columns=Columns(labels="negative:0"))
    )


def test_labels_that_are_none_or_several(tmp_path):
    rows = films(300)
    for missing in ("NaN", "nan", "<NA>"):
        corpus = load_corpus(table(tmp_path / "r.csv", [*rows, ("last", missing)]))
        assert corpus.notes[0].startswith(f"1 row has the label {missing!r}, first r.csv:302: it")
        assert set(corpus.labels) == {"a", "b", missing}
    path = write(tmp_path / "r.jsonl", '{"text": "x", "label": NaN}\n{"text": "y", "label": 1}\n')
    assert "r.jsonl:1: NaN is not a finite number" in refused(path)
    several = table(tmp_path / "r.csv", [*rows, ("last", '"a, b"')])
    assert (
        "several labels separated by ',', as in 1 row of 301 (first r.csv:302: 'a, b'); learn"
        in (refused(several))
    )
    lists = write(
        tmp_path / "l.jsonl", '{"text": "x", "label": ["a", "b"]}\n{"text": "y", "label": []}\n'
    )
    assert "looks like lists in brackets, as in 1 row of 2" in refused(lists)
    spelt = load_corpus(table(tmp_path / "r.csv", [*rows, ("last", "A")])).notes
    assert any(note.startswith("'A' (1 row, first r.csv:302) and 'a' differ") for note in spelt)
