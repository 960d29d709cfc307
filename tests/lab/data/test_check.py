import json
from dataclasses import replace

import pytest

from regard.core.errors import RegardError
from regard.lab.data.check import check
from regard.lab.data.data_source import Columns, DataSource, Splits
from regard.lab.data.sources import load_corpus
from tests.lab.data.archives import archive
from tests.lab.data.small_files import refusal, write

TRAIN = (
    "text,label\n"
    "a dull film,neg\n"  # 2
    "a fine film,pos\n"
    "a dull film,neg\n"  # 4: a copy
    "a fine film,neg\n"  # 5: a copy that contradicts
    ",pos\n"  # 6: empty
    "too,many,fields\n"  # 7: bad
    "one two three four five six,pos\n"  # 8
    "na\ufffdve caf\u00c3\u00a9 \x96,neg\n"  # 9: odd
)
TEST = "text,label\na dull film,neg\nbrand new,mixed\n"


@pytest.fixture
def files(tmp_path):
    return str(write(tmp_path / "train.csv", TRAIN)), str(write(tmp_path / "test.csv", TEST))


def test_everything_that_is_wrong_is_found(files):
    findings = check(DataSource(files[0], splits=Splits(test=files[1])), length=4)
    train, test = findings.parts
    assert (train.name, train.rows, train.labels) == ("train", 8, {"neg": 4, "pos": 2})
    assert (test.name, test.rows, test.labels) == ("test", 2, {"mixed": 1, "neg": 1})
    assert (train.copies, test.copies) == (2, 0)
    assert [(row.source, row.empty) for row in train.bad] == [
        ("train.csv:6", True),
        ("train.csv:7", False),
    ]
    assert [(p.first, p.second) for p in findings.shared] == [("train.csv:2", "test.csv:2")]
    assert [(p.first, p.second, p.labels) for p in findings.conflicts] == [
        ("train.csv:3", "train.csv:5", ("pos", "neg"))
    ]
    assert set(findings.odd) == {"\ufffd", "\u00c3\u00a9", "\x96"}
    assert findings.problems == [
        "train: 1 row without text or label",
        "train: 1 unreadable row",
        "train: 2 rows with a duplicate text",
        "labels in test only: 'mixed'",
        "1 text in both train and test; training drops them from train",
        "1 row with a different label than a duplicate",
        "replacement characters (decoding errors) in 1 text, first train.csv:9: U+FFFD",
        "UTF-8 decoded as Windows-1252 in 1 text, first train.csv:9: U+00C3 U+00A9",
        "unprintable characters in 1 text, first train.csv:9: U+0096",
    ]


def test_lengths_and_the_price_of_cutting(files):
    (part,) = check(files[0], length=4).parts
    # words: 3, 3, 3, 3, 6 and "na \ufffd ve cafã © \x96"
    assert part.words == {"shortest": 3, "5 %": 3, "median": 3, "95 %": 6, "longest": 6}
    assert [cut.length for cut in part.cuts] == [4, 100, 200, 400, 800]
    assert (part.cuts[0].texts, part.cuts[0].words) == (2 / 6, 4 / 24)
    assert (part.cuts[1].texts, part.cuts[1].words) == (0, 0)


def test_text_for_people(files):
    lines = check(DataSource(files[0], splits=Splits(test=files[1])), length=4).lines()
    assert lines[0] == "train.csv"
    assert lines[2].split() == ["train", "test"]
    assert lines[3].split() == ["rows", "8", "2"]
    assert lines[4].split() == ["label", "neg", "4", "(66.7%)", "1", "(50.0%)"]
    cuts = [line.split() for line in lines if line.startswith("truncated to")]
    assert [cut[2] for cut in cuts] == ["4"]
    assert cuts[0][-4:] == ["33.3%,", "16.7%", "0.0%,", "0.0%"]
    assert "train.csv:7: 3 fields, but the first row has 2" in lines
    assert "test.csv:2: same text as train.csv:2" in lines
    assert "train.csv:5: label 'neg'; same text at train.csv:3: label 'pos'" in lines


def test_json_is_plain(files):
    findings = check(DataSource(files[0], splits=Splits(test=files[1])))
    result = json.loads(json.dumps(findings.json(), allow_nan=False))
    assert result["parts"][0]["bad"][0]["source"] == "train.csv:6"
    assert result["shared"][0]["labels"] == ["neg", "neg"]
    assert result["problems"] == findings.problems


