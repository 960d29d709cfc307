"""What is measured of softmax: rows against autograd, blocks, fits, a head that turns."""

import math

import pytest
import torch
from torch.testing import assert_close

from regard.attention import SCORES
from regard.lab.labs.softmax_gradient.saturation import (
    Mean,
    additive_variance,
    draw,
    fit,
    jacobian_norm2,
    made,
    one,
    product_variance,
    see,
    sorted_weights,
    steps_to_turn,
)


def test_a_row_by_autograd() -> None:
    q, k = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 4, dtype=torch.float64)
    found = one(SCORES["scaled-dot"](), q.clone(), k)
    scores = q @ k.mT / 2
    weights = scores.softmax(-1)
    jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(-1), scores[1, 2])
    assert_close(found[0], scores.var(-1))
    assert_close(found[1][1, 2], -(weights[1, 2] * weights[1, 2].log()).sum())
    assert_close(found[2], weights.amax(-1))
    assert_close(found[3][1, 2], jacobian.square().sum())
    label = weights[1, 2] - torch.tensor([1.0, 0, 0, 0, 0])
    assert_close(found[5][1, 2], label.square().sum())


def test_the_gradient_that_reaches_a_query() -> None:
    """On average over slopes it is ‖Kᵀ J‖² / d for scores q·k / √d."""
    torch.manual_seed(3)
    q, k = torch.randn(1, 1, 4, dtype=torch.float64), torch.randn(1, 5, 4, dtype=torch.float64)
    weights = (q @ k.mT / 2).softmax(-1)[0, 0]
    jacobian = weights.diag() - torch.outer(weights, weights)
    wanted = (k[0].mT @ jacobian).square().sum() / 4
    score = SCORES["scaled-dot"]()
    many = one(score, q.expand(20_000, 1, 4).clone(), k.expand(20_000, 5, 4).clone())[4]
    error = float(many.std()) / math.sqrt(20_000)
    assert abs(float(many.mean() - wanted)) < 4 * error


def test_a_small_jacobian_keeps_its_digits() -> None:
    tiny = 1e-12
    weights = torch.tensor([1 - tiny, tiny], dtype=torch.float64)
    assert float(jacobian_norm2(weights)) == pytest.approx(4 * tiny**2, rel=1e-9)
    assert float(jacobian_norm2(torch.full((4,), 0.25))) == pytest.approx(3 / 16)


def test_blocks_are_drawn_in_parts_that_fit() -> None:
    parts = list(draw(3, 5, 5, 1, held=2 * 69 * 3))
    assert [len(q) for q, _ in parts] == [2, 2, 1]
    assert parts[0][0].shape == (2, 64, 3)
    assert parts[0][1].shape == (2, 5, 3)
    again = list(draw(3, 5, 5, 1, held=2 * 69 * 3))
    assert_close(again[2][1], parts[2][1], rtol=0, atol=0)
    assert float((parts[0][1] - parts[1][1]).abs().min()) > 0


def test_the_variance_is_the_width() -> None:
    means = [product_variance(width, 16, 0) for width in (4, 16, 64)]
    for width, mean in zip((4, 16, 64), means, strict=True):
        assert abs(mean.value - width) < 4 * mean.error
        assert mean.low < mean.value < mean.high
    slope = fit([4, 16, 64], means, logs=True)
    assert slope.low < 1 < slope.high
    assert slope.high - slope.low < 0.02


def test_an_interval_is_students() -> None:
    mean = Mean.of(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert mean.value == 2
    assert mean.error == pytest.approx(1 / math.sqrt(3))
    assert mean.high - 2 == pytest.approx(4.30265 / math.sqrt(3), rel=1e-4)


def test_a_fit_weighs_its_points() -> None:
    means = [Mean(1.0, 0.1, 0, 0), Mean(2.0, 0.1, 0, 0), Mean(30.0, 1e6, 0, 0)]
    found = fit([1, 2, 3], means)
    assert found.value == pytest.approx(1.0, abs=1e-6)
    assert found.high - found.value == pytest.approx(1.96 * 0.1 * math.sqrt(2), rel=1e-3)
    assert str(fit([1, 2], [Mean(2.0, 0.1, 0, 0), Mean(1.0, 0.1, 0, 0)])).startswith("−1.000 [−1.2")


@pytest.mark.parametrize(
    ("name", "variance"),
    [("dot", 9.0), ("scaled-dot", 1.0), ("gaussian", 13.5), ("cosine", 1 / 9),
     ("cosine-temperature", 1.0)],
)  # fmt: skip
def test_scores_have_the_variance_of_theory(name: str, variance: float) -> None:
    seen = see(name, 9, 8, 60, 0)
    assert abs(seen.variance.value - variance) < 4.5 * seen.variance.error
    assert seen == see(name, 9, 8, 60, 0)
    assert 0 < seen.entropy.value < math.log(8)


def test_additive_scores_have_a_bounded_variance() -> None:
    seen = see("additive", 200, 8, 20, 0)
    assert abs(seen.variance.value - additive_variance()) < 4.5 * seen.variance.error
    assert additive_variance() == pytest.approx(0.0557, abs=1e-4)
    assert made("additive", 600).get_parameter("weight").shape == (512, 1)


def test_additive_variance_by_draws() -> None:
    a = torch.randn(400_000, dtype=torch.float64) / math.sqrt(3)
    b, c = (torch.randn(400_000, dtype=torch.float64) / math.sqrt(3) for _ in range(2))
    both = torch.tanh(a + b)
    drawn = float((both**2 - both * torch.tanh(a + c)).mean()) / 3
    assert additive_variance() == pytest.approx(drawn, abs=5e-4)


def test_sorted_weights() -> None:
    cold, seen = sorted_weights(4, 6, 0.05, 16, 0)
    hot, _ = sorted_weights(4, 6, 1e4, 16, 0)
    assert cold.sum().item() == pytest.approx(1)
    assert cold.tolist() == sorted(cold.tolist(), reverse=True)
    assert cold[0] > 0.95
    assert_close(hot, torch.full((6,), 1 / 6, dtype=torch.float64), atol=1e-3, rtol=0)
    assert seen.dead.value > 0.5


def test_a_head_that_turns() -> None:
    """Two keys, w of the right one: its lead grows by 2(1 − w) a step, or by 4w(1 − w)²."""
    log = steps_to_turn([0.0, 1.0, 4.0], 2, "log", lambda share: None)
    slow = steps_to_turn([0.0, 1.0, 4.0], 2, "output", lambda share: None)

    def by_hand(gap: float, step: object) -> int:
        x, count = -gap, 0
        while x < -1e-12:
            w = 1 / (1 + math.exp(-x))
            x, count = x + step(w), count + 1  # type: ignore[operator]
        return count

    assert log == [by_hand(gap, lambda w: 2 * (1 - w)) for gap in (0.0, 1.0, 4.0)]
    assert slow == [by_hand(gap, lambda w: 4 * w * (1 - w) ** 2) for gap in (0.0, 1.0, 4.0)]


def test_a_head_that_does_not_turn_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.lab.labs.softmax_gradient.saturation.MOST", 5)
    found = steps_to_turn([0.5, 8.0], 2, "output", lambda share: None)
    assert found[0] == 1
    assert math.isnan(found[1])
