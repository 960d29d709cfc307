"""Soft caps and normed queries and keys, by name behind a score."""

import pytest
import torch

from regard.attention import MultiHeadAttention, attend, make_score, use
from regard.attention.scores.wrappers import QKNorm, QKUnit, SoftCap
from regard.core.errors import RegardError
from tests.attention.parts import drawn


def test_names_join_around_positions() -> None:
    score = make_score("additive+qk-norm+soft-cap-30", "rotary", 8, 8, heads=2)
    assert isinstance(score, SoftCap)
    assert score.cap == 30
    assert isinstance(score.inner, QKNorm)
    assert [type(x).__name__ for x in (score.inner.inner, score.inner.inner.inner)] == [
        "Rotary", "Additive",
    ]  # fmt: skip
    alone = make_score("soft-cap-2.5", "none", 4, 4)
    assert (alone.cap, alone.inner.name) == (2.5, "scaled-dot")
    with pytest.raises(RegardError, match="no change of a score is called 'soft-cup'"):
        make_score("dot+soft-cup")
    with pytest.raises(RegardError, match="needs a cap above 0, not 0"):
        make_score("soft-cap-0")
    with pytest.raises(RegardError, match="'qk-norm' has parameters"):
        make_score("qk-norm")


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
def test_a_soft_cap_is_its_formula(kernel: str) -> None:
    q, k, v = drawn(5, 4), drawn(7, 4, seed=1), drawn(7, 3, seed=2)
    with use(kernel):
        found = attend(q, k, v, "soft-cap-0.5").output
    expected = (0.5 * torch.tanh(q @ k.mT / 2 / 0.5)).softmax(-1) @ v
    torch.testing.assert_close(found, expected)


def test_qk_norm_is_its_formula_before_positions() -> None:
    score = make_score("qk-norm", "rotary", 4, 4).double()
    with torch.no_grad():
        score.query_gain.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    x = drawn(3, 4)
    plain = make_score("scaled-dot", "rotary", 4, 4)
    normed = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    places = torch.arange(3)
    found = score.prepare_queries(x, places)
    torch.testing.assert_close(found, plain.prepare_queries(score.query_gain * normed, places))
    assert score.acceleration.inner_product


def test_qk_unit_is_a_scaled_cosine() -> None:
    score = QKUnit(make_score("scaled-dot", "none", 4, 4, heads=2)).double()
    with torch.no_grad():
        score.gain.copy_(torch.tensor([2.0, 3.0])[:, None, None])
    q, k = drawn(2, 3, 4), drawn(2, 5, 4, seed=1)
    places = torch.arange(3), torch.arange(5)
    found = score.compare(
        score.prepare_queries(q, places[0]), score.prepare_keys(k, places[1]), places
    )
    cosine = torch.nn.functional.cosine_similarity(q[:, :, None], k[:, None], dim=-1)
    expected = torch.tensor([2.0, 3.0])[:, None, None] * 2 * cosine
    torch.testing.assert_close(found, expected.double(), rtol=1e-5, atol=1e-5)


def test_a_layer_takes_them_by_name_and_learns_their_gains() -> None:
    layer = MultiHeadAttention(8, 2, score="qk-norm+soft-cap-20", position="rotary")
    layer(drawn(2, 5, 8).float()).sum().backward()
    gains = {name for name, x in layer.named_parameters() if "gain" in name and x.grad is not None}
    assert len(gains) == 2
