import math

import pytest
import torch
from torch.testing import assert_close

from regard.analysis.maps import entropy, reach, rollout
from regard.core.errors import RegardError


def test_entropy_by_hand() -> None:
    weights = torch.tensor([[[0.25] * 4, [0.5, 0.25, 0.25, 0.0], [0.0] * 4]])
    expected = [[math.log(4), 1.5 * math.log(2), 0.0]]
    assert_close(entropy(weights), torch.tensor(expected))


def test_reach_by_hand() -> None:
    weights = torch.tensor([[0.5, 0.25, 0.25, 0.0], [0.0, 0.0, 0.0, 1.0]])
    # Two queries are the last two of four keys: positions 2 and 3.
    assert_close(reach(weights), torch.tensor([1.25, 0.0]))
    moved = reach(weights, torch.tensor([0, 5]), torch.tensor([0, 2, 4, 6]))
    assert_close(moved, torch.tensor([1.5, 1.0]))


def test_rollout_by_hand() -> None:
    first = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]]])  # 2 heads
    second = torch.tensor([[[0.0, 1.0], [0.0, 1.0]]])
    # Means: [[1, 0], [½, ½]] and [[0, 1], [0, 1]]; half of each is the identity.
    expected = torch.tensor([[0.5, 0.5], [0.0, 1.0]]) @ torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    assert_close(rollout([first, second]), expected)
    bare = torch.tensor([[0.0, 1.0], [0.0, 1.0]]) @ torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    assert_close(rollout([first, second], residual=0), bare)


def test_rollout_rows_sum_to_one() -> None:
    torch.manual_seed(0)
    layers = [torch.randn(2, 3, 5, 5).softmax(-1) for _ in range(4)]
    assert_close(rollout(layers).sum(-1), torch.ones(2, 5))


def test_rollout_of_nothing_is_refused() -> None:
    with pytest.raises(RegardError, match="at least one layer"):
        rollout([])
