import pytest

from regard.core.errors import RegardError
from regard.lab.data.examples import Example
from regard.lab.data.labels import look_over, meant, parse_labels, rename


def examples(*names):
    return [Example(f"text {i}", label, f"r.csv:{i + 2}") for i, label in enumerate(names)]


def test_labels_are_renamed_and_others_stay():
    renamed = rename(examples("neg", "pos", "odd"), parse_labels("neg:0, pos:1"))
    assert [x.label for x in renamed] == ["0", "1", "odd"]
    assert [x.source for x in renamed] == ["r.csv:2", "r.csv:3", "r.csv:4"]
    swapped = rename(examples("0", "1"), parse_labels("0:1,1:0"))
    assert [x.label for x in swapped] == ["1", "0"]
    assert parse_labels("a:b:c") == {"a:b": "c"}
    assert parse_labels("") == {}


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("neg", "labels='neg': expected OLD:NEW"),
        ("neg:0,,", "expected OLD:NEW"),
        (":0", "expected OLD:NEW"),
        ("neg:", "expected OLD:NEW"),
        ("neg:0,neg:1", "'neg' is renamed twice"),
    ],
)
def test_bad_mappings(asked, says):
    with pytest.raises(RegardError, match=says):
        parse_labels(asked)


def test_a_renamed_label_must_occur():
    with pytest.raises(RegardError, match=r"no row has the label 'nag'; labels: neg, pos$"):
        rename(examples("neg", "pos"), {"nag": "0"})
    assert len(rename(examples("neg"), {"nag": "0"}, must_occur=False)) == 1


def test_a_label_of_another_case_is_recognised():
    assert meant("very Good", ["bad", "very good"]) == (
        "; did you mean 'very good'? 'labels=very Good:very good' renames it (--labels for data "
        "check and evaluate)"
    )
    assert meant("cafe\u0301", ["caf\u00e9"]) != ""
    assert meant("good", ["bad"]) == ""


def test_labels_that_differ_in_spelling_alone_are_told():
    assert look_over(examples("pos", "neg", "Pos", "pos")) == [
        "'Pos' (1 row, first r.csv:4) and 'pos' differ only in case, whitespace or number format "
        "but are two labels; labels=Pos:pos renames it (--labels for data check and evaluate)"
    ]
    assert look_over(examples("pos", "neg")) == []
    (note,) = look_over(examples("1", "1", "2", "1.0"))
    assert note.startswith("'1.0' (1 row, first r.csv:5) and '1' differ only")
    assert look_over(examples("10000001", "10000002", "1")) == []
    assert "labels=1.0:1 renames it" in meant("1.0", ["0", "1"])


def test_labels_that_may_stand_for_none_are_told():
    (note,) = look_over(examples("pos", "None", "None", "neg"))
    assert note.startswith("2 rows have the label 'None', first r.csv:3: it is learned as a label")
    assert look_over(examples("pos", "NONE", "neg")) == []  # as data sets of stances have it


def test_what_cannot_be_said_by_a_setting_is_not_advised():
    assert meant("a,B", ["a,b"]) == "; did you mean 'a,b'? use one spelling in the file"
    assert "labels=sci fi:Sci Fi" in meant("sci fi", ["Sci Fi"])
