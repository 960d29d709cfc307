"""Masks by hand: who sees whom."""

import pytest
import torch

from regard.attention import (
    SCORES,
    Mask,
    MultiHeadAttention,
    attend,
    causal,
    dense,
    lengths,
    lengths_per_query,
    others,
    prefix,
)
from regard.errors import RegardError

TWO, THREE, FOUR = torch.arange(2), torch.arange(3), torch.arange(4)


def table(mask, rows=THREE, columns=THREE):
    return mask.allows(rows, columns).expand(*rows.shape[:-1], -1, -1).int().tolist()


def test_built_in_masks():
    assert table(causal()) == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert table(others()) == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    assert lengths(2).allows(THREE, THREE).int().tolist() == [[1, 1, 0]]
    assert lengths([0, 3]).allows(THREE, THREE).int().tolist() == [[[0, 0, 0]], [[1, 1, 1]]]
    per_query = lengths_per_query([[3, 0], [1, 2]]).allows(TWO, THREE).int().tolist()
    assert per_query == [[[1, 1, 1], [0, 0, 0]], [[1, 0, 0], [1, 1, 0]]]
    assert table(dense(torch.tensor([[True, False, True]]))) == [[1, 0, 1]]


def test_the_algebra():
    assert table(causal() | prefix(2)) == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]
    assert table(causal() & others()) == [[0, 0, 0], [1, 0, 0], [1, 1, 0]]
    assert table(~causal()) == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert (~lengths(1)).allows(THREE, THREE).int().tolist() == [[0, 1, 1]]
    assert (~lengths(1) & lengths(2)).kind == "keys"
    assert (~lengths(1) & causal()).kind == "pairs"


def test_rows_are_the_last_of_the_columns_by_default():
    x = torch.zeros(2, 4, 3)
    weights = attend(x[:, :2], x, x, SCORES["dot"](), causal()).weights
    assert (weights[0] > 0).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]


def test_positions_of_a_batch():
    rows = torch.tensor([[0, 1], [2, 3]])
    assert causal().allows(rows, FOUR).int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0]],
        [[1, 1, 1, 0], [1, 1, 1, 1]],
    ]


def test_padding_on_the_left_by_negative_positions():
    positions = torch.tensor([[0, 1, 2, 3], [-2, -1, 0, 1]])
    x = torch.randn(2, 4, 3)
    x[1, :2] = torch.nan
    mask = causal() & lengths([4, 2])
    score = SCORES["dot"]()
    left = attend(x, x, x, score, mask, query_positions=positions, key_positions=positions)
    alone = attend(x[1:, 2:], x[1:, 2:], x[1:, 2:], score, causal())
    torch.testing.assert_close(left.output[1:, 2:], alone.output)


def test_a_mask_on_keys_hides_a_key():
    x = torch.randn(2, 3, 4)
    mask = Mask(lambda rows, columns: columns[None, :] != 1)
    weights = attend(x, x, x, SCORES["dot"](), mask).weights
    assert (weights[..., 1] == 0).all()
    assert (weights[..., 0] > 0).all()


def test_over_heads_puts_the_axis_once():
    mask = lengths([1, 3])
    assert mask.allows(THREE, THREE).shape == (2, 1, 3)
    assert mask.over_heads().over_heads().allows(THREE, THREE).shape == (2, 1, 1, 3)
    assert (causal() & mask.over_heads()).allows(THREE, THREE).shape == (2, 1, 3, 3)
    assert (mask.over_heads() | mask).allows(THREE, THREE).shape == (2, 1, 1, 3)


@pytest.mark.parametrize("call", ["attend", "layer"])
def test_tensors_are_refused_with_the_remedy(call):
    def given(mask):
        x = torch.zeros(2, 3, 4)
        if call == "layer":
            return MultiHeadAttention(4, 2)(x, mask=mask)
        return attend(x, x, x, SCORES["dot"](), mask)

    with pytest.raises(RegardError, match=r"dense\(tensor == 0\) for a 0 / −inf mask"):
        given(torch.zeros(3, 3))
    with pytest.raises(RegardError, match=r"dense\(tensor\), where True = may look"):
        given(torch.ones(3, 3, dtype=torch.bool))


def test_errors():
    x = torch.zeros(2, 3, 4)
    with pytest.raises(RegardError, match=r"True = may look, not torch.float32"):
        attend(x, x, x, SCORES["dot"](), Mask(lambda r, c: torch.zeros(3, 3)))
    with pytest.raises(RegardError, match="does not broadcast to the scores"):
        attend(x, x, x, SCORES["dot"](), lengths([1, 2, 3]))
    with pytest.raises(RegardError, match="2 × 2 does not fit 3 queries and 3 keys"):
        attend(x, x, x, SCORES["dot"](), dense(torch.ones(2, 2, dtype=torch.bool)))
    with pytest.raises(RegardError, match="tells of 2 queries; the call has 3"):
        attend(x, x, x, SCORES["dot"](), lengths_per_query([[1, 2], [1, 2]]))
    with pytest.raises(RegardError, match=r"whole numbers, not torch.float32"):
        lengths(torch.tensor([1.0, 2.0]))
    with pytest.raises(RegardError, match="masks join with masks, not with Tensor"):
        causal() & torch.ones(3, 3, dtype=torch.bool)
    with pytest.raises(RegardError, match=r"so torch.float32 is refused"):
        dense(torch.ones(3, 3))