def test_many_places_are_cut_short(tmp_path):
    path = write(tmp_path / "r.csv", "text,label\na,1\nb,2\n" + ",1\n" * 50)
    findings = check(path)
    assert len(findings.parts[0].bad) == 50
    assert findings.lines()[-1] == "… and 30 more; --json lists all"
    assert findings.lines()[-2] == "r.csv:23: the text is empty"


def test_one_label_and_a_lopsided_one(tmp_path):
    path = write(tmp_path / "r.csv", "text,label\na,1\nb,1\n")
    assert check(path).problems == ["rows: the only label is '1'"]
    path.write_text("text,label\nb,2\n" + "".join(f"a{i},1\n" for i in range(19)))
    assert check(path).uneven == [
        "95.0 % of the training texts have the label '1'",
        "1 of 2 labels has fewer than 20 training texts (fewest: '2', 1)",
    ]
    assert "note: 95.0 % of the training texts have the label '1'" in check(path).lines()
    path.write_text("text,label\n" + "".join(f"a{i},{i % 2}\n" for i in range(20)))
    assert check(path).uneven == []  # few texts, but as many of each label


def test_clean_data_and_named_data(monkeypatch):
    seen = []

    def show(*progress):
        seen.append(progress)

    monkeypatch.setattr("regard.lab.data.check.LONG", 2)
    findings = check("reviews", show=show)
    assert findings.problems == []
    assert findings.lines()[-1] == "no problems found"
    assert [part.rows for part in findings.parts] == [4000, 1000]
    assert seen == [(done, 5000, "texts") for done in range(1000, 5001, 1000)]
    assert check(load_corpus("reviews")).parts == findings.parts


def test_a_group_in_train_and_test_is_a_leak(tmp_path):
    train, test = "a,1,ann\nb,2,bob\nc,1,ann\nd,2,\n", "e,1,eve\nf,2,ann\ng,1,ann\nh,2,\n"
    given = two_files(tmp_path, train, test, header="text,label,customer")
    findings = check(replace(given, columns=Columns(group="customer")))
    assert findings.groups == {"ann": ["train.csv:2", "test.csv:3"]}
    assert findings.problems == ["1 group in both train and test; training keeps them in both"]
    lines = findings.lines()
    assert "test.csv:3: same group as train.csv:2, 'ann'" in lines
    assert [line.split() for line in lines if line.startswith("groups")] == [["groups", "2", "2"]]
    assert check(given).groups == {}
    with pytest.raises(RegardError, match=r"unknown column 'custmer'; did you mean 'customer'\?"):
        check(DataSource(given.data, columns=Columns(group="custmer")))
    with pytest.raises(RegardError, match="reviews has no columns"):
        check(DataSource("reviews", columns=Columns(group="film")))


@pytest.mark.parametrize("name", ["pairs.tsv", "mine.de,mine.en", "essay.txt"])
def test_pairs_and_bare_texts_are_not_for_it(tmp_path, name):
    (tmp_path / "pairs.tsv").write_text("ein Hund\ta dog\n")
    (tmp_path / "essay.txt").write_text("Once.\n")
    assert refusal(check, str(tmp_path / name)).endswith(
        "regard data check only reads texts with labels; text pairs and texts without labels are "
        "checked when regard train reads them"
    )
    named = DataSource(tmp_path / "pairs.tsv", columns=Columns("words", "2"))
    told = refusal(check, named)  # columns that were named are meant
    assert "unknown column 'words'" in told
    assert "regard data check only" not in told


def test_columns_with_other_names_are_guessed(tmp_path):
    path = write(tmp_path / "mine.csv", "body,my verdict\n" + "good film,yes\nbad film,no\n" * 3)
    told = refusal(check, str(path))
    assert "cannot find the label column; columns: 'body', 'my verdict'" in told
    assert told.endswith("they seem to be --text body --label 'my verdict'")
    assert check(DataSource(path, columns=Columns("body", "my verdict"))).parts[0].rows == 6


