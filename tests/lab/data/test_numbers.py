"""Numbers that are written otherwise than regard reads them: what to write instead."""

from pathlib import Path

import pytest

from regard.core.errors import RegardError
from regard.lab.data.check import check
from regard.lab.data.columns import read_columns
from regard.lab.data.labels import hardly_repeat, number_of, why_no_number


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("12,500", {"12500", "12.500"}),
        ("-123,456", {"-123456", "-123.456"}),
        ("1,234,567", {"1234567"}),
        ("12,34,567", {"1234567"}),
        ("1,234.5", {"1234.5"}),
        ("1.234,56", {"1234.56"}),
        ("1.234.567", {"1234567"}),
        ("−1.234.567,8", {"−1234567.8"}),
        ("1 234", {"1234"}),
        ("1 234 567,5", {"1234567.5"}),
        ("1\u00a0234", {"1234"}),
        ("1\u202f234,5", {"1234.5"}),
        ("1'234", {"1234"}),
        ("12’500.25", {"12500.25"}),
        ("1_000", {"1000"}),
        ("1,75", {"1.75"}),
        ("0,500", {"0.500"}),
        ("1234,567", {"1234.567"}),
        ("1,5e3", {"1.5e3"}),
        ("12.05.2020", set()),
        ("1,2,3", set()),
        ("1,234.567,8", set()),
        ("1,234 567", set()),
        ("a,b", set()),
    ],
)
def test_every_number_that_may_be_meant_is_named(text: str, values: set[str]) -> None:
    says = why_no_number(text)
    assert says.startswith(f"{text!r} is not a number")
    words = set(says.partition(";")[2].replace(",", " ").split())
    assert {word for word in words if number_of(word) is not None} - {"1.500"} == values
    assert number_of(text) is None


def test_labels_with_separators_are_targets_of_a_regression(tmp_path: Path) -> None:
    labels = [f"{i},{100 + i}" for i in range(1, 61)]
    assert hardly_repeat(labels)
    rows = "".join(f'a text {i},"{label}"\n' for i, label in enumerate(labels))
    (tmp_path / "x.csv").write_text(f"text,label\n{rows}")
    (part,) = check(tmp_path / "x.csv").parts
    assert "write 1101 if the comma separates thousands, 1.101 if it is" in part.bad[0].why


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('x;y\n1;"12,500"\n', r"x.csv:2: column 'y' .* '12,500'; write 12500 if .*, 12\.500 if"),
        ("x;y\n1;2\n3;1.234,5\n", "x.csv:3: column 'y' .*: 1234.5, or choose other columns"),
        ("Temp, C;Druck, bar\n21,5;1,013\n", r"'Temp, C' .* '21,5'; write it with a .*: 21\.5"),
        ("1,5;2,25\n2,5;3,25\n", r"x.csv:1: column '1' must be numeric, not '1,5'"),
        ("x,price\n1,1 234\n", "column 'price' .* '1 234'; write it without .*: 1234"),
    ],
)
def test_columns_with_separators_are_refused_not_left_out(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(RegardError, match=says):
        read_columns(tmp_path / "x.csv")


def test_a_minus_sign_is_read_in_columns_as_in_labels(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("x,y\n−1,2\n")
    assert read_columns(tmp_path / "x.csv").values.tolist() == [[-1, 2]]
