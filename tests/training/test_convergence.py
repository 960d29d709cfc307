import numpy as np
import pytest

from regard.training.convergence import CONVERGED, RISING, UNKNOWN, outcome, still_rising


def curves(left: float, noise: float, count: int, seed: int = 0) -> np.ndarray:
    """2,000 learning curves a − b exp(−t/τ) that end `left` below a, with noise."""
    rng = np.random.default_rng([seed, count])
    t = np.arange(1, count + 1) / count
    tau = rng.uniform(0.15, 1.0, (2000, 1))
    return 0.9 - left * np.exp((1 - t) / tau) + noise * rng.standard_normal((2000, count))


def share(left: float, noise: float, count: int) -> float:
    steps = [100 * (i + 1) for i in range(count)]
    return float(np.mean([still_rising(steps, list(y)) for y in curves(left, noise, count)]))


@pytest.mark.parametrize("count", [10, 20, 40])
@pytest.mark.parametrize("noise", [0.001, 0.003, 0.006])
def test_flat_curves_are_seldom_taken_for_rising(count: int, noise: float) -> None:
    assert share(0.0, noise, count) <= 0.13


@pytest.mark.parametrize("count", [10, 20, 40])
@pytest.mark.parametrize(("noise", "least"), [(0.001, 0.95), (0.003, 0.73), (0.006, 0.55)])
def test_a_point_still_to_gain_is_seen(count: int, noise: float, least: float) -> None:
    assert share(0.01, noise, count) >= least


@pytest.mark.parametrize("count", [6, 10, 40])
def test_ten_points_still_to_gain_are_always_seen(count: int) -> None:
    assert share(0.1, 0.003, count) >= 0.99


def test_falling_and_short_curves() -> None:
    assert still_rising([1, 2, 3, 4, 5], [0.9, 0.8, 0.7, 0.6, 0.5]) is False
    assert still_rising([1, 2, 3], [0.1, 0.2, 0.3]) is None
    assert still_rising([], []) is None


def rows(scores: list[float], ended: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for number, score in enumerate(scores):
        found += [
            {"step": 10 * number + 5, "validation": None, "ended": ""},
            {"step": 10 * number + 10, "validation": score, "ended": ""},
        ]
    found[-1]["ended"] = ended
    return found


def test_outcome_of_a_training() -> None:
    rising = [0.5, 0.55, 0.6, 0.65, 0.7, 0.75]
    assert outcome(rows(rising, "budget")) == RISING
    assert outcome(rows([0.5, 0.7, 0.8, 0.8, 0.8, 0.8], "budget")) == CONVERGED
    assert outcome(rows([0.5, 0.7], "budget")) == UNKNOWN
    assert outcome([]) == UNKNOWN
    assert outcome(rows(rising, "patience"), patience=5) == CONVERGED
    assert outcome(rows(rising, "patience"), patience=1) == RISING  # it did not wait