def test_imdb_has_no_columns(tmp_path):
    archive(tmp_path / "aclImdb_v1.tar.gz")
    assert check(tmp_path / "aclImdb_v1.tar.gz").parts[0].rows == 5
    with pytest.raises(RegardError, match="has no columns; remove group"):
        check(DataSource(tmp_path / "aclImdb_v1.tar.gz", columns=Columns(group="film")))
    with pytest.raises(RegardError, match="has its own parts; remove test"):
        check(DataSource(tmp_path / "aclImdb_v1.tar.gz", splits=Splits(test="mine.csv")))


def test_only_bad_rows(tmp_path):
    path = write(tmp_path / "r.csv", "text,label\n,1\n")
    assert check(path).parts[0].words["longest"] == 0
    path.write_text("text,label\n")
    assert check(path).problems == ["rows: no row with a text and a label"]


def test_unreadable_is_an_error(tmp_path):
    assert "at least 1 word" in refusal(check, "reviews", length=0)
    assert "did you mean reviews" in refusal(check, "review")
    assert "the folder is neither aclImdb" in refusal(check, tmp_path)


def test_real_archive(real):
    findings = check(real / "imdb" / "aclImdb_sample.tar.gz")
    assert [part.labels for part in findings.parts] == [{"negative": 200, "positive": 200}] * 2
    assert findings.conflicts == []


def test_a_validation_file_is_a_part(files, tmp_path):
    dev = write(tmp_path / "dev.csv", "text,label\nA dull  film,neg\nbrand new,Pos\n")
    findings = check(DataSource(files[0], splits=Splits(validation=str(dev), test=files[1])))
    assert [part.name for part in findings.parts] == ["train", "validation", "test"]
    assert [(p.first, p.second) for p in findings.shared] == [
        ("train.csv:2", "dev.csv:2"),
        ("train.csv:2", "test.csv:2"),
        ("dev.csv:3", "test.csv:3"),
    ]
    assert "3 texts in two parts; training drops them from the earlier one" in findings.problems
    assert (
        "labels in validation only: 'Pos'; they differ from train only in case, whitespace or "
        "number format ('Pos' is 'pos' in train); labels=Pos:pos renames it (--labels for data "
        "check and evaluate)"
    ) in findings.problems
    splits = Splits(validation=str(dev))
    renamed = check(DataSource(files[0], columns=Columns(labels="Pos:pos"), splits=splits))
    assert renamed.parts[1].labels == {"neg": 1, "pos": 1}
    with pytest.raises(RegardError, match="no row has the label 'other'"):
        check(DataSource(files[0], columns=Columns(labels="other:pos")))
    with pytest.raises(RegardError, match="reviews has its own parts; remove validation"):
        check(DataSource("reviews", splits=Splits(validation=str(dev))))


def test_folders_and_what_was_taken_of_a_text_file(tmp_path):
    (tmp_path / "neg.txt").write_text("dull\nbad\n")
    (tmp_path / "pos.txt").write_text("good\n")
    assert check(tmp_path).parts[0].labels == {"neg": 2, "pos": 1}
    named = f"{tmp_path / 'neg.txt'},{tmp_path / 'pos.txt'}"
    assert check(named).parts[0].labels == {"neg": 2, "pos": 1}
    assert check(named).lines()[0] == "neg.txt,pos.txt"
    path = write(tmp_path / "all.txt", "neg\ta dull film\npos\tgood\nneg\tbad\n")
    assert any(line.startswith("note: all.txt: each line is") for line in check(path).lines())


def test_labels_that_are_not_meant_are_problems(tmp_path):
    path = tmp_path / "r.csv"
    rows = ["a,pos", "b,neg", "c,Pos", "e,pos", "f,NaN"]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    problems = check(path).problems
    assert problems[0].startswith("'Pos' (1 row, first r.csv:4) and 'pos' differ")
    path.write_text("text,label\n" + "\n".join(rows[:3]) + "\n")
    assert check(path).problems[0].startswith("'Pos' (1 row, first r.csv:4) and 'pos' differ")


def test_phrases_of_one_sentence_are_a_problem(tmp_path):
    rows = ["text\tlabel"]
    for number in range(60):
        words = [f"w{number}x{i}" for i in range(12)]
        rows += [f"{' '.join(words[i:])}\t{number % 2}" for i in range(6)]
    path = write(tmp_path / "r.tsv", "\n".join(rows))
    (problem,) = check(path).problems
    assert "validation texts are nearly contained in training texts" in problem
    assert problem.endswith("with their origin, or give validation=FILE")
    twice = check(DataSource(path, splits=Splits(validation=str(path))))
    assert twice.problems[-1].startswith("360 texts in both train and val")


