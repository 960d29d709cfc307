import pytest

from regard.core.errors import RegardError
from regard.core.ranges import Choice, LogUniform, Uniform, parse_range


@pytest.mark.parametrize(
    ("text", "whole", "expected"),
    [
        ("0..0.5", False, Uniform(0.0, 0.5)),
        ("1..4", True, Uniform(1, 4, whole=True)),
        ("1e-4..1e-2:log", False, LogUniform(1e-4, 1e-2)),
        ("64,128,256", True, Choice(("64", "128", "256"))),
        ("dot, additive", False, Choice(("dot", "additive"))),
    ],
)
def test_a_range_is_read_as_it_is_written(text: str, whole: bool, expected: object) -> None:
    found = parse_range("key", text, whole=whole)
    assert (type(found), found) == (type(expected), expected)


def test_a_range_keeps_the_scale_of_the_usual_one() -> None:
    usual = LogUniform(1e-5, 1.0)
    assert parse_range("rate", "0.1..1", usual) == LogUniform(0.1, 1.0)
    assert type(parse_range("rate", "0.1..1", Uniform(0.0, 1.0))) is Uniform


@pytest.mark.parametrize(
    ("text", "whole", "says"),
    [
        ("2", True, "key=2 is one value: give it as a setting"),
        ("4..1", True, "key: range 4..1: the low end comes first"),
        ("0..1:log", False, "key: range 0..1: a logarithmic range is above 0"),
        ("0..1:lin", False, "only 'log' may follow the colon, not 'lin'"),
        ("0.5..2", True, "the ends of a range are whole numbers"),
        ("a..b", False, "the ends of a range are numbers"),
        ("2,2", True, "key: '2,2': a choice needs two or more different values"),
        ("nan..1", False, "key: range nan..1"),
    ],
)
def test_a_bad_range_is_named_with_its_setting(text: str, whole: bool, says: str) -> None:
    with pytest.raises(RegardError) as caught:
        parse_range("key", text, whole=whole)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_written_is_read_again_and_within_the_range() -> None:
    narrow = Uniform(0.12345, 0.12346)
    assert [narrow.read(narrow.written(v)) for v in (0.12345, 0.12346)] == [0.12345, 0.12345]
    assert narrow.has("0.12345")
    assert not narrow.has("0.123")
    assert not narrow.has("wide")
    log = LogUniform(1e-4, 1e-2)
    assert log.written(0.00123456) == "0.00123"
    assert log.has(log.written(0.0099999))
    assert Uniform(1, 4, whole=True).has("4")
    assert not Uniform(1, 4, whole=True).has("2.5")
    assert Choice(("1", "2")).has("2")
    assert not Choice(("1", "2")).has("3")
