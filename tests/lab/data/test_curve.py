"""The noisy sine is what its formula says, and the same for a seed."""

import math

import numpy as np

from regard.lab.data.curve import curve, truth


def test_the_formula_and_its_noise() -> None:
    points = curve(20_000, seed=3)
    assert points.x.min() >= 0
    assert points.x.max() < 5
    assert (np.diff(points.x) >= 0).all()
    noise = points.y - [2 * math.sin(x) + x**0.8 for x in points.x]
    assert abs(noise.mean()) < 0.015
    assert abs(noise.std() - 0.5) < 0.01
    assert np.allclose(truth(points.x), points.y - noise)


def test_a_seed_is_a_curve() -> None:
    assert np.array_equal(curve(5, 1).y, curve(5, 1).y)
    assert not np.array_equal(curve(5, 1).y, curve(5, 2).y)