def two_files(folder, train, test, header="text,label"):
    """A data set with a test file, of these rows."""
    train = write(folder / "train.csv", f"{header}\n{train}")
    test = write(folder / "test.csv", f"{header}\n{test}")
    return DataSource(train, splits=Splits(test=str(test)))


NAMES = "a goal,Sport\nan election,News\na poll,news\n"


@pytest.mark.parametrize(
    ("train", "test", "says"),
    [
        (NAMES, "Sport,lost the ball\nnews,a vote", "texts and labels seem to be swapped"),
        (
            NAMES,
            "lost the ball,sport \na vote,NEWS",
            "only in case, whitespace or number format ('NEWS' is 'news'",
        ),
        (NAMES, "lost the ball,1\na vote,2", "test has numbers where train has names"),
        (NAMES, "lost the ball,weather\na vote,News", "labels in test only: 'weather'"),
        ("a goal,1\nan election,2\n", "a match,1.0\na vote,2.0", "('1.0' is '1' in train)"),
    ],
)
def test_the_likely_cause_of_other_labels_is_told(tmp_path, train, test, says):
    found = check(two_files(tmp_path, train, test))
    (problem,) = [p for p in found.problems if "in test only" in p]
    assert says in problem
    assert problem.endswith("'weather'") == ("weather" in says)


def test_of_many_strange_labels_ten_are_told(tmp_path):
    labels = [f"{'a very long label ' * 9}{i:03}" for i in range(500)]
    test = "".join(f"text {i},{x}\n" for i, x in enumerate(labels))
    found = check(two_files(tmp_path, "a goal,sport\nan election,news\n", test))
    (problem,) = [p for p in found.problems if "in test only" in p]
    assert len(problem) < 500
    assert problem.count("'a very long label") == 10
    assert problem.endswith(" and 490 more")


def test_labels_that_are_numbers_are_summed_up_and_checked(tmp_path):
    path = tmp_path / "n.csv"
    rows = [f"text number {i} of many,{i / 7:.3f}" for i in range(200)]
    path.write_text("\n".join(["text,label", *rows]))
    found = check(path)
    assert found.remarks == [
        "the labels are numbers that hardly repeat; use regard train regression"
    ]
    assert found.parts[0].labels == {}
    assert found.parts[0].numbers["median"] == pytest.approx(99.5 / 7, abs=0.01)
    assert any(line.startswith("number, largest") for line in found.lines())
    assert found.uneven == []
    path.write_text("text,label\nfine,4\nbad,two\nnice,5\n")
    told = check(path, numbers=True)
    assert [(row.source, row.why) for row in told.parts[0].bad] == [
        ("n.csv:3", "the label 'two' is not a number")
    ]
    assert told.parts[0].numbers["longest"] == 5
    assert check(path).parts[0].labels == {"4": 1, "5": 1, "two": 1}
    assert check("ratings").parts[0].numbers["longest"] == 10


@pytest.mark.parametrize("missing", ["NA", "NaN", "4,25"])
def test_numbers_with_gaps_or_a_decimal_comma_are_still_numbers(tmp_path, missing):
    path = tmp_path / "r.csv"
    rows = "".join(f"film {i};{i / 7:.3f}\n" for i in range(60))
    path.write_text(f"text;label\n{rows}nothing;{missing}\n")
    found = check(path)
    assert found.remarks[0].startswith("the labels are numbers that hardly repeat")
    assert found.parts[0].bad[0].why.startswith(f"the label '{missing}' is not a number; ")


def test_what_training_would_refuse_is_a_problem(tmp_path):
    path = tmp_path / "r.csv"
    for kinds, says in [
        (70, "70 different labels in 99 rows; is the label in another column?"),
        (9, "the only row with the label 'k8' would be in the test part"),
    ]:
        labels = [f"k{min(i, kinds - 1) if kinds > 9 else 8 * (i == 7)}" for i in range(99)]
        rows = "".join(f"film {i} {i * i},{label}\n" for i, label in enumerate(labels))
        path.write_text(f"text,label\n{rows}")
        with pytest.raises(RegardError, match=says):
            load_corpus(str(path))
        assert any(says in problem for problem in check(path).problems)
