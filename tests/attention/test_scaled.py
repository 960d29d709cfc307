"""Normalisers that scale rows by their number of keys, and stick-breaking, against loops."""

import math

import pytest
import torch

from regard.attention import NORMALIZERS
from regard.attention.normalizer import Backward
from regard.attention.normalizers import Softmax
from regard.attention.normalizers.sparse import Entmax15

SCORES = torch.randn(2, 5, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
HIDDEN = SCORES.masked_fill(torch.arange(9) > 2 * torch.arange(5)[:, None], -torch.inf)


def test_scalable_softmax() -> None:
    normalizer = NORMALIZERS["scalable-softmax"](2).double()
    with torch.no_grad():
        normalizer.slope.copy_(torch.tensor([0.5, 2.0])[:, None, None])
    found = normalizer(HIDDEN)
    for head, slope in enumerate((0.5, 2.0)):
        for row in range(5):
            seen = HIDDEN[head, row, : 2 * row + 1]
            powers = [len(seen) ** (slope * float(s)) for s in seen]
            expected = [p / sum(powers) for p in powers]
            assert found[head, row, : len(seen)].tolist() == pytest.approx(expected)
            assert not found[head, row, len(seen) :].any()


def test_a_scale_of_one_is_the_inner_normaliser() -> None:
    normalizer = NORMALIZERS["scalable-softmax"]().double()
    with torch.no_grad():
        normalizer.slope.fill_(1 / math.log(9))
    torch.testing.assert_close(normalizer(SCORES), Softmax()(SCORES))


def test_adaptive_entmax() -> None:
    normalizer = NORMALIZERS["adaptive-entmax"]().double()
    with torch.no_grad():
        normalizer.amount.fill_(0.7)
        normalizer.exponent.fill_(0.2)
    beta, gamma = math.log1p(math.exp(0.7)), 3 * math.tanh(0.2)
    expected = Entmax15()((1 + beta * math.log(9) ** gamma) * SCORES)
    torch.testing.assert_close(normalizer(SCORES), expected)


def test_stick_breaking() -> None:
    found = NORMALIZERS["stick-breaking"]()(HIDDEN)
    for row in range(5):
        left = 1.0
        for key in range(2 * row, -1, -1):
            share = 1 / (1 + math.exp(-float(HIDDEN[0, row, key]))) if key < 9 else 0.0
            if key < 9:
                assert float(found[0, row, key]) == pytest.approx(left * share)
            left *= 1 - share
    assert not found[0, 0, 1:].any()


@pytest.mark.parametrize("name", ["scalable-softmax", "adaptive-entmax", "stick-breaking"])
def test_the_short_gradient_is_that_of_the_definition(name: str) -> None:
    normalizer = NORMALIZERS[name](2).double()
    scores = HIDDEN.clone().requires_grad_()
    upstream = torch.randn(2, 5, 9, generator=torch.Generator().manual_seed(1)).double()
    parameters = tuple(normalizer.parameters())
    weights = normalizer(scores)
    expected = torch.autograd.grad(weights, [scores, *parameters], upstream)
    statistics = normalizer.statistics(HIDDEN)
    torch.testing.assert_close(normalizer.weights(HIDDEN, statistics), weights)
    found = normalizer.gradient(
        Backward(weights.detach(), upstream, HIDDEN, statistics, parameters)
    )
    torch.testing.assert_close(found, expected)
