import pytest

from regard.core.errors import RegardError
from regard.lab.studies.budget import parse_budget
from regard.training.settings import TrainingSettings


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", {"minutes": "10"}),
        ("90s", {"minutes": "1.5"}),
        ("1.5h", {"minutes": "90"}),
        (" 2 minutes ", {"minutes": "2"}),
        ("1 hour", {"minutes": "60"}),
        ("500 steps", {"steps": "500"}),
        ("500steps", {"steps": "500"}),
        ("1 step", {"steps": "1"}),
        ("2k steps", {"steps": "2000"}),
        ("0.5 epochs", {"epochs": "0.5"}),
        ("3epochs", {"epochs": "3"}),
        ("2M tokens", {"tokens": "2000000"}),
        ("2.5M tokens", {"tokens": "2500000"}),
        ("4.1M tokens", {"tokens": "4100000"}),
        ("0.3B tokens", {"tokens": "300000000"}),
        ("2Mtokens", {"tokens": "2000000"}),
        ("2 M tokens", {"tokens": "2000000"}),
        ("300k tokens", {"tokens": "300000"}),
    ],
)
def test_budgets(text: str, expected: dict[str, str]) -> None:
    assert parse_budget(text) == expected
    (key,) = expected
    assert TrainingSettings.model_validate(expected).budget.unit == key


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "write 10m"),
        ("ten minutes", "write 10m"),
        ("10", "has no unit; write 10m"),
        ("0 steps", "must be above 0"),
        ("0m", "must be above 0"),
        ("-3 epochs", "write 10m"),
        ("1.5 steps", "steps must be a whole"),
        ("3 parsecs", "write 10m"),
        ("2M minutes", "write 10m"),
        ("10ms", "write 10m"),
        ("nan steps", "write 10m"),
        ("9" * 400 + " steps", "must be above 0"),
    ],
)
def test_what_is_no_budget(text: str, says: str) -> None:
    with pytest.raises(RegardError, match="budget") as caught:
        parse_budget(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
