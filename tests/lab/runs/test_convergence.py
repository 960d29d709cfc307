from collections.abc import Callable

import numpy as np
import pytest

from regard.lab.runs.convergence import CONVERGED, RISING, UNKNOWN, _no_rise, outcome, still_rising


def curves(left: float, noise: float, count: int, correlation: float = 0.0) -> np.ndarray:
    """400 learning curves a − b exp(−t/τ) that end `left` below a, with noise, an AR(1) process."""
    rng = np.random.default_rng([0, count])
    t = np.arange(1, count + 1) / count
    tau = rng.uniform(0.15, 1.0, (400, 1))
    drawn = rng.standard_normal((400, count))
    for i in range(1, count):
        fresh = (1 - correlation**2) ** 0.5
        drawn[:, i] = correlation * drawn[:, i - 1] + fresh * drawn[:, i]
    return 0.9 - left * np.exp((1 - t) / tau) + noise * drawn


def share(left: float, noise: float, count: int, correlation: float = 0.0) -> float:
    steps = [100 * (i + 1) for i in range(count)]
    found = [still_rising(steps, list(y)) for y in curves(left, noise, count, correlation)]
    return float(np.mean(found))


@pytest.mark.parametrize("count", [4, 8, 20, 50])
def test_flat_curves_are_seldom_taken_for_rising_however_their_noise_is_correlated(
    count: int,
) -> None:
    for correlation in (0.0, 0.4, 0.8):
        assert share(0.0, 0.01, count, correlation) <= 0.12  # 10 %, and the chance of 400 draws


@pytest.mark.parametrize(
    ("left", "count", "least"), [(0.01, 10, 0.5), (0.01, 40, 0.75), (0.1, 6, 0.9), (0.1, 10, 0.99)]
)
def test_what_is_still_to_gain_is_seen(left: float, count: int, least: float) -> None:
    assert share(left, 0.003, count) >= least
    assert share(left, 0.003, count, 0.7) >= least


def test_the_chance_of_no_rise_by_hand() -> None:
    from scipy import integrate, stats

    x, y = np.array([-1.5, -0.5, 0.5, 1.5]), np.array([0.1, 0.5, 0.4, 0.7])
    line = np.stack([np.ones(4), x], 1)

    def joint(correlation: float) -> tuple[float, float]:
        weights = np.linalg.inv(correlation ** np.abs(np.subtract.outer(range(4), range(4))))
        spread = np.linalg.inv(line.T @ weights @ line)
        fitted = spread @ line.T @ weights @ y
        left = y - line @ fitted
        squares = left @ weights @ left
        density = (0.2 + correlation) * np.linalg.det(weights) ** 0.5
        density *= np.linalg.det(spread) ** 0.5 / squares
        return density, stats.t.cdf(0, 2, fitted[1], (squares / 2 * spread[1, 1]) ** 0.5)

    def integral(of: Callable[[float, float], float]) -> float:
        return float(integrate.quad(lambda r: of(*joint(r)), 0, 0.95)[0])

    expected = integral(lambda density, below: density * below) / integral(lambda d, _: d)
    assert _no_rise(x, y) == pytest.approx(expected, rel=0.05)


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
