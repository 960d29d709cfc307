"""Softmax by numbers, whole and in tiles."""

import pytest
import torch
from torch.testing import assert_close

from regard.attention import NORMALIZERS


@pytest.fixture(params=NORMALIZERS)
def normalizer(request):
    return NORMALIZERS[request.param]()


def test_softmax_by_torch():
    scores = torch.randn(3, 4, 9, dtype=torch.float64, requires_grad=True)
    ours, theirs = NORMALIZERS["softmax"]()(scores), torch.softmax(scores, -1)
    assert_close(ours, theirs, atol=1e-15, rtol=1e-13)
    upstream = torch.randn_like(scores)
    assert_close(
        torch.autograd.grad(ours, scores, upstream)[0],
        torch.autograd.grad(theirs, scores, upstream)[0],
    )
    assert torch.autograd.gradcheck(NORMALIZERS["softmax"](), scores)


def test_large_scores_do_not_overflow(normalizer):
    scores = torch.tensor([[1e4, 1e4, -1e4], [-3e38, -3e38, -torch.inf]])
    assert normalizer(scores).tolist() == [[0.5, 0.5, 0], [0.5, 0.5, 0]]


def test_tiles_of_a_row_make_the_row(normalizer):
    scores = 3 * torch.randn(7, 9, dtype=torch.float64)
    scores[0, :4] = scores[1, 4:] = scores[2, :] = -torch.inf
    tiles = scores.split([4, 1, 4], -1)
    statistics = normalizer.statistics(iter(tiles))
    tiled = torch.cat([normalizer.weights(tile, statistics) for tile in tiles], -1)
    assert_close(tiled, normalizer(scores))
    assert (tiled[2] == 0).all()


def test_what_is_called_shift_invariant_is(normalizer):
    scores = torch.randn(3, 9, dtype=torch.float64)
    same = torch.allclose(normalizer(scores), normalizer(scores + 1.5))
    assert same == normalizer.shift_invariant
