import pytest

from regard.core.errors import RegardError
from regard.training.schedules import SCHEDULES, factor
from regard.training.settings import TrainingSettings


@pytest.mark.parametrize("name", SCHEDULES)
def test_full_rate_after_the_warmup(name: str) -> None:
    assert factor(name, 0.25, 0.25) == 1
    assert factor(name, 0.125, 0.25) == 0.5
    assert factor(name, 0.0, 0.25) == 0.01
    assert factor(name, 0.0, 0.0) == 1


@pytest.mark.parametrize(("name", "middle", "end"), [("linear", 0.5, 0), ("cosine", 0.5, 0)])
def test_falls_to_zero(name: str, middle: float, end: float) -> None:
    assert factor(name, 0.6, 0.2) == pytest.approx(middle)
    assert factor(name, 1.0, 0.2) == pytest.approx(end)
    assert factor(name, 1.0, 1.0) == end


def test_cosine_is_slow_at_first() -> None:
    assert factor("cosine", 0.25, 0.0) == pytest.approx((1 + 0.5**0.5) / 2)
    assert factor("linear", 0.25, 0.0) == 0.75


def test_one_budget_at_a_time() -> None:
    with pytest.raises(RegardError, match="only one budget is allowed, not steps and minutes"):
        TrainingSettings(steps=5, minutes=1)
    assert TrainingSettings().budget == ("epochs", 5.0)
    assert TrainingSettings(minutes=1.5).budget == ("minutes", 1.5)


def test_unknown_schedule_offers_the_nearest() -> None:
    with pytest.raises(RegardError, match="did you mean cosine"):
        TrainingSettings(schedule="cosin")
