"""Normalisers by numbers and by their laws; the quick way beside the definition."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import NORMALIZERS, SCORES, attend, lengths, use
from regard.attention.normalizer import Backward
from regard.attention.normalizers import Sigmoid, Sum, TopK
from regard.attention.normalizers.basic import largest
from regard.attention.normalizers.sparse import Entmax, Entmax15, Sparsemax
from regard.core.errors import RegardError
from tests.attention.parts import shifted

SUM_TO_ONE = {
    "softmax", "sparsemax", "entmax15", "entmax", "top-k", "scalable-softmax", "adaptive-entmax",
}  # fmt: skip


@pytest.fixture(params=NORMALIZERS)
def normalizer(request):
    return shifted(NORMALIZERS[request.param](2).double(), 0.5)


def rows(keys=9, dtype=torch.float64):
    """Scores (2, 5, keys), some masked, one row of nothing."""
    scores = 2 * torch.randn(2, 5, keys, dtype=dtype)
    scores[0, 0, :4] = scores[1, 1, keys // 2 :] = scores[0, 2, :] = -torch.inf
    return scores


def test_softmax_by_torch():
    scores = torch.randn(3, 4, 9, dtype=torch.float64, requires_grad=True)
    ours, theirs = NORMALIZERS["softmax"]()(scores), torch.softmax(scores, -1)
    assert_close(ours, theirs, atol=1e-15, rtol=1e-13)


def test_weights_by_hand():
    scores = torch.tensor([[1.0, 0.5, -1.0, -torch.inf]])
    e = scores.exp()
    one = [[0.25, 0.25, 0.25, 0.25]]
    assert_close(NORMALIZERS["softmax-plus-one"]()(scores), e / (1 + e.sum()))
    assert_close(NORMALIZERS["sink"]()(scores), e / (1 + e.sum()))
    assert_close(NORMALIZERS["sigmoid"]()(scores), e / (e + 3))  # three keys in sight
    assert_close(Sigmoid(bias=-1.0)(scores), torch.sigmoid(scores - 1))
    assert NORMALIZERS["sparsemax"]()(scores).tolist() == [[0.75, 0.25, 0.0, 0.0]]
    assert NORMALIZERS["sparsemax"]()(torch.zeros(1, 4)).tolist() == one
    assert NORMALIZERS["entmax15"]()(torch.zeros(1, 4)).tolist() == one
    assert_close(TopK(k=2)(scores), torch.softmax(scores[:, :2], -1).new_tensor(
        [[0.62245933, 0.37754067, 0, 0]]))  # fmt: skip
    assert_close(Entmax15()(scores).sum(-1), torch.ones(1))
    assert_close(NORMALIZERS["sum"]()(scores), torch.tensor([[2 / 3, 1 / 3, 0, 0]]))
    assert TopK(k=2, equal=True)(scores).tolist() == [[0.5, 0.5, 0, 0]]


def test_entmax_solves_its_equation():
    scores = 2 * torch.randn(4, 9, dtype=torch.float64)
    for alpha in (1.1, 1.5, 1.9):
        weights = Entmax(alpha=alpha)(scores)
        assert_close(weights.sum(-1), torch.ones(4, dtype=torch.float64))
        inside = weights > 0
        tau = (alpha - 1) * scores - weights ** (alpha - 1)  # the same for all keys of a row
        for row, kept in zip(tau, inside, strict=True):
            assert_close(row[kept], row[kept][:1].expand(int(kept.sum())))
            assert ((alpha - 1) * scores[inside.any(-1)].min() <= row[kept].max() + 10).all()
    assert_close(Entmax(alpha=1.5)(scores), Entmax15()(scores), atol=1e-7, rtol=1e-6)


def test_the_quick_way_is_the_definition(normalizer):
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.float32, 2e-5)):
        scores = rows(dtype=dtype)
        made = normalizer.to(dtype)
        with torch.no_grad():
            statistics = made.statistics(scores)
            quick = made.weights(scores, statistics)
        exact = made(scores)
        assert_close(quick, exact, atol=tolerance, rtol=tolerance)
        assert (exact[0, 2] == 0).all()
        assert (exact[scores == -torch.inf] == 0).all()


def test_gradients_by_hand_are_those_of_the_definition(normalizer):
    scores = rows().requires_grad_()
    parameters = tuple(normalizer.parameters())
    upstream = torch.randn_like(scores)
    exact = torch.autograd.grad(normalizer(scores), (scores, *parameters), upstream)
    with torch.no_grad():
        statistics = normalizer.statistics(scores)
        weights = normalizer.weights(scores, statistics)
        ours = normalizer.gradient(
            Backward(weights, upstream.clone(), scores, statistics, parameters)
        )
    assert len(ours) == 1 + len(parameters)
    assert_close(ours, exact, atol=1e-8, rtol=1e-8)
    assert (ours[0][0, 2] == 0).all()


def test_definitions_are_differentiable(normalizer):
    scores = 3 * torch.randn(2, 3, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalizer, scores)
    assert torch.autograd.gradgradcheck(normalizer, scores)


def test_large_scores_do_not_overflow(normalizer):
    scores = torch.tensor([[1e4, 1e4, -1e4], [-3e38, -3e38, -torch.inf]]).expand(2, 2, 3)
    for weights in (
        normalizer.float()(scores),
        normalizer.weights(scores, normalizer.statistics(scores)),
    ):
        assert weights.isfinite().all()
        if normalizer.name in SUM_TO_ONE:
            assert_close(weights[0], torch.tensor([[0.5, 0.5, 0], [0.5, 0.5, 0]]))


def test_sums(normalizer):
    total = normalizer(torch.randn(2, 5, 9, dtype=torch.float64)).sum(-1)
    if normalizer.name in SUM_TO_ONE:
        assert_close(total, torch.ones_like(total))
    else:
        assert (total < 1).all() or normalizer.name in ("sigmoid", "sum")


def test_what_is_called_shift_invariant_is(normalizer):
    scores = torch.randn(2, 3, 9, dtype=torch.float64)
    same = torch.allclose(normalizer(scores), normalizer(scores + 1.5))
    assert same == normalizer.shift_invariant


def test_support_is_exact():
    scores = torch.tensor([[0.0, -0.4, -5.0, -0.9]])
    assert (Sparsemax()(scores) > 0).tolist() == [[True, True, False, False]]
    tied = torch.tensor([[1.0, 2.0, 2.0, 2.0, 0.0]])
    assert (TopK(k=2)(tied) > 0).tolist() == [[False, True, True, True, False]]
    with pytest.raises(RegardError, match="k must be at least 1"):
        TopK(k=0)
    with pytest.raises(RegardError, match="between 1 and 2"):
        Entmax(alpha=2.0)


def test_a_sum_of_nothing_in_reach_is_nothing():
    scores = torch.tensor([[0.0, -2.0, 0.0], [0.0, 0.5, 1.5]], requires_grad=True)
    weights = Sum()(scores)
    assert weights.tolist() == [[0, 0, 0], [0, 0.25, 0.75]]
    (gradient,) = torch.autograd.grad(weights[:, 2].sum(), scores)
    assert gradient.tolist() == [[0, 0, 0], [0, -0.375, 0.125]]


def test_the_nearest_weigh_alike_and_have_no_gradient():
    made, scores = TopK(k=3, equal=True), rows(40).requires_grad_()
    weights = made(scores)
    seen = (scores > -torch.inf).sum(-1).clamp(max=3)
    assert torch.equal((weights > 0).sum(-1), seen)
    assert_close(weights[0, 1].max().item(), 1 / 3)
    upstream = torch.randn_like(scores)
    (theirs,) = torch.autograd.grad(weights, scores, upstream)
    quick = made.weights(scores.detach(), made.statistics(scores.detach()))
    assert torch.equal(quick, weights)
    (ours,) = made.gradient(Backward(quick, upstream, scores.detach(), (), ()))
    assert torch.equal(ours, theirs)
    assert not ours.any()


def test_the_largest_by_groups_are_the_largest():
    for size in (64, 1024, 1040):
        scores = torch.randn(3, 5, size)
        values, places = largest(scores, 8)
        assert torch.equal(values, scores.topk(8, -1).values)
        assert torch.equal(scores.gather(-1, places), values)
    values, places = largest(torch.zeros(2, 1024), 8)
    assert torch.equal(values, torch.zeros(2, 8))
    assert all(len(set(row)) == 8 for row in places.tolist())


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("score", "name"),
    [*(("dot", name) for name in NORMALIZERS), ("boxcar", "sum"), ("epanechnikov", "sum")],
)
def test_a_query_that_is_not_finite_is_not_answered_by_zeros(
    score: str, name: str, bad: float, kernel: str
) -> None:
    queries, keys, values = torch.randn(2, 4, 3), torch.randn(2, 5, 3), torch.randn(2, 5, 2)
    made, mask = SCORES[score](3, 3), lengths([5, 3])
    with use(kernel):
        wanted = attend(queries, keys, values, made, mask=mask, normalize=name).output
        queries[0, 1, 0] = bad
        found = attend(queries, keys, values, made, mask=mask, normalize=name).output
    kept = torch.ones(2, 4, dtype=torch.bool)
    kept[0, 1] = False
    assert_close(found[kept], wanted[kept])
    if bad != bad or name not in ("sigmoid", "sum"):  # to these two infinitely much is a number
        assert found[0, 1].isnan().all()


@pytest.mark.parametrize("kernel", ["exact", "tiled"])
@pytest.mark.parametrize("score", ["gaussian", "boxcar", "epanechnikov"])
def test_a_diverged_parameter_is_seen(score: str, kernel: str) -> None:
    made = SCORES[score](3, 3)
    with torch.no_grad():
        next(made.parameters()).fill_(torch.nan)
    x = torch.randn(2, 4, 3)
    with use(kernel):
        assert attend(x, x, x, made, normalize="sum").output.isnan().all()
