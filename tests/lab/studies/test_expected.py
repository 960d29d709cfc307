"""The expected best of a search, by numbers done by hand and by drawing."""

import numpy as np
import pytest

from regard.lab.studies.expected import best_so_far, expected_best


def test_dodge_by_hand() -> None:
    """Two draws from {0.2, 0.4}: 0.2 with chance 1/4, else 0.4. A first score of 0 is no floor."""
    curve = expected_best(0.0, [0.4, 0.2])
    assert [best.mean for best in curve] == pytest.approx([0.0, 0.3, 0.35])
    assert [best.deviation for best in curve] == pytest.approx([0.0, 0.1, 0.0075**0.5])


def test_the_first_score_is_a_floor() -> None:
    curve = expected_best(0.3, [0.2, 0.4, 0.1])
    assert [best.mean for best in curve] == pytest.approx(
        [0.3, (2 * 0.3 + 0.4) / 3, (4 * 0.3 + 5 * 0.4) / 9, (8 * 0.3 + 19 * 0.4) / 27]
    )
    assert expected_best(0.9, [0.2, 0.4])[-1] == (0.9, 0.0)


def test_it_is_what_drawing_gives() -> None:
    random = np.random.default_rng(0)
    draws = random.normal(size=7)
    tried = np.maximum(0.1, random.choice(draws, size=(200_000, 3)).max(1))
    best = expected_best(0.1, draws.tolist())[3]
    assert best.mean == pytest.approx(tried.mean(), abs=0.01)
    assert best.deviation == pytest.approx(tried.std(), abs=0.01)


def test_best_so_far() -> None:
    assert best_so_far([0.2, 0.5, 0.1]) == [(0.2, 0.0), (0.5, 0.0), (0.5, 0.0)]
