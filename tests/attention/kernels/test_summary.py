"""The summary beside the weights."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import NORMALIZERS, Mask, attend, causal, global_tokens, lengths, window
from regard.attention.kernels.choose import Constants, using
from regard.attention.normalizers import TopK
from regard.core.errors import RegardError
from tests.attention.parts import HEADS, inputs, score_of


@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize(
    "mask",
    [None, causal(), window(2) & causal() | global_tokens(1), lengths([33, 3, 0])],
    ids=["none", "causal", "window", "lengths"],
)
@pytest.mark.parametrize("score", ["additive", "scaled-dot"])
def test_numbers(normalize, mask, score):
    given = inputs(29, 33)
    attended = attend(*given, score_of(score, "alibi" if score == "additive" else "none"), mask,
                      normalize=NORMALIZERS[normalize](HEADS).double())  # fmt: skip
    with using(Constants(strip_numbers=500, strip_rows=1)):
        summary = attended.summary(top=5)
    weights = attended.weights.detach()
    assert_close(summary.weights, weights.topk(5).values, atol=1e-9, rtol=1e-9)
    assert_close(summary.mass, weights.sum(-2), atol=1e-9, rtol=1e-9)
    assert_close(summary.entropy, torch.special.entr(weights).sum(-1), atol=1e-9, rtol=1e-9)
    named = summary.indices >= 0
    assert torch.equal(named, summary.weights > 0)
    found = weights.gather(-1, summary.indices.clamp(min=0))
    assert_close(found[named], summary.weights[named], atol=1e-9, rtol=1e-9)
    assert not summary.weights.requires_grad
    dense = summary.dense()
    assert dense.shape == weights.shape
    assert_close(dense.sum(-1), summary.weights.sum(-1))


def test_weights_that_are_alike_have_the_entropy_of_their_number():
    attended = attend(*inputs(9, 11), score_of("dot"), normalize=TopK(HEADS, k=3, equal=True))
    entropy = attended.summary(top=3).entropy
    assert_close(entropy, torch.full_like(entropy, 3.0).log())


def test_no_more_keys_than_there_are():
    attended = attend(*inputs(5, 7), score_of("dot"))
    summary = attended.summary(top=99)
    assert summary.indices.shape == (3, 2, 5, 7)
    assert_close(summary.weights.sum(-1), torch.ones(3, 2, 5, dtype=torch.float64))
    with pytest.raises(RegardError, match="top must be at least 1, not 0"):
        attended.summary(0)


def test_a_query_that_sees_nothing_and_no_key_at_all():
    nothing = Mask(lambda rows, columns: columns[..., None, :] < 0)
    summary = attend(*inputs(5, 7), score_of("dot"), nothing).summary(3)
    assert summary.entropy.eq(0).all()
    assert summary.indices.eq(-1).all()
    assert summary.mass.eq(0).all()
    assert attend(*inputs(5, 0), score_of("dot")).summary(3).entropy.eq(0).all()


def test_grouped_keys_and_a_nan():
    given = inputs(5, 7, groups=1)
    given[1].data[0, 0, 6] = torch.nan
    attended = attend(*given, score_of("dot"), causal())
    summary = attended.summary(3)
    assert summary.entropy[0, :, -1].isnan().all()
    assert summary.entropy[0, :, :-1].isfinite().all()
    assert summary.weights[1:].isfinite().all()


def test_changed_inputs_are_refused():
    given, made = inputs(5, 7), score_of("additive")
    attended = attend(*given, made)
    with torch.no_grad():
        given[0].add_(1)
    with pytest.raises(RegardError, match=r"read .summary\(\) before the next step"):
        attended.summary()
