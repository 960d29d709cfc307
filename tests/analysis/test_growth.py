"""Exponents, coefficients and crossings of curves whose answer is known."""

import math

import pytest

from regard.analysis.growth import crossing, exponent, shares

SIZES = [10, 30, 70, 200]


def test_the_exponent_of_a_power() -> None:
    assert exponent(SIZES, [3 * n**1.7 for n in SIZES]) == pytest.approx(1.7, abs=1e-12)


def test_coefficients_of_a_sum_of_powers() -> None:
    terms = [[float(n) for n in SIZES], [float(n**2) for n in SIZES]]
    amounts = [4000 * n + 2 * n**2 for n in SIZES]
    assert shares(terms, amounts) == pytest.approx([4000, 2], rel=1e-9)


def test_powers_cross_where_they_are_equal() -> None:
    """c n under n² / 5 from n = 5 c on, wherever between two sizes that is."""
    for c in (3, 8, 25):
        found = crossing(SIZES, [c * n for n in SIZES], [n**2 / 5 for n in SIZES])
        assert found == pytest.approx(5 * c, rel=1e-9)


def test_the_last_crossing_counts() -> None:
    theirs = [1.0, 1.0, 1.0, 1.0]
    assert crossing(SIZES, [2.0, 0.5, 2.0, 0.5], theirs) == pytest.approx(math.sqrt(70 * 200))
    assert crossing(SIZES, [0.5, 2.0, 0.5, 0.25], theirs) == pytest.approx(math.sqrt(30 * 70))
    assert crossing(SIZES, [0.5, 0.5, 0.5, 0.25], theirs) == 0
    assert crossing(SIZES, [0.5, 0.5, 0.5, 1.0], theirs) == math.inf
    assert crossing(SIZES, [2.0, 1.0, 0.5, 0.25], theirs) == pytest.approx(30)
