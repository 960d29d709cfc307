"""Softmax of normal scores: the integrals against numbers by hand, limits and draws."""

import math

import numpy as np
import pytest
import torch

from regard.core.errors import RegardError
from regard.lab.labs.softmax_gradient.gaussian import Theory, largest_weight, saturation


@pytest.mark.parametrize("keys", [2, 5, 64])
@pytest.mark.parametrize("spread", [0.05, 1.0, 3.0, 40.0])
def test_integrals_are_the_means_of_draws(keys: int, spread: float) -> None:
    scores = spread * torch.randn(20_000, keys, dtype=torch.float64)
    w = scores.softmax(-1)
    squares = w.square().sum(-1)
    drawn = {
        "entropy": torch.special.entr(w).sum(-1),
        "largest": w.amax(-1),
        "concentration": squares,
        "jacobian": squares - 2 * (w**3).sum(-1) + squares**2,
    }
    found = saturation(keys, spread)
    for name, sample in drawn.items():
        error = float(sample.std()) / math.sqrt(len(sample))
        assert abs(getattr(found, name) - float(sample.mean())) < 4.5 * error, name


def test_equal_scores() -> None:
    found = saturation(4, 1e-3)
    assert found.entropy == pytest.approx(math.log(4), abs=1e-6)
    assert found.largest == pytest.approx(1 / 4, abs=1e-3)
    assert found.concentration == pytest.approx(1 / 4, abs=1e-6)
    assert found.jacobian == pytest.approx(3 / 16, abs=1e-6)  # (n − 1) / n²


def test_two_keys_are_one_integral() -> None:
    """With two keys the largest weight is σ(|difference|), of variance 2σ²."""
    difference = np.linspace(-14, 14, 200_001) * math.sqrt(2)
    density = np.exp(-(difference**2) / 4) / math.sqrt(4 * math.pi)
    wanted = np.trapezoid(density / (1 + np.exp(-np.abs(difference))), difference)
    assert largest_weight(2, 1.0) == pytest.approx(float(wanted), abs=1e-6)
    p = 1 / (1 + np.exp(-difference))
    wanted = np.trapezoid(density * (2 * p * (1 - p)) ** 2, difference)  # ‖J‖² = (2 p q)²
    assert saturation(2, 1.0).jacobian == pytest.approx(float(wanted), abs=1e-9)


def test_it_freezes() -> None:
    """Poisson–Dirichlet for many keys: Σ w² → 1 − √(2 ln n) / σ. The entropy below: ln n − σ²/2."""
    assert saturation(1_000_000, 1.0).entropy == pytest.approx(math.log(1e6) - 0.5, abs=1e-3)
    frozen = saturation(1_000_000, 40.0)
    assert frozen.concentration == pytest.approx(1 - math.sqrt(2 * math.log(1e6)) / 40, abs=0.02)


def test_the_table_is_the_integral() -> None:
    theory = Theory(7, 0.05, 20.0)
    for spread in (0.0612, 0.9, 2.34, 19.0):
        found, wanted = theory.at(spread), saturation(7, spread)
        assert found.entropy == pytest.approx(wanted.entropy, abs=1e-4)
        assert found.jacobian == pytest.approx(wanted.jacobian, abs=1e-4)
    with pytest.raises(RegardError, match=r"spread must be between 0\.05 and 20, not 30"):
        theory.at(30.0)


def test_products_have_the_spread_of_the_query() -> None:
    theory = Theory(5, 0.05, 20.0)
    q = torch.randn(20_000, 1, 3, dtype=torch.float64)
    w = (q @ torch.randn(20_000, 3, 5, dtype=torch.float64)).softmax(-1)
    drawn = torch.special.entr(w).sum(-1)
    error = float(drawn.std()) / math.sqrt(20_000)
    assert abs(theory.of_products(3).entropy - float(drawn.mean())) < 4.5 * error
    assert theory.of_products(3).entropy < theory.at(math.sqrt(3)).entropy + 0.1
    scaled = theory.of_products(3, 3**-0.5)
    assert scaled.entropy > theory.of_products(3).entropy


@pytest.mark.parametrize(("keys", "spread"), [(1, 1.0), (3, 0.0), (3, math.inf), (3, math.nan)])
def test_what_has_no_answer(keys: int, spread: float) -> None:
    with pytest.raises(RegardError, match=f"spread above 0, not {keys} and"):
        saturation(keys, spread)
