"""Kerple, FIRE and signed ALiBi against their formulas in loops."""

import math

import pytest
import torch

from regard.attention import attend, causal, make_score
from regard.attention.positions.biases import Fire, Kerple, SignedAlibi
from regard.attention.scores import Dot
from regard.core.errors import RegardError

PLACES = torch.arange(7)


def added(score: torch.nn.Module, width: int = 4) -> torch.Tensor:
    """Return the scores of zero queries and keys, which are the added term."""
    x = torch.zeros(2, 7, width, dtype=torch.float64)
    prepared = score.prepare_queries(x, PLACES), score.prepare_keys(x, PLACES)
    found: torch.Tensor = score.compare(*prepared, (PLACES, PLACES))
    return found.detach()


def test_kerple() -> None:
    score = Kerple(Dot(4, 4, heads=2)).double()
    with torch.no_grad():
        score.reach.add_(torch.tensor([0.5, 1.5])[:, None, None])
    found = added(score)
    learned = (score.slope.detach(), score.reach.detach())
    r1, r2 = (torch.nn.functional.softplus(x).flatten() for x in learned)
    for head in range(2):
        for i in range(7):
            for j in range(7):
                value = -float(r1[head]) * math.log(1 + float(r2[head]) * abs(i - j))
                assert float(found[head, i, j]) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("threshold", [3, 9])  # within the positions, and above all of them
def test_fire(threshold) -> None:
    score = Fire(Dot(4, 4, heads=2), hidden=5).double()
    with torch.no_grad():
        score.threshold.fill_(threshold)
    found = added(score)
    c = float(torch.nn.functional.softplus(score.c.detach()))
    for i in range(7):
        for j in range(7):
            near = math.log(1 + c * abs(i - j)) / math.log(1 + c * max(i, threshold))
            value = score.function(torch.tensor([near], dtype=torch.float64))
            assert found[:, i, j].tolist() == pytest.approx(value.tolist(), abs=1e-12)
    with pytest.raises(RegardError, match="at least one hidden unit, not 0"):
        make_score("dot", "fire-0", 4, 4)


def test_signed_alibi_is_alibi_under_a_causal_mask_and_an_inner_product() -> None:
    x = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = make_score("scaled-dot", "alibi", 4, 4, heads=2)
    signed = make_score("scaled-dot", "alibi-signed", 4, 4, heads=2)
    assert signed.acceleration.inner_product
    assert not plain.acceleration.inner_product
    found, expected = (attend(x, x, x, s, causal(), heads=2).output for s in (signed, plain))
    torch.testing.assert_close(found, expected)
    with pytest.raises(RegardError, match="needs an inner product such as scaled-dot"):
        make_score("additive", "alibi-signed", 4, 4)


def test_signed_alibi_is_exact_at_far_positions_in_bfloat16() -> None:
    score = SignedAlibi(Dot(2, 2, heads=8))
    far = torch.tensor([60_000, 60_001, 60_007])
    x = torch.zeros(8, 3, 2, dtype=torch.bfloat16)
    prepared = score.prepare_queries(x, far).double(), score.prepare_keys(x, far).double()
    found = prepared[0] @ prepared[1].mT
    apart = (far[None, :] - far[:, None]).double()
    assert torch.equal(found, score.slopes.double() * apart)


def test_key_heads_may_be_fewer() -> None:
    score = make_score("scaled-dot", "alibi-signed", 4, 4, heads=4)
    x = torch.randn(1, 4, 5, 4, generator=torch.Generator().manual_seed(1))
    few = x[:, :2]
    found = attend(x, few, few, score, causal(), heads=4).output
    many = few.repeat_interleave(2, 1)
    torch.testing.assert_close(found, attend(x, many, many, score, causal(), heads=4).output)
