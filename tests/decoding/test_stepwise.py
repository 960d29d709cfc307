import pytest
import torch
from torch.testing import assert_close

from regard.decoding.stepwise import BLOCK, largest, likeliest, without


@pytest.mark.parametrize("words", [5, 8 * BLOCK - 1, 8 * BLOCK, 9 * BLOCK + 7])
def test_the_largest_are_those_of_topk(words):
    """Numbers all different, so that places are too; the last of a row among them."""
    x = torch.randperm(3 * 2 * words).float().view(3, 2, words)
    x[0, 0, -1] = x[1, 0, 0] = 1e9
    values, places = largest(x, 2)
    assert torch.equal(values, x.topk(2, -1).values)
    assert torch.equal(places, x.topk(2, -1).indices)


@pytest.mark.parametrize("forbidden", [True, False])
def test_the_likeliest_are_the_best_of_all(forbidden):
    logits = 9 * torch.randn(4, 700)
    logits[:, 3] = 50
    chances, words = likeliest(logits.clone(), 3, forbidden, 2)
    expected = without(logits, 3, forbidden).topk(2, -1)
    assert_close(chances, expected.values)
    assert torch.equal(words, expected.indices)
    assert bool((words == 3).any()) is not forbidden
