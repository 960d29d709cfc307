"""The reference distribution against Student's t, and its rates integrated over all estimates."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaincinv, ndtr

from regard.lab.tasks.null_distribution import p_values, reach, smallest

MANY = 1e6  # degrees of freedom of the examples


def drawn(freedom: float, count: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of χ²/freedom, dense near 0, and their weights."""
    points, weights = np.polynomial.legendre.leggauss(count)
    points = (points + 1) / 2
    return 2 * gammaincinv(freedom / 2, points**4) / freedom, 2 * weights * points**3


def rate(level: float, share: float, seeds: int) -> float:
    """How often p < level without a difference, if the seeds have this share of the variance."""
    ratios, weights = drawn(seeds - 1)
    far = reach(level, share * ratios, 1 - share, seeds - 1, MANY)
    return float(2 * ndtr(-far) @ weights)


@pytest.mark.parametrize("freedom", [1, 2, 4, 9])
def test_seeds_alone_are_students_t(freedom: int) -> None:
    t = np.array([0.0, 0.3, 2.0, 10.0])
    found = p_values(0.1 * t, 0.01, 0.0, freedom, 500)
    np.testing.assert_allclose(found, 2 * stats.t.sf(t, freedom), rtol=1e-4)


@pytest.mark.parametrize(("freedom", "examples"), [(0, 40), (1, 40), (2, 40), (9, 2000)])
def test_examples_alone_are_students_t(freedom: int, examples: int) -> None:
    t = np.array([0.0, 0.3, 2.0, 4.0])
    found = p_values(0.1 * t, 0.0, 0.01, freedom, examples)
    np.testing.assert_allclose(found, 2 * stats.t.sf(t, examples), rtol=1e-3)


def test_the_careful_p_averages_over_what_the_variances_may_be() -> None:
    # With two seeds p is the careful one: draw both variances, and average the normal tail.
    rng = np.random.default_rng(0)
    seeds = 0.4 / rng.chisquare(1, 400_000)
    examples = 0.6 * 30 / rng.chisquare(30, 400_000)
    expected = (2 * ndtr(-3 / np.sqrt(seeds + examples))).mean()
    assert p_values(3.0, 0.4, 0.6, 1, 30) == pytest.approx(expected, rel=0.01)


def test_the_weights_of_careful_and_simple_by_hand() -> None:
    rng = np.random.default_rng(1)
    seeds = 0.4 * 2 / rng.chisquare(2, 400_000)
    examples = 0.6 * 30 / rng.chisquare(30, 400_000)
    careful = (2 * ndtr(-3 / np.sqrt(seeds + examples))).mean()
    simple = 2 * stats.t.sf(3, 30)
    weight = 0.4 / (0.4 + 4 * careful * 0.6)
    expected = weight * careful + (1 - weight) * simple
    assert simple < 0.8 * expected < expected < 0.9 * careful
    assert p_values(3.0, 0.4, 0.6, 2, 30) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("seeds", [3, 5, 10])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
def test_nothing_is_found_too_often_at_any_level(seeds: int, share: float) -> None:
    assert 0.035 < rate(0.05, share, seeds) < 0.055
    for level in (0.005, 0.001, 0.0005):
        assert rate(level, share, seeds) < 1.02 * level


def test_two_seeds_find_too_little_rather_than_too_much() -> None:
    for level in (0.05, 0.001):
        rates = [rate(level, share, 2) for share in (0.05, 0.3, 0.9)]
        assert max(rates) < level
        assert rates[1] < 0.3 * level


def test_p_falls_with_the_mean_and_reach_inverts_it() -> None:
    means = np.linspace(0, 5, 200)
    for freedom in (1, 2, 9):
        p = p_values(means, 0.2, 0.1, freedom, 60)
        assert p[0] == pytest.approx(1)
        assert (np.diff(p) < 0).all()
        far = reach(0.01, np.array([0.2, 0.0]), np.array([0.1, 0.3]), freedom, 60)
        np.testing.assert_allclose(
            p_values(far, [0.2, 0.0], [0.1, 0.3], freedom, 60), 0.01, rtol=1e-6
        )


def test_no_variance_and_no_number() -> None:
    means, none = np.array([0.0, 0.2, np.nan]), np.zeros(3)
    np.testing.assert_array_equal(p_values(means, none, none, 2, 10), [1, 0, np.nan])
    assert reach(0.05, 0.0, 0.0, 2, 10) == 0
    assert smallest(0.05, 0.0, 0.0, 2, 10) == 0
    assert np.isnan(smallest(0.05, float("nan"), 0.0, 2, 10))


def test_the_smallest_difference_of_one_seed_is_blooms() -> None:
    t = stats.t(60)
    assert smallest(0.01, 0.0, 0.25, 0, 60) == pytest.approx(
        0.5 * (t.ppf(0.995) + t.ppf(0.8)), rel=1e-6
    )


@pytest.mark.parametrize(("freedom", "family"), [(1, 1), (2, 1), (2, 11), (9, 11)])
def test_the_smallest_difference_is_found_four_times_in_five(freedom: int, family: int) -> None:
    seeds, examples, level = 0.4, 0.6, 0.05 / family
    rng = np.random.default_rng(2)
    true = smallest(level, seeds, examples, freedom, 400)
    means = true + rng.standard_normal(6000)
    estimates = seeds * rng.chisquare(freedom, 6000) / freedom
    found = p_values(means, estimates, examples, freedom, 400) < level
    assert found.mean() == pytest.approx(0.8, abs=0.02)
